// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Active-Backup for one shard of one operation (our design): skips like skip.h, but a
// data shard that is missing may come from a backup (data_shard.h).
//
// Note [asked for when it is needed]
// A backup that has called *offers* its contribution, which costs no bytes. It is asked
// for as soon as the primary of its data shard has no time left: by the deadline that
// the others would have waited for it, at once where it is known to be behind or late
// as a rule, or where it is out of the view. Whoever is here whole first counts, once.
// The owner then waits for what it has asked for, with a patience learnt from such
// contributions (stand_in_times.h), and for backups that have not offered yet as long
// as for a member, with lags and deadlines of their own: an offer is their arrival. So
// with a late primary an operation takes a deadline and a contribution longer, and with
// one that is always late just the contribution.
//
// With BackupMode::kReplicate and verify_shadows nobody is asked: the first bytes of a
// contribution are offer and question at once. With verify_shadows the owner also waits
// for the second copy of each data shard, as long as for one that was asked for; where
// both are here the primary's counts, so that nobody seems late who was not.
//
// Note [when the clock starts]
// Deadlines begin when enough data shards are here to close, but without waiting for
// more than there would be if each backup stood in for somebody: else a quorum that
// only they could complete would never come, and nobody would ask them for it.
//
// A stand-in is no arrival of its primary: what is known of members is fed with their
// own arrivals alone. Where the log is full of results for somebody who has not called,
// backup or covered, the shard stays open as with skip.h.
//
// Only the progress thread calls it.

#include <vector>

#include "straggler/data_shard.h"
#include "straggler/history.h"
#include "straggler/policy.h"
#include "straggler/stand_in_times.h"
#include "straggler/terms.h"

namespace aikido::straggler {

class ActiveBackup final : public Policy {
 public:
  // As Skip. At most `max_stand_ins` count; `times` are those of the group.
  // Requires: options.has_stand_ins().
  ActiveBackup(const PolicyOptions& options, History& history, Deadlines& deadlines,
               StandInTimes& times, Seq seq, uint64_t bytes, const RankSet& had_time,
               size_t max_stand_ins);

  // Primaries and backups. An arrival is that of a primary with its own data.
  void expect(const RankSet& members) override;
  void on_arrival(Rank rank, TimePoint now) override;
  // What was asked for and is not here was given up.
  void on_close(const Progress& here, uint64_t total, TimePoint now) override;
  [[nodiscard]] Decision decide(TimePoint now) const override;
  [[nodiscard]] std::optional<TimePoint> next_look() const override;
  [[nodiscard]] const RankSet& arrived() const override { return arrived_; }
  [[nodiscard]] std::optional<TimePoint> quorum_time() const override { return t_q_; }

  // `backup` has called, and computed `data_shard`, which may be kAnyDataShard. It
  // offers again where it has not heard that it was asked.
  void on_offer(Rank backup, int32_t data_shard, TimePoint now);
  // Its contribution is here whole. Requires: it has offered.
  void on_copy(Rank backup, TimePoint now);
  // Whom to ask for their contributions now: call it before decide().
  [[nodiscard]] std::vector<Rank> ask(TimePoint now);

  // Of `arrived()`, ascending.
  const std::vector<StandIn>& stand_ins() const { return stand_ins_; }
  bool is_backup(Rank rank) const { return rank.value >= num_; }
  bool has_offered(Rank rank) const { return backup(rank).state != State::kSilent; }

 private:
  enum class State : uint8_t { kSilent, kOffered, kAsked, kHere, kCounted };
  struct Backup {
    State state = State::kSilent;
    int32_t data_shard = kAnyDataShard;  // once asked: the one it was asked for
    bool fits_any = false;
    TimePoint asked_at{};
    Duration patience{0};
  };
  // Until when the shard stays open, and for whom.
  struct Hold {
    bool is_open_ended = false;
    TimePoint until{};
    Terms terms;
  };
  Backup& backup(Rank rank) { return backups_[static_cast<size_t>(rank.value - num_)]; }
  const Backup& backup(Rank rank) const {
    return backups_[static_cast<size_t>(rank.value - num_)];
  }
  bool is_missing(int32_t d) const { return !arrived_.contains(Rank(d)); }
  bool sends_unasked() const {
    return options_.backup_mode == BackupMode::kReplicate || options_.verify_shadows;
  }
  std::optional<TimePoint> due(int32_t d) const;
  bool is_pending(int32_t d, TimePoint now) const;
  size_t num_pending() const;
  std::optional<int32_t> fitting(const Backup& b, TimePoint now) const;
  void ask_one(Backup& b, int32_t d, TimePoint now);
  void stand_in(Rank rank, int32_t d, TimePoint now);
  void give_way(Rank primary);
  void count(Rank rank, TimePoint now);
  void start_clock(TimePoint now);
  void see(Rank rank, TimePoint now);
  void extend(Hold& hold, const Terms& terms) const;
  void extend(Hold& hold, TimePoint until, Rank rank) const;
  void hold_for_backups(Hold& hold) const;
  void hold_for_copies(Hold& hold) const;
  void hold_for_log(Hold& hold) const;
  Hold hold() const;

  PolicyOptions options_;
  int32_t num_;  // data shards
  int32_t quorum_;
  int32_t enough_;  // data shards, for the clock
  History& history_;
  StandInTimes& times_;
  TermsOf terms_;
  Seq seq_;
  uint64_t bytes_;
  size_t max_stand_ins_;
  RankSet expected_;  // primaries
  RankSet live_;      // backups
  RankSet arrived_;   // data shards
  RankSet seen_;      // whose own contribution, or offer, is here
  std::vector<Backup> backups_;
  std::vector<StandIn> stand_ins_;
  TimePoint stood_in_at_{};  // the last of them
  std::optional<TimePoint> begun_at_;
  std::optional<TimePoint> t_q_;
  TimePoint looked_at_{};
  uint64_t version_ = 0;  // of the history, then
};

}  // namespace aikido::straggler

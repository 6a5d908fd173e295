// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Policy ActiveBackup for one shard of one operation (our design). It skips like
// skip.h, but a missing data shard may come from a backup (data_shard.h). Only the
// progress thread calls it.
//
// Note [requests to backups]
// A backup that has called *offers* its contribution, which costs no bytes. The owner
// requests the contribution as soon as the primary of that data shard has no time left.
// That is the case at the primary's deadline. It is the case at once if the primary is
// known to be behind, is usually late, or is outside of the view. The contribution that
// is complete first counts, once.
//   The owner then waits for the requested contribution, with a patience learnt from
// such contributions (stand_in_times.h). For backups that have not offered yet it waits
// as for a member, with lags and deadlines of their own: an offer is their arrival. So
// an operation with a late primary takes a deadline and a contribution longer. If the
// primary is always late, the operation takes only the contribution longer.
//   With BackupMode::kReplicate and with verify_shadows nothing is requested: the first
// bytes of a contribution are offer and request at once. With verify_shadows the owner
// also waits for the second copy of each data shard, as long as for a requested one. If
// both copies have arrived, the primary's copy counts, so that a primary in time does
// not look late.
//
// Note [when the clock starts]
// Deadlines begin when enough data shards have arrived to close the shard. Not more are
// required than there would be if each backup stood in for a primary. Otherwise a
// quorum that only backups could complete would never come, and nobody would ask them
// for it.
//
// Note [stand-ins are no arrivals]
// A stand-in is not an arrival of its primary: the history records own arrivals alone.
// The log may be full of results for a member that has not called, be it a backup or a
// covered primary. Then the shard stays open, as with skip.h.

#include <vector>

#include "straggler/data_shard.h"
#include "straggler/history.h"
#include "straggler/policy.h"
#include "straggler/stand_in_times.h"
#include "straggler/terms.h"

namespace aikido::straggler {

class ActiveBackup final : public Policy {
 public:
  // As Skip. At most `max_stand_ins` stand-ins count; `times` belong to the group.
  // Requires: options.has_stand_ins().
  ActiveBackup(const PolicyOptions& options, History& history, Deadlines& deadlines,
               StandInTimes& times, Seq seq, uint64_t bytes, const RankSet& had_time,
               size_t max_stand_ins);

  // `members`: primaries and backups. An arrival is a primary's, with its own data.
  void expect(const RankSet& members) override;
  void on_arrival(Rank rank, TimePoint now) override;
  // Contributions that were requested and have not arrived count as given up.
  void on_close(const Progress& here, uint64_t total, TimePoint now) override;
  [[nodiscard]] Decision decide(TimePoint now) const override;
  [[nodiscard]] std::optional<TimePoint> next_look() const override;
  [[nodiscard]] const RankSet& arrived() const override { return arrived_; }
  [[nodiscard]] std::optional<TimePoint> quorum_time() const override { return t_q_; }

  // `backup` has called and computed `data_shard`, which may be kAnyDataShard. A backup
  // offers again as long as it has not received a request.
  void on_offer(Rank backup, int32_t data_shard, TimePoint now);
  // The contribution of `backup` has arrived completely. Requires: it has offered.
  void on_copy(Rank backup, TimePoint now);
  // Backups to request contributions from now. Call it before decide().
  [[nodiscard]] std::vector<Rank> ask(TimePoint now);

  // Stand-ins of `arrived()`, ascending.
  const std::vector<StandIn>& stand_ins() const { return stand_ins_; }
  bool is_backup(Rank rank) const { return rank.value >= num_; }
  bool has_offered(Rank rank) const { return backup(rank).state != State::kSilent; }

 private:
  enum class State : uint8_t { kSilent, kOffered, kAsked, kHere, kCounted };
  struct Backup {
    State state = State::kSilent;
    int32_t data_shard = kAnyDataShard;  // after a request: the requested data shard
    bool fits_any = false;
    TimePoint asked_at{};
    Duration patience{0};
  };
  // Time until which the shard stays open, and the member that holds it open.
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
  int32_t enough_;  // data shards that start the clock
  History& history_;
  StandInTimes& times_;
  TermsOf terms_;
  Seq seq_;
  uint64_t bytes_;
  size_t max_stand_ins_;
  RankSet expected_;  // primaries
  RankSet live_;      // backups
  RankSet arrived_;   // data shards
  RankSet seen_;      // ranks with an own contribution, or an offer
  std::vector<Backup> backups_;
  std::vector<StandIn> stand_ins_;
  TimePoint stood_in_at_{};  // time of the last stand-in
  std::optional<TimePoint> begun_at_;
  std::optional<TimePoint> t_q_;
  struct {
    TimePoint at{};
    uint64_t version = 0;  // of the history, at that time
  } last_ask_;
};

}  // namespace aikido::straggler

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// History of the lateness of all members, as one member knows it. One object per
// process group and view; each member keeps it for the shards that it owns. Periods are
// kept per size class, because a large bucket takes longer than a small one. The
// progress thread is the only caller.
//
// The lag of a member in an operation is its arrival minus t_q, the time at which the
// K-th contribution arrived; it is 0 for the first K members. So a lag contains neither
// the computing time of all members nor a delay of all members at once. The lag of a
// member that was known to be behind and had not arrived at the close is not kept: it
// is the rest of an earlier lateness, and the owner did not wait for that member.
// Otherwise one long stall would fill the window, and a member that has recovered would
// count as always late.
//
// Memory: two windows per size class in use, and the last kNumRecent operations, for
// which late arrivals still count.

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/clock.h"
#include "base/rank_set.h"
#include "base/types.h"
#include "straggler/call_lags.h"
#include "straggler/recent_operations.h"
#include "straggler/result_log.h"
#include "straggler/silence.h"
#include "straggler/skip_record.h"

namespace aikido::straggler {

// Sorted window of the last kWindow durations. A push costs O(kWindow).
class DurationWindow {
 public:
  static constexpr size_t kWindow = 64;

  void push(Duration value);
  size_t size() const { return size_; }
  std::span<const Duration> sorted() const { return {sorted_.data(), size_}; }
  // The lower median; 0 when empty.
  Duration median() const;

 private:
  size_t size_ = 0;
  size_t oldest_ = 0;
  std::array<Duration, kWindow> in_order_of_time_{};
  std::array<Duration, kWindow> sorted_{};
};

class History {
 public:
  static constexpr size_t kNumRecent = 256;

  // `log`: the log of the group, which gets the same events. `floor` and `worth`: as in
  // Note [price of a loss] in deadline.h.
  explicit History(std::shared_ptr<ResultLog> log, Duration floor = Duration::zero(),
                   double worth = 1);

  int32_t world_size() const { return world_size_; }

  // Members that take part from now on; at first all. Missing results of other members
  // are not counted, and their skips count for the limit only.
  void set_members(const RankSet& members);

  // --- Events. Ranks must be inside the world. Repeated news changes nothing.

  // The K-th contribution to the first shard of `seq` that is owned here came at `t_q`;
  // `first`: ranks that have arrived. `bytes` is the size of the whole operation.
  void on_quorum(Seq seq, uint64_t bytes, TimePoint t_q, const RankSet& first);
  // The K-th contribution to a shard came `lag` after half of the contributions.
  void on_quorum_after_half(uint64_t bytes, Duration lag);
  // `rank` has delivered its contribution to `seq`, before the close or long after.
  void on_arrival(Seq seq, Rank rank, TimePoint now);
  // The contribution of `rank` to `seq` will not arrive within `lag` after the quorum.
  void on_too_slow(Seq seq, Rank rank, Duration lag);
  // A shard of `seq`, an operation of `bytes` bytes, was closed `after` the call of
  // `rank` without any byte of its contribution. Returns how long nothing has arrived
  // in operations of this size, up to now (silence.h).
  Duration on_silence(Seq seq, uint64_t bytes, Rank rank, Duration after);
  // Bytes of the contribution of `rank` to such an operation have arrived.
  void end_silence(uint64_t bytes, Rank rank);
  // The same as on_arrival() for a contribution that came after the close.
  void on_late_arrival(Seq seq, Rank rank, TimePoint now) {
    on_arrival(seq, rank, now);
  }
  // `rank` is known to have called `seq`, and so all operations before it. If an
  // operation was committed without `rank` and its lag is unknown, the lag is taken
  // from this notice. Other frames of a rank are no such notice.
  void on_called(Rank rank, Seq seq, TimePoint now);
  // A shard of `seq` that is owned here was closed with `mask`. Call it before the
  // commit. `t_q`: time of the quorum, or of the fewest sufficient contributions
  // (skip.h).
  void on_own_close(Seq seq, uint64_t bytes, const RankSet& mask, TimePoint t_q,
                    TimePoint now);
  // `bytes` of a result of `seq` go to members that have not called. The operation may
  // still be given up.
  void on_closed(Seq seq, uint64_t bytes) { log_->on_closed(seq, bytes); }
  // A result of `seq` with the contributions of `mask` is final and kept for members
  // that have not called: `bytes` in addition to the bytes sent at the close. Call it
  // once per shard or once per operation. A member that is missing in one shard was
  // skipped in the operation.
  void on_committed(Seq seq, const RankSet& mask, uint64_t bytes);

  // The same if the last members, from `first_backup` on, are backups. Members
  // `in_time` contributed themselves. Backups stood in for members that are `covered`.
  // Covered members were late, but the limit on skips counts lost data only. A backup
  // was late only if a data shard was lost and the backup had not called.
  void on_committed(Seq seq, const RankSet& in_time, const RankSet& covered,
                    Rank first_backup, uint64_t bytes);

  // `rank` gets a new chance: lateness in operations up to `seq` counts no more. The
  // limit on consecutive skips still counts it.
  void forgive(Rank rank, Seq seq);

  // `rank` was excluded for longer than the others keep the limit on skips for it. The
  // count for that limit begins anew.
  void forget_skips(Rank rank);

  // --- Answers.

  // Time between the quorums of consecutive operations of the size class of `bytes`:
  // the median of the window, 0 while unknown.
  Duration median_period(uint64_t bytes) const;
  // Time from half of the contributions to the quorum in such operations: the median of
  // the window, 0 while unknown.
  Duration median_after_half(uint64_t bytes) const;
  // True if `rank` was skipped in an operation before `seq` that it is not known to
  // have called, and has called nothing since. A member that calls again is on its way
  // and may arrive very soon: its missed results are in its log.
  bool is_behind(Rank rank, Seq seq) const { return member(rank).is_behind(seq); }
  // Operations in a row, in the order of their commits, in which `rank` was skipped.
  // Skips that become known after skips of a later operation are added.
  uint32_t consecutive_skips(Rank rank) const { return member(rank).consecutive(); }
  // The same for operations after the last forgive(). An operation counts only if
  // `rank` came later than a member without a bad history may come: a member that is
  // skipped for a smaller lag is healthy, only its deadline is short. An operation does
  // not count if the lag was the rest of an earlier lateness (call_lags.h).
  uint32_t late_run(Rank rank) const { return member(rank).late(); }
  // Operations in a row, up to the last, with the contribution of `rank`.
  uint32_t healthy_run(Rank rank) const { return member(rank).healthy(); }
  // The last operation whose result lacks `rank`; 0 if none.
  Seq last_skipped(Rank rank) const { return member(rank).last_skipped(); }
  // The last operation that `rank` is known to have called; 0 if none.
  Seq called(Rank rank) const { return member(rank).called(); }
  // The last operation of the size class of `bytes` that has a result with the
  // contribution of `rank`, in any shard; 0 if none.
  Seq last_included(Rank rank, uint64_t bytes) const;
  // Log of the results kept for members that have not called, for all policies.
  const ResultLog& log() const { return *log_; }
  // Changes with every event that may change an answer, including events of the log.
  uint64_t version() const { return version_ + log_->version(); }
  const RankSet& members() const { return participants_; }
  // The last operations, for the choice of a deadline.
  const RecentOperations& recent() const { return window_; }

 private:
  struct SizeClass {
    DurationWindow periods;
    DurationWindow after_half;
    // By rank; empty while there is nothing to say.
    std::vector<Silence> silences;
    std::vector<Seq> included;
    TimePoint last_quorum{};
    bool has_quorum = false;
  };
  struct Recent {
    Seq seq;  // 0: free
    size_t size_class = 0;
    TimePoint t_q{};
    RankSet known;   // members with a recorded lag, or with a lag that says nothing
    RankSet little;  // members with a lag within the grace
    bool is_committed = false;
  };
  SkipRecord& member(Rank rank);
  const SkipRecord& member(Rank rank) const;
  SizeClass& class_at(size_t index);
  Recent* find(Seq seq);
  void record(Recent& op, Rank rank, TimePoint now);
  void note_called(Rank rank, Seq seq);
  bool is_rest(Rank rank, Seq seq) const;
  void note_missing(Recent& op, const RankSet& in_time);
  void note_skipped(Rank rank, Seq seq, bool is_lost);
  void note_masks(const Recent& op, const RankSet& mask);

  std::shared_ptr<ResultLog> log_;
  uint64_t version_ = 0;
  int32_t world_size_;
  RankSet participants_;
  Duration floor_;
  double worth_;
  std::vector<SkipRecord> members_;
  std::vector<std::unique_ptr<SizeClass>> classes_;
  CallLags call_lags_;
  RecentOperations window_;
  std::vector<Recent> recent_;  // operation seq is at seq % kNumRecent
};

}  // namespace aikido::straggler

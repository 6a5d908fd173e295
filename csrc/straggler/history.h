// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// What one member knows of the lateness of all: one object per process group and view,
// kept by each member for the shards that it owns. Periods are kept per size class,
// because a large bucket takes longer than a small one. The progress thread is the only
// caller.
//
// The lag of a member in an operation is its arrival minus t_q, the time at which the
// K-th contribution was here, and 0 if it was among the first K. So it holds neither
// the time that all of them compute nor what slows all of them down at once. Where a
// member was known to be behind and not there at the close, its lag is not kept: it is
// the tail of an earlier lateness, and it was not waited for. Otherwise one long stall
// would fill the window, and a member that is back would be taken for one that is
// always late.
//
// Memory: two windows per size class in use, and the last kNumRecent operations, whose
// late arrivals still count.

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

namespace aikido::straggler {

// The last kWindow durations, in order of size at any time. A push costs O(kWindow).
class Window {
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

  // `log`: of the group; is told of the same events. `floor`: of the price of a loss
  // (deadline.h), `worth` of a contribution.
  explicit History(std::shared_ptr<ResultLog> log, Duration floor = Duration::zero(),
                   double worth = 1);

  int32_t world_size() const { return world_size_; }

  // Those that take part from now on: of the others results that they lack are not
  // counted, and skips for the limit alone. At first everybody.
  void set_members(const RankSet& members);

  // --- Events. Ranks must be inside the world; what is known already changes nothing.

  // The K-th contribution to the first shard of `seq` that is owned here came at `t_q`;
  // `first` are those that are here. `bytes` is the size of the whole operation.
  void on_quorum(Seq seq, uint64_t bytes, TimePoint t_q, const RankSet& first);
  // The K-th came so long after half of the contributions to a shard were here.
  void on_quorum_after_half(uint64_t bytes, Duration lag);
  // `rank` has delivered its contribution to `seq`: before the close or long after.
  void on_arrival(Seq seq, Rank rank, TimePoint now);
  // The contribution of `rank` to `seq` will not be here `lag` after the quorum.
  void on_too_slow(Seq seq, Rank rank, Duration lag);
  // The same as on_arrival() for a contribution that came after the close.
  void on_late_arrival(Seq seq, Rank rank, TimePoint now) {
    on_arrival(seq, rank, now);
  }
  // `rank` is known to have called `seq`, and so all before it. Of operations that were
  // committed without it, its lag is taken from this notice if it is not known yet. To
  // be heard from without having called is something else.
  void on_called(Rank rank, Seq seq, TimePoint now);
  // A shard of `seq` that is owned here was closed with `mask`; told before the commit.
  // `t_q`: of the quorum, or of the fewest contributions that were enough (skip.h).
  void on_own_close(Seq seq, uint64_t bytes, const RankSet& mask, TimePoint t_q,
                    TimePoint now);
  // `bytes` of a result of `seq` go to those that have not called. It may be given up.
  void on_closed(Seq seq, uint64_t bytes) { log_->on_closed(seq, bytes); }
  // A result of `seq` with the contributions of `mask` is final and kept for those that
  // have not called: `bytes` of it besides what went to them at the close. Once per
  // shard or once per operation; a member that is missing in one shard was skipped in
  // the operation.
  void on_committed(Seq seq, const RankSet& mask, uint64_t bytes);

  // The same where the last members, from `first_backup` on, are backups. `in_time`
  // contributed themselves. A backup stood in for those that are `covered`: they were
  // late, but what the limit on skips counts are data that were lost. A backup was late
  // only if a data shard was lost, and it had not called.
  void on_committed(Seq seq, const RankSet& in_time, const RankSet& covered,
                    Rank first_backup, uint64_t bytes);

  // It gets a new chance: that it is late in operations up to `seq` is no news.
  // The limit on consecutive skips counts them all the same.
  void forgive(Rank rank, Seq seq);

  // It was out for longer than the others keep the limit on skips for it: that begins
  // anew.
  void forget_skips(Rank rank);

  // --- Answers.

  // Time between the quorums of consecutive operations of the class: the median of the
  // window, 0 while unknown.
  Duration median_period(uint64_t bytes) const;
  // For how long after half of the contributions the quorum was missing in such
  // operations: the median of the window, 0 while unknown.
  Duration median_after_half(uint64_t bytes) const;
  // Skipped in an operation before `seq` that it is not known to have called yet, and
  // has called nothing since. One that calls again is on its way, and may be here in no
  // time: what it has missed is in its log.
  bool is_behind(Rank rank, Seq seq) const;
  // Operations in a row, by the order of their commits, in which it was skipped. Skips
  // that become known after those of a later operation are added.
  uint32_t consecutive_skips(Rank rank) const;
  // The same, but of operations after those that it was forgiven, and in a row are only
  // those in which it came later than one may of whom nothing bad is known: one that is
  // skipped for less is well but for its deadline. Nor do those count in which it was
  // late by what was left of an earlier lateness (call_lags.h).
  uint32_t late_run(Rank rank) const;
  // Operations in a row, up to the last, that it was in.
  uint32_t healthy_run(Rank rank) const;
  // The highest operation in whose result it was not; 0 if none.
  Seq last_skipped(Rank rank) const;
  // The highest operation that it is known to have called; 0 if none.
  Seq called(Rank rank) const;
  // What is kept for those that have not called, whatever the policy.
  const ResultLog& log() const { return *log_; }
  // Another one with every event that may change an answer, of the log, too.
  uint64_t version() const { return version_ + log_->version(); }
  const RankSet& members() const { return participants_; }
  // The last operations, for the choice of a deadline.
  const RecentOperations& recent() const { return window_; }

  // recent_operations.h
  static size_t size_class(uint64_t bytes) { return straggler::size_class(bytes); }

 private:
  struct Member {
    Seq called, last_skipped, skipped_before, counted, forgiven;
    Seq called_when_skipped;
    Seq news;                            // the last that counts as late
    uint32_t consecutive = 0;            // with the operation `counted`
    uint32_t consecutive_before = 0;     // without it
    uint32_t late = 0, late_before = 0;  // the same, since it was forgiven
    uint32_t healthy = 0;                // in a row
    uint32_t num_owed = 0;  // recent operations that were committed without its lag
  };
  struct SizeClass {
    Window periods;
    Window after_half;
    TimePoint last_quorum{};
    bool has_quorum = false;
  };
  struct Recent {
    Seq seq;  // 0: free
    size_t size_class = 0;
    TimePoint t_q{};
    RankSet known;   // whose lag is recorded, or says nothing
    RankSet little;  // whose lag is within the grace
    bool is_committed = false;
  };
  Member& member(Rank rank);
  const Member& member(Rank rank) const;
  SizeClass& class_at(size_t index);
  Recent* find(Seq seq);
  void record(Recent& op, Rank rank, TimePoint now);
  void note_called(Rank rank, Seq seq);
  bool is_rest(Rank rank, Seq seq) const;
  void note_missing(Recent& op, const RankSet& in_time);
  static void note_late(Member& m, Seq seq);
  void note_skipped(Rank rank, Seq seq, bool is_lost);
  static void note_absent(Member& m, Seq seq);
  void note_included(Member& m, Seq seq);

  std::shared_ptr<ResultLog> log_;
  uint64_t version_ = 0;
  int32_t world_size_;
  RankSet participants_;
  Duration floor_;
  double worth_;
  std::vector<Member> members_;
  std::vector<std::unique_ptr<SizeClass>> classes_;
  CallLags call_lags_;
  RecentOperations window_;
  std::vector<Recent> recent_;  // operation seq is at seq % kNumRecent
};

}  // namespace aikido::straggler

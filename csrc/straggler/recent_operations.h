// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Window of the last operations as one owner saw them: how long each took until its
// quorum, how long the owner waited after it, and how late each member was. The wait
// model (wait_model.h) replays this window under other waiting rules. PURE; the
// progress thread is the only caller.
//
// Note [delay vs. late start]
// The lag of a member is its arrival after the quorum. A lag is the sum of two parts,
// the late start and the delay. A member that was late in the operation before also
// starts this one late. This late start is the rest of an earlier delay, and one wait
// for the member removes it for all later operations. The delay belongs to this
// operation itself. With WaitAll each delay costs time once, so the wait model uses
// only the delays. The late start is the time from the close of an operation to the
// later call of this operation by the member. A member that calls an operation before
// the close of the one before does not wait for results in between (several buckets of
// one step): its late start is then its lag in the operation before.

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "base/rank_set.h"
#include "base/types.h"

namespace aikido::straggler {

// Class 0 is below 4 bytes, class i holds 4^i <= bytes < 4^(i+1). Below 32.
size_t size_class(uint64_t bytes);

// One closed operation of the window.
struct PastOperation {
  Seq seq;
  uint64_t bytes = 0;
  TimePoint t_q{};          // of the quorum
  Duration to_quorum{0};    // from the close of the operation before
  Duration waited{0};       // from the quorum to the close
  int32_t num_missing = 0;  // members of the view that are not in the sum
};

// Last delays of one member in operations that it began with the others. They are fair
// samples of its delays. A skipped member computes only some of the operations, and its
// own delays decide which.
class FairDelays {
 public:
  static constexpr size_t kMost = 8;
  void push(Duration delay) { delays_[next_++ % kMost] = delay; }
  size_t size() const { return std::min(next_, kMost); }
  // Oldest first.
  Duration operator[](size_t i) const { return delays_[(next_ - size() + i) % kMost]; }

 private:
  size_t next_ = 0;
  std::array<Duration, kMost> delays_{};
};

class RecentOperations {
 public:
  static constexpr size_t kMost = 64;
  static constexpr size_t kFew = 4;

  explicit RecentOperations(int32_t world_size);

  // --- Events, in the order of time. Operations older than the window are ignored.

  // `rank` has called `seq`.
  void on_called(Rank rank, Seq seq, TimePoint now);
  // The quorum of `seq` had arrived at `t_q`.
  void on_quorum(Seq seq, uint64_t bytes, TimePoint t_q);
  // `rank` arrived `lag` after the quorum of `seq`.
  void on_lag(Seq seq, Rank rank, Duration lag);
  // A shard of `seq` owned here was closed with `mask`, while the view was `members`.
  void on_closed(Seq seq, const RankSet& mask, const RankSet& members, TimePoint now);
  // Drops all observations of late starts: the view has changed.
  void forget_late_starts();
  // The last lags of `rank` no longer count.
  void forgive(Rank rank);

  // --- Answers.

  int32_t world_size() const { return world_size_; }
  // Empty: it was not closed here, or is older than the window.
  std::optional<PastOperation> closed(Seq seq) const;
  // The closed operations, oldest first.
  std::vector<PastOperation> all() const;
  // Delay of `rank` in `seq`; 0 if it was excluded then. Empty: the member did not
  // compute the operation, or nothing is known yet.
  std::optional<Duration> delay(Seq seq, Rank rank) const;
  // The last operation that `rank` has called; 0 if none.
  Seq called(Rank rank) const {
    return members_[static_cast<size_t>(rank.value)].called;
  }
  size_t num_closed() const { return num_closed_; }  // since the beginning
  // True if no closed operation is in the window: this member has owned nothing for a
  // while.
  bool is_empty() const { return bytes_ == 0; }
  Seq last_closed() const { return last_closed_; }
  // How much later than the members in time `rank` began `seq`; 0 for a member that was
  // in time in the operation before, and for a member that has not called it.
  Duration late_start(Rank rank, Seq seq) const;
  const FairDelays& fair_delays(Rank rank) const {
    return members_[static_cast<size_t>(rank.value)].fair;
  }
  // Mean time until the quorum of `bytes`: by bytes, over the window. 0: unknown.
  Duration period(uint64_t bytes) const;
  // Longest of the last kFew lags of `rank`.
  Duration longest_of_few(Rank rank) const;
  // Shortest of the last kFew lags of `rank`; 0 with fewer lags.
  Duration shortest_of_few(Rank rank) const;
  // True if no result in the window lacks a member of its view.
  bool is_complete() const { return num_partial_ == 0; }
  // Longest lag in the window.
  Duration longest_lag() const;
  // Operations of the size class of `bytes` that were closed, since the beginning.
  size_t num_closed(uint64_t bytes) const;

 private:
  struct Seat {        // one member in one operation
    Duration lag{-1};  // -1: unknown
    Duration late_start{0};
    bool is_pipelined = false;  // called before the close of the operation before
  };
  struct Operation {
    Seq seq;  // 0: free
    uint64_t bytes = 0;
    TimePoint t_q{}, closed_at{};
    Duration to_quorum{0};
    RankSet mask, missing;
    bool has_quorum = false, is_closed = false;
    std::vector<Seat> seats;
  };
  struct MemberLags {
    Seq called;
    Duration late_start{0};  // of the operation after `called`
    FairDelays fair;
    std::array<Duration, kFew> last_lags{};
    size_t num_lags = 0;
  };
  Operation* slot(Seq seq);
  const Operation* find(Seq seq) const;

  int32_t world_size_;
  size_t num_closed_ = 0;
  std::array<size_t, 32> num_closed_by_size_{};
  // Sums over the closed operations of the window.
  double bytes_ = 0;
  Duration to_quorums_{0};
  size_t num_partial_ = 0;
  std::array<Duration, kMost> longest_lags_{};
  Seq last_closed_;
  TimePoint last_close_{};
  std::vector<MemberLags> members_;
  std::vector<Operation> operations_;  // operation seq is at seq % kMost
};

}  // namespace aikido::straggler

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Log of results that are kept for members that have not called their operations. One
// object per process group, for all its policies: the results for a late member fill
// one memory, no matter which options their calls had. PURE: events in, answers out.
// The progress thread is the only caller.

#include <cstdint>
#include <map>
#include <vector>

#include "base/rank_set.h"
#include "base/types.h"

namespace aikido::straggler {

class ResultLog {
 public:
  // Charge of an operation besides its bytes, equal to the charge of a message in
  // engine/send_window.h.
  static constexpr uint64_t kOperationCharge = 1024;

  // `limit_bytes`: bytes of results that may be kept for one member that has not called
  // their operations. Requires: world_size >= 1.
  ResultLog(int32_t world_size, uint64_t limit_bytes);

  int32_t world_size() const { return members_.world_size(); }

  // --- Events, as in History. Repeated news changes nothing.

  // Only these members are counted. A member that joins again has its missed results.
  void set_members(const RankSet& members);
  // `rank` has called `seq`, and so all operations before it.
  void on_called(Rank rank, Seq seq);
  // `bytes` of a result of `seq` are kept for members that have not called.
  void on_closed(Seq seq, uint64_t bytes);

  // --- Answers.

  // Bytes of results of operations that `rank` is not known to have called.
  uint64_t outstanding_bytes(Rank rank) const;
  // True if `bytes` more would not fit into the part of the log for `rank`.
  bool would_overflow(Rank rank, uint64_t bytes) const;
  // The same with 1.5 times the room, and without a limit for a single result: for
  // operations that go on while a member with a full log is being excluded.
  bool would_overflow_far(Rank rank, uint64_t bytes) const;
  // The last operation with kept bytes; 0 if none.
  Seq last() const { return log_.empty() ? Seq() : log_.rbegin()->first; }
  // Changes with every event that may change an answer.
  uint64_t version() const { return version_; }

 private:
  struct Owed {
    Seq called;
    uint64_t bytes = 0;
  };
  Owed& owed(Rank rank);
  const Owed& owed(Rank rank) const;

  RankSet members_;
  uint64_t limit_bytes_;
  uint64_t version_ = 0;
  std::vector<Owed> owed_;       // by rank
  std::map<Seq, uint64_t> log_;  // bytes of results that some member has not called
};

}  // namespace aikido::straggler

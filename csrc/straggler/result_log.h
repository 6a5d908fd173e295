// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// How much of results is kept for members that have not called their operations: one
// object per process group, for all its policies. What a late member has to keep is one
// memory, whatever the options of the calls that fill it. PURE: events in, answers out.
// The progress thread is the only caller.

#include <cstdint>
#include <map>
#include <vector>

#include "base/rank_set.h"
#include "base/types.h"

namespace aikido::straggler {

class ResultLog {
 public:
  // What an operation counts for besides its bytes: as much as a message counts for
  // where it is kept (engine/send_window.h).
  static constexpr uint64_t kOperationCharge = 1024;

  // `limit_bytes`: how many bytes of results may be kept for one member that has not
  // called their operations. Requires: world_size >= 1.
  ResultLog(int32_t world_size, uint64_t limit_bytes);

  int32_t world_size() const { return members_.world_size(); }

  // --- Events, as in History. What is known already changes nothing.

  // Of the others nothing is counted. Who is in it again has what it missed.
  void set_members(const RankSet& members);
  // `rank` has called `seq`, and so all before it.
  void on_called(Rank rank, Seq seq);
  // `bytes` of a result of `seq` are kept for those that have not called.
  void on_closed(Seq seq, uint64_t bytes);

  // --- Answers.

  // Bytes of results that `rank` is not known to have called.
  uint64_t outstanding_bytes(Rank rank) const;
  // Whether `bytes` more would not fit into its part of the log.
  bool would_overflow(Rank rank, uint64_t bytes) const;
  // The same with half as much room again, and for a single result of any size: for
  // what goes on while a member whose log is full is being left out.
  bool would_overflow_far(Rank rank, uint64_t bytes) const;
  // The highest operation of which something is kept; 0 if none.
  Seq last() const { return log_.empty() ? Seq() : log_.rbegin()->first; }
  // Another one with every event that may change an answer.
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
  std::map<Seq, uint64_t> log_;  // bytes of results that somebody has not called
};

}  // namespace aikido::straggler

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Ended collectives of a group that other members may still ask about: results,
// and failures with their reasons. One thread.
//
// An ended collective is in one of these states:
//
//   kept      -- all members have acknowledged it -->     released
//   kept      -- only excluded members may need it, -->   forgotten
//                and there is no room
//
// A member that needs a forgotten result cannot rejoin with what it has; it
// copies a state. forgotten() is the highest such number.

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>

#include "base/status.h"
#include "base/types.h"
#include "collectives/skippable_operation.h"

namespace aikido::engine {

class ResultKeeper {
 public:
  // Limit of the failures that are kept for excluded members.
  static constexpr size_t kMaxFailed = 1024;

  struct Kept {
    std::shared_ptr<collectives::SkippableOperation> operation;
    uint64_t bytes;  // size in the log
  };
  using Results = std::map<uint64_t, Kept>;  // by number of the collective

  // Keeps the result of an ended operation. Repeated calls change nothing.
  void keep(const std::shared_ptr<collectives::SkippableOperation>& operation,
            uint64_t bytes);
  void note_failed(uint64_t seq, const Status& why) { failed_.emplace(seq, why); }
  // Releases everything: the results belong to an earlier membership.
  void clear();

  // Numbers up to which members have acknowledged everything: `members`, those
  // of the view; `returning`, also those that may rejoin.
  struct Acknowledged {
    uint64_t members;
    uint64_t returning;
  };
  // Releases what all have acknowledged. What only excluded members may need is
  // kept within `max_bytes` and kMaxFailed.
  void release(const Acknowledged& upto, uint64_t max_bytes);

  const Results& results() const { return results_; }
  const std::map<Seq, Status>& failures() const { return failed_; }
  bool is_empty() const { return results_.empty() && failed_.empty(); }
  uint64_t bytes() const { return bytes_; }  // of all results
  uint64_t bytes_after(uint64_t seq) const;  // of results with higher numbers
  // `upto`, or a lower number such that nothing up to it is kept.
  uint64_t released_up_to(uint64_t upto) const;
  uint64_t forgotten() const { return forgotten_; }

 private:
  Results results_;
  uint64_t bytes_ = 0;
  std::map<Seq, Status> failed_;
  uint64_t forgotten_ = 0;
};

}  // namespace aikido::engine

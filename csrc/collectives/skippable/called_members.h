// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Members that have called one skippable allreduce, as far as known here: whether a
// quorum has called, and which callers were late. Progress thread.

#include <optional>

#include "base/clock.h"
#include "base/rank_set.h"
#include "collectives/skippable/partial_shards.h"
#include "collectives/skippable/skippable_part.h"

namespace aikido::collectives {

class CalledMembers final : public SkippablePart {
 public:
  // The shards must outlive this object.
  CalledMembers(SkippableOperation& operation, const PartialShards& shards)
      : SkippablePart(operation), shards_(shards), late_(host_->size()) {}

  // True if `rank` is known to have called the operation.
  bool has_called(Rank rank) const {
    return rank == host_->self() ? is_started() : host_->called_by(rank) >= seq_.value;
  }
  // `rank` has called the operation or a later one. Returns true if a quorum has called
  // only now.
  bool on_called(Rank rank, TimePoint now);
  // Enough members for a quorum have called.
  bool has_quorum() const { return has_quorum_; }
  // True if `rank` called long after enough others, or is not known to have called.
  bool is_late_caller(Rank rank) const {
    return late_.contains(rank) || host_->called_by(rank) < seq_.value;
  }

 private:
  int32_t num_called() const;

  const PartialShards& shards_;
  RankSet late_;
  std::optional<TimePoint> fewest_at_;  // time when enough members had called
  bool has_quorum_ = false;
};

}  // namespace aikido::collectives

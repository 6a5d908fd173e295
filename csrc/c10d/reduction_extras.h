// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Options of a reduction beyond those of c10d.

#include <memory>
#include <optional>

#include "base/types.h"
#include "collectives/operation.h"
#include "straggler/data_shard.h"
#include "straggler/policy.h"

namespace aikido::adapter {

struct ReductionExtras {
  straggler::PolicyOptions policy;
  std::optional<Priority> priority;  // empty: the group's
  int32_t data_shard = straggler::kAnyDataShard;
  std::optional<double> weight{};  // of this rank's contribution; empty: not weighted
  // The slot gets the result of an all_reduce, if it may (LocalCall::result_slot). Then
  // the tensor does not change. Otherwise the slot stays empty.
  std::shared_ptr<collectives::ResultSlot> result_slot{};
};

}  // namespace aikido::adapter

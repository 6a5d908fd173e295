// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Names of items, which are the units of work that move between ranks. An item is one
// micro-batch of one optimizer step. Plain values: any thread.

#include <compare>
#include <cstdint>

#include "base/types.h"

namespace aikido::reassign {

// Item `index` of the list with which `owner` began `step`. An item that is re-issued
// gets a new name in its new step.
struct ItemId {
  uint64_t step = 0;
  Rank owner = kNoRank;
  uint32_t index = 0;
  friend auto operator<=>(const ItemId&, const ItemId&) = default;
};

// Properties of an item. A grant carries them to the helper.
struct ItemSpec {
  uint64_t label = 0;  // number of the micro-batch in the caller's data; not used here
  double cost = 1;     // predicted, in any unit that all ranks share; above 0
  friend bool operator==(const ItemSpec&, const ItemSpec&) = default;
};

// Consecutive items first, ..., first + count - 1 of one list.
struct ItemRange {
  uint32_t first = 0;
  uint32_t count = 0;
  uint32_t end() const { return first + count; }
  friend bool operator==(const ItemRange&, const ItemRange&) = default;
};

}  // namespace aikido::reassign

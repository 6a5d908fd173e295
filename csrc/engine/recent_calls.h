// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Last calls of a group that ended well. Late frames can still be compared with them.
// One thread.

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "collectives/call.h"

namespace aikido::engine {

class RecentCalls {
 public:
  static constexpr size_t kMost = 64;

  // Requires: `seq` was not noted before.
  void note(uint64_t seq, const collectives::Call& call) {
    if (calls_.size() < kMost) {
      calls_.emplace_back(seq, call);
    } else {
      calls_[oldest_] = {seq, call};
      oldest_ = (oldest_ + 1) % kMost;
    }
  }
  // Null: the call is not one of the last kMost.
  const collectives::Call* find(uint64_t seq) const {
    for (const auto& [past, call] : calls_)
      if (past == seq) return &call;
    return nullptr;
  }

 private:
  std::vector<std::pair<uint64_t, collectives::Call>> calls_;
  size_t oldest_ = 0;  // used if there are kMost calls
};

}  // namespace aikido::engine

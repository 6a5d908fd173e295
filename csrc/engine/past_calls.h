// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// The last calls of a group that ended well: what a frame that comes late can still be
// compared with. One thread.

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "collectives/call.h"

namespace aikido::engine {

class PastCalls {
 public:
  static constexpr size_t kMost = 64;

  // Requires: a number that was not noted before.
  void note(uint64_t seq, const collectives::Call& call) {
    if (calls_.size() < kMost) {
      calls_.emplace_back(seq, call);
    } else {
      calls_[oldest_] = {seq, call};
      oldest_ = (oldest_ + 1) % kMost;
    }
  }
  // Null: it is not one of the last kMost.
  const collectives::Call* find(uint64_t seq) const {
    for (const auto& [past, call] : calls_)
      if (past == seq) return &call;
    return nullptr;
  }

 private:
  std::vector<std::pair<uint64_t, collectives::Call>> calls_;
  size_t oldest_ = 0;  // once there are kMost
};

}  // namespace aikido::engine

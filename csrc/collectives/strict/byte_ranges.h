// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Set of the received bytes of an object that arrives in pieces, in any order, each
// byte once. Pure; one thread.

#include <cstddef>
#include <iterator>
#include <map>

namespace aikido::collectives {

class ByteRanges {
 public:
  // True if some bytes from `begin` to `end` have arrived.
  bool has_any(size_t begin, size_t end) const {
    if (begin == end) return false;
    const auto next = ranges_.lower_bound(begin);
    if (next != ranges_.end() && next->first < end) return true;
    return next != ranges_.begin() && std::prev(next)->second > begin;
  }

  // Adds these bytes. Returns false, without a change, if some of them had arrived.
  [[nodiscard]] bool add(size_t begin, size_t end) {
    if (has_any(begin, end)) return false;
    if (begin == end) return true;
    auto next = ranges_.lower_bound(begin);
    if (next != ranges_.begin()) {
      const auto before = std::prev(next);
      if (before->second == begin) {
        begin = before->first;
        ranges_.erase(before);
      }
    }
    if (next != ranges_.end() && next->first == end) {
      end = next->second;
      ranges_.erase(next);
    }
    ranges_.emplace(begin, end);
    return true;
  }

  // Position of the first missing byte.
  size_t first_missing() const {
    const auto first = ranges_.begin();
    return first == ranges_.end() || first->first > 0 ? 0 : first->second;
  }

 private:
  std::map<size_t, size_t> ranges_;  // end by begin; no two ranges touch
};

}  // namespace aikido::collectives

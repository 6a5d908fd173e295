// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Which bytes of something are here that comes in pieces, in any order, each once.
// Pure; one thread.

#include <cstddef>
#include <iterator>
#include <map>

namespace aikido::collectives {

class ByteRanges {
 public:
  // Some of the bytes from `begin` to `end` are here.
  bool has_any(size_t begin, size_t end) const {
    if (begin == end) return false;
    const auto next = ranges_.lower_bound(begin);
    if (next != ranges_.end() && next->first < end) return true;
    return next != ranges_.begin() && std::prev(next)->second > begin;
  }

  // All of them are here. False: some of them were before, and nothing has changed.
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

  // The first byte that is not here.
  size_t first_missing() const {
    const auto first = ranges_.begin();
    return first == ranges_.end() || first->first > 0 ? 0 : first->second;
  }

 private:
  std::map<size_t, size_t> ranges_;  // end by begin; none touches another
};

}  // namespace aikido::collectives

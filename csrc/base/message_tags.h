// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Tags of the point-to-point messages that C++ sends. aikido_torch/_tags.py is the
// registry of all ranges of tags; tests/python/test_tags.py compares this file with it.
// Plain values: any thread.

#include <cstdint>

namespace aikido {

// Consecutive tags of one owner, the same on all groups.
struct TagRange {
  int32_t first = 0;
  int32_t size = 0;

  // The tag with this index. After the last tag the first one is used again.
  constexpr int32_t cyclic(uint64_t index) const {
    return first + static_cast<int32_t>(index % static_cast<uint64_t>(size));
  }
};

inline constexpr TagRange kRosterTags{-0x7fff'ffff - 1, 1};
inline constexpr TagRange kIpcTags{-0x7fff'ffff, 1 << 30};
inline constexpr TagRange kReassignTags{0x6100'0000, 1 << 16};

}  // namespace aikido

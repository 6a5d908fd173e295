// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Inputs that overlap outputs. Outputs are written while inputs may still be read, so
// such an input is copied first. Pure; any thread.

#include <functional>
#include <limits>
#include <vector>

#include "c10d/common/call_of.h"

namespace aikido::adapter {

inline constexpr size_t kNoOutput = std::numeric_limits<size_t>::max();

inline bool overlap(const std::byte* a, size_t num_a, const std::byte* b,
                    size_t num_b) {
  const std::less<const std::byte*> is_before;
  return num_a > 0 && num_b > 0 && is_before(a, b + num_b) && is_before(b, a + num_a);
}
// Requires: contiguous.
inline bool overlap(const at::Tensor& a, const at::Tensor& b) {
  return overlap(bytes_of(a), a.nbytes(), bytes_of(b), b.nbytes());
}

// Returns `input`, or a copy if it overlaps `outputs`. It may be output `own` itself,
// because the block of a rank for itself is read before it is written.
inline at::Tensor apart(const at::Tensor& input, const std::vector<at::Tensor>& outputs,
                        size_t own) {
  for (size_t i = 0; i < outputs.size(); ++i) {
    const bool is_in_place = i == own && bytes_of(input) == bytes_of(outputs[i]) &&
                             input.nbytes() == outputs[i].nbytes();
    if (!is_in_place && overlap(input, outputs[i])) return input.clone();
  }
  return input;
}

}  // namespace aikido::adapter

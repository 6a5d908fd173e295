// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Conversion of numbers of stages, ranks and micro-batches to vector indices.

#include <cstddef>

namespace aikido::pipeline {

// Requires: number >= 0.
constexpr size_t index(int number) {
  return static_cast<size_t>(number);
}

}  // namespace aikido::pipeline

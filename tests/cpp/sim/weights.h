// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Weights of the members in the weighted operations of a script, and the means that the
// checks expect. They follow from the seed of the inputs. Pure.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "harness/reduce_data.h"
#include "sim/script.h"

namespace aikido::sim {

class Weights {
 public:
  // `script` must outlive this object.
  explicit Weights(const Script& script);

  // Weight of one contribution. Requires: the operation is weighted.
  double of(int32_t rank, uint64_t op) const {
    return by_op_[op - 1][static_cast<size_t>(rank)];
  }
  // Sum of the weights in the mask, added up in rank order. nullopt: the operation has
  // no weights.
  std::optional<double> total(uint64_t op, uint64_t mask) const;
  // "" if a result of `mask` may name this sum of weights; else what is wrong.
  std::string difference(uint64_t op, uint64_t mask, std::optional<double> told) const;
  // Weighted mean of the inputs of the members in `mask`, in rank order. `out` has its
  // size. It obeys Note [fold of weighted contributions] and shares only the kernels
  // with the code that is checked.
  void fold(uint64_t op, uint64_t mask, const std::vector<const void*>& inputs,
            testing::Bytes& out) const;

 private:
  const Script& script_;
  std::vector<std::vector<double>> by_op_;  // empty: no weights
};

}  // namespace aikido::sim

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Weights of the contributions to a mean: their bytes in a frame, and the fold of
// weighted contributions. A weight is finite and not negative. Pure; any thread.
//
// Note [fold of weighted contributions]
// The result is the sum of weight x value divided by the sum of the weights. A
// contribution with weight 0 does not count at all: not even its infinities and NaNs
// are in the result. If all weights are 0, the result is 0. If the remaining weights
// are equal, the fold is that of a mean without weights, so the result has the same
// bits. Otherwise each value is multiplied by weight / sum of the weights, which is
// computed in double precision. So no large weight makes a product overflow.

#include <array>
#include <cstddef>
#include <span>
#include <vector>

#include "base/status.h"
#include "base/types.h"
#include "collectives/call.h"
#include "kernels/reduce.h"

namespace aikido::collectives {

// kInvalidArgument with a sentence if `weight` is negative, infinite, NaN, or larger
// than kMaxWeight.
Status check_weight(double weight);
// Bound of a weight: the sum of the weights of all members is finite.
inline constexpr double kMaxWeight = 1e300;

inline constexpr size_t kEncodedWeightBytes = 8;
std::array<std::byte, kEncodedWeightBytes> encode_weight(double weight);
// kProtocol with a sentence if the bytes are no weight, or no sum of weights.
Result<double> decode_weight(std::span<const std::byte> bytes);

// Contributions to one fold of a weighted call, in the order of their ranks.
class WeightedInputs {
 public:
  void add(const void* data, double weight) {
    sources_.push_back(data);
    weights_.push_back(weight);
  }
  // Folds `count` elements of all inputs into `out`, which may be one of them. See Note
  // [fold of weighted contributions]. `mean`: the function of kAvg for this dtype,
  // which must be floating point or complex.
  void fold(void* out, kernels::ReduceFn mean, DType dtype, size_t count);

 private:
  void drop_weightless();

  std::vector<const void*> sources_;
  std::vector<double> weights_;
};

}  // namespace aikido::collectives

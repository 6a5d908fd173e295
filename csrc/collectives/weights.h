// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Weights of the contributions to a mean: their bytes in a frame, and the fold of
// weighted contributions. A weight is finite and not negative. Pure. A WeightedMean may
// be used by several threads at once.
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
#include "kernels/reduce.h"

namespace aikido::collectives {

// kInvalidArgument with a sentence if `weight` is negative, infinite, NaN, or larger
// than kMaxWeight.
Status check_weight(double weight);
// Bound of a weight: the sum of the weights of all members is finite.
inline constexpr double kMaxWeight = 1e300;

inline constexpr size_t kEncodedWeightBytes = 8;
// Bytes of a weight, or of a sum of weights.
std::array<std::byte, kEncodedWeightBytes> encode_weight(double weight);
// kProtocol with a sentence if the bytes are no weight of a contribution.
Result<double> decode_weight(std::span<const std::byte> bytes);
// kProtocol with a sentence if the bytes are no sum of the weights of a result.
Result<double> decode_total_weight(std::span<const std::byte> bytes);

// Mean of contributions whose weights are known. The factors are computed once, and
// serve all pieces of a shard.
class WeightedMean {
 public:
  // `weights`: of the contributions, in the order of their fold.
  explicit WeightedMean(const std::vector<double>& weights);

  // Sum of the weights, added up in their order.
  [[nodiscard]] double total() const { return total_; }

  // Folds `count` elements of the inputs, one for each weight, into `out`, which may be
  // one of them. See Note [fold of weighted contributions]. `inputs` is overwritten.
  // `mean`: the function of kAvg for this dtype, which must be floating point or
  // complex.
  void fold(void* out, const void** inputs, kernels::ReduceFn mean, DType dtype,
            size_t count) const;

 private:
  double total_ = 0;
  std::vector<size_t> positions_;  // of the weights that are not 0
  std::vector<double> factors_;    // of these inputs; empty: their weights are equal
};

}  // namespace aikido::collectives

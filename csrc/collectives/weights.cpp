// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "collectives/weights.h"

#include <cstring>
#include <limits>

#include "kernels/weighted_sum.h"

namespace aikido::collectives {

Status check_weight(double weight) {
  if (weight >= 0 && weight <= kMaxWeight) return Status::ok();
  return {
      Code::kInvalidArgument,
      concat("weight is ", weight, "; pass a finite number from 0 to ", kMaxWeight,
             ", such as the number of samples of this rank, and 0 on a rank without "
             "data")};
}

std::array<std::byte, kEncodedWeightBytes> encode_weight(double weight) {
  std::array<std::byte, kEncodedWeightBytes> bytes;
  std::memcpy(bytes.data(), &weight, sizeof weight);
  return bytes;
}

namespace {

Result<double> decode(std::span<const std::byte> bytes, double most) {
  double weight = -1;
  if (bytes.size() != kEncodedWeightBytes) {
    return Status(Code::kProtocol, concat("a weighted contribution or result with ",
                                          bytes.size(), " bytes of weight"));
  }
  std::memcpy(&weight, bytes.data(), sizeof weight);
  if (!(weight >= 0 && weight <= most))
    return Status(Code::kProtocol,
                  concat("a contribution or result of weight ", weight));
  return weight;
}

}  // namespace

Result<double> decode_weight(std::span<const std::byte> bytes) {
  return decode(bytes, kMaxWeight);
}

Result<double> decode_total_weight(std::span<const std::byte> bytes) {
  return decode(bytes, std::numeric_limits<double>::max());
}

WeightedMean::WeightedMean(const std::vector<double>& weights) {
  double first = 0;
  bool is_equal = true;
  for (size_t i = 0; i < weights.size(); ++i) {
    total_ += weights[i];
    if (weights[i] == 0) continue;
    if (positions_.empty()) first = weights[i];
    is_equal = is_equal && weights[i] == first;
    positions_.push_back(i);
  }
  if (is_equal) return;
  for (const size_t i : positions_) factors_.push_back(weights[i] / total_);
}

void WeightedMean::fold(void* out, const void** inputs, kernels::ReduceFn mean,
                        DType dtype, size_t count) const {
  const size_t n = positions_.size();
  if (n == 0) {
    if (count > 0) std::memset(out, 0, count * size_of(dtype));
    return;
  }
  for (size_t i = 0; i < n; ++i) inputs[i] = inputs[positions_[i]];
  if (factors_.empty())
    return mean(out, inputs, n, count, 1.0 / static_cast<double>(n));
  kernels::find_weighted_sum(dtype)(out, inputs, factors_.data(), n, count);
}

}  // namespace aikido::collectives

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "collectives/weights.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

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

Result<double> decode_weight(std::span<const std::byte> bytes) {
  double weight = -1;
  if (bytes.size() != kEncodedWeightBytes) {
    return Status(Code::kProtocol, concat("a weighted contribution or result with ",
                                          bytes.size(), " bytes of weight"));
  }
  std::memcpy(&weight, bytes.data(), sizeof weight);
  if (!(weight >= 0) || std::isinf(weight))
    return Status(Code::kProtocol,
                  concat("a contribution or result of weight ", weight));
  return weight;
}

void WeightedInputs::drop_weightless() {
  size_t kept = 0;
  for (size_t i = 0; i < sources_.size(); ++i) {
    if (weights_[i] == 0) continue;
    sources_[kept] = sources_[i];
    weights_[kept++] = weights_[i];
  }
  sources_.resize(kept);
  weights_.resize(kept);
}

void WeightedInputs::fold(void* out, kernels::ReduceFn mean, DType dtype,
                          size_t count) {
  drop_weightless();
  if (sources_.empty()) {
    if (count > 0) std::memset(out, 0, count * size_of(dtype));
    return;
  }
  const double first = weights_.front();
  if (std::all_of(weights_.begin(), weights_.end(),
                  [&](double weight) { return weight == first; })) {
    return mean(out, sources_.data(), sources_.size(), count,
                1.0 / static_cast<double>(sources_.size()));
  }
  const double total = std::accumulate(weights_.begin(), weights_.end(), 0.0);
  for (double& weight : weights_) weight /= total;
  kernels::find_weighted_sum(dtype)(out, sources_.data(), weights_.data(),
                                    sources_.size(), count);
}

}  // namespace aikido::collectives

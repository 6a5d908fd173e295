// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "sim/weights.h"

#include <algorithm>
#include <array>
#include <random>

#include "kernels/reduce.h"
#include "kernels/weighted_sum.h"

namespace aikido::sim {

namespace {

constexpr std::array<double, 8> kWeights = {0, 1, 0.5, 3, 32, 1e-3, 1e6, 1e12};

// In one operation of twelve all weights are 0, in two they are equal.
std::vector<double> make_weights(size_t members, uint64_t seed) {
  std::mt19937_64 random(seed);
  const uint64_t kind = random() % 12;
  std::vector<double> weights(members, kind == 0 ? 0.0 : 7.0);
  if (kind > 2)
    for (double& weight : weights) weight = kWeights[random() % kWeights.size()];
  return weights;
}

}  // namespace

Weights::Weights(const Script& script) : script_(script) {
  const auto n = static_cast<size_t>(script.members);
  for (size_t i = 0; i < script.ops.size(); ++i) {
    auto& weights = by_op_.emplace_back();
    if (script.ops[i].is_weighted) weights = make_weights(n, script.seed * 1024 + i);
  }
}

std::optional<double> Weights::total(uint64_t op, uint64_t mask) const {
  const std::vector<double>& weights = by_op_[op - 1];
  if (weights.empty()) return std::nullopt;
  double total = 0;
  for (size_t r = 0; r < weights.size(); ++r)
    if ((mask >> r & 1) != 0) total += weights[r];
  return total;
}

std::string Weights::difference(uint64_t op, uint64_t mask,
                                std::optional<double> told) const {
  const auto text = [](std::optional<double> weight) {
    return weight ? concat("the weight ", *weight) : std::string("no weight");
  };
  const std::optional<double> expected = total(op, mask);
  return told == expected ? "" : concat(text(told), " and not ", text(expected));
}

void Weights::fold(uint64_t op, uint64_t mask, const std::vector<const void*>& inputs,
                   testing::Bytes& out) const {
  const collectives::Call& call = script_.ops[op - 1];
  const size_t count = out.size() / size_of(call.dtype);
  const double total = *this->total(op, mask);
  std::vector<const void*> sources;
  std::vector<double> weights, factors;
  size_t i = 0;
  for (int32_t r = 0; r < script_.members; ++r) {
    if ((mask >> r & 1) == 0) continue;
    const void* const input = inputs[i++];
    if (of(r, op) == 0) continue;
    sources.push_back(input);
    weights.push_back(of(r, op));
    factors.push_back(of(r, op) / total);
  }
  const auto num_equal =
      std::count(weights.begin(), weights.end(), weights.empty() ? 0 : weights.front());
  if (sources.empty()) {
    std::fill(out.begin(), out.end(), 0);
  } else if (num_equal == std::ssize(weights)) {
    kernels::find_reduce(call.op, call.dtype)(out.data(), sources.data(),
                                              sources.size(), count,
                                              1.0 / static_cast<double>(num_equal));
  } else {
    kernels::find_weighted_sum(call.dtype)(out.data(), sources.data(), factors.data(),
                                           sources.size(), count);
  }
}

}  // namespace aikido::sim

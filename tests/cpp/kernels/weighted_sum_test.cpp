// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "kernels/weighted_sum.h"

#include <cstring>
#include <vector>

#include "harness/catch.h"
#include "harness/reduce_data.h"
#include "kernels/half.h"
#include "kernels/reduce.h"

namespace aikido::kernels {
namespace {

template <class T>
std::vector<T> weighted(DType dtype, std::vector<std::vector<T>> inputs,
                        const std::vector<double>& factors) {
  std::vector<const void*> sources;
  for (const auto& input : inputs) sources.push_back(input.data());
  std::vector<T> out(inputs.front().size());
  const size_t lanes = is_complex(dtype) ? 2 : 1;
  find_weighted_sum(dtype)(out.data(), sources.data(), factors.data(), sources.size(),
                           out.size() / lanes);
  return out;
}

TEST_CASE("each source is multiplied by its own factor") {
  CHECK(weighted<float>(DType::kFloat32, {{1, 2, 3}, {10, 20, 30}}, {0.5, 0.25}) ==
        std::vector<float>{3, 6, 9});
  CHECK(weighted<double>(DType::kFloat64, {{1, 2}, {10, 20}, {4, 4}}, {2, 0.5, 1}) ==
        std::vector<double>{11, 18});
  CHECK(weighted<float>(DType::kComplex64, {{1, 2}, {10, 20}}, {2, 1}) ==
        std::vector<float>{12, 24});
  CHECK(weighted<double>(DType::kComplex128, {{1, 2}, {10, 20}}, {2, 1}) ==
        std::vector<double>{12, 24});
}

TEST_CASE("half precision accumulates in fp32 and is rounded once") {
  const auto bf16 = [](float value) { return float_to_bf16(value); };
  const auto fp16 = [](float value) { return float_to_fp16(value); };
  CHECK(weighted<uint16_t>(DType::kBFloat16, {{bf16(256)}, {bf16(2)}, {bf16(2)}},
                           {1, 0.5, 0.5}) == std::vector<uint16_t>{bf16(258)});
  // The products exceed fp16; their sum does not.
  CHECK(weighted<uint16_t>(DType::kFloat16, {{fp16(60000)}, {fp16(-60000)}},
                           {2, 1.5}) == std::vector<uint16_t>{fp16(30000)});
}

TEST_CASE("the output may be any of the sources") {
  for (size_t place = 0; place < 2; ++place) {
    std::vector<std::vector<float>> inputs(2, std::vector<float>(3000));
    for (size_t i = 0; i < 3000; ++i) {
      inputs[0][i] = static_cast<float>(i);
      inputs[1][i] = 1;
    }
    const void* sources[] = {inputs[0].data(), inputs[1].data()};
    const double factors[] = {2, 3};
    find_weighted_sum(DType::kFloat32)(inputs[place].data(), sources, factors, 2, 3000);
    for (size_t i = 0; i < 3000; ++i)
      REQUIRE(inputs[place][i] == 2 * static_cast<float>(i) + 3);
  }
}

TEST_CASE("the sum is defined for all dtypes with a floating point mean") {
  for (int i = 0; i < kNumDTypes; ++i) {
    const auto dtype = static_cast<DType>(i);
    CHECK((find_weighted_sum(dtype) != nullptr) == is_floating(dtype));
  }
}

TEST_CASE("each instruction set gives the bits of a plain loop") {
  for (const auto set : available_sets()) {
    for (int i = 0; i < kNumDTypes; ++i) {
      const auto dtype = static_cast<DType>(i);
      const auto sum = find_weighted_sum(dtype, set);
      const auto plain = find_weighted_sum(dtype, InstructionSet::kPortable);
      REQUIRE((sum != nullptr) == is_floating(dtype));
      if (sum == nullptr) continue;
      for (const size_t count : {0u, 1u, 3u, 17u, 64u, 1000u}) {
        for (const size_t num : {1u, 2u, 5u, 9u}) {
          const size_t bytes = count * size_of(dtype);
          std::vector<testing::Bytes> inputs;
          std::vector<const void*> sources;
          std::vector<double> factors;
          for (uint64_t k = 0; k < num; ++k) {
            // From an odd byte on.
            inputs.push_back(testing::random_elements(dtype, count + 1, k));
            inputs.back().insert(inputs.back().begin(), 0);
            factors.push_back(0.7 / (static_cast<double>(k) + 1.3));
          }
          for (const auto& input : inputs) sources.push_back(input.data() + 1);
          testing::Bytes one(bytes), other(bytes);
          sum(one.data(), sources.data(), factors.data(), num, count);
          plain(other.data(), sources.data(), factors.data(), num, count);
          CHECK(testing::first_difference(dtype, one.data(), other.data(), count) ==
                -1);
          if (dtype != DType::kFloat32) continue;
          for (size_t e = 0; e < count; ++e) {
            volatile float expected = 0;  // no instruction that adds a product
            for (size_t k = 0; k < num; ++k) {
              float value = 0;
              std::memcpy(&value, inputs[k].data() + 1 + 4 * e, 4);
              volatile float term = static_cast<float>(factors[k]) * value;
              expected = k == 0 ? term : expected + term;
            }
            float found = 0;
            std::memcpy(&found, &one[4 * e], 4);
            CHECK(found == expected);
          }
        }
      }
    }
  }
}

TEST_CASE("equal factors that are powers of two give the bits of a scaled sum") {
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16, DType::kFloat32,
                            DType::kFloat64, DType::kComplex64, DType::kComplex128}) {
    const size_t count = 1500;
    std::vector<testing::Bytes> inputs;
    std::vector<const void*> sources;
    for (uint64_t k = 0; k < 4; ++k)
      inputs.push_back(testing::random_elements(dtype, count, k));
    for (const auto& input : inputs) sources.push_back(input.data());
    testing::Bytes one(count * size_of(dtype)), other(one.size());
    const double factors[] = {0.25, 0.25, 0.25, 0.25};
    find_weighted_sum(dtype)(one.data(), sources.data(), factors, 4, count);
    find_reduce(ReduceOp::kAvg, dtype)(other.data(), sources.data(), 4, count, 0.25);
    CHECK(testing::first_difference(dtype, one.data(), other.data(), count) == -1);
  }
}

}  // namespace
}  // namespace aikido::kernels

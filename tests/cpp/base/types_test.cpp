// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "base/types.h"

#include <set>
#include <string>
#include <type_traits>
#include <unordered_set>

#include "harness/catch.h"

namespace aikido {
namespace {

static_assert(!std::is_convertible_v<int, Rank>);
static_assert(!std::is_convertible_v<Rank, Seq>);

TEST_CASE("strong integers compare and hash by their value", "[base]") {
  CHECK(Rank(1) < Rank(2));
  CHECK(Seq(4) == Seq(4));
  const std::unordered_set<Rank> ranks{Rank(1), Rank(1), Rank(2)};
  CHECK(ranks.size() == 2);
  CHECK(to_string(Rank(5)) == "rank 5");
}

TEST_CASE("every dtype has a size and a name of its own", "[base]") {
  std::set<std::string> names;
  for (int i = 0; i < kNumDTypes; ++i) {
    const auto dtype = static_cast<DType>(i);
    CHECK(size_of(dtype) > 0);
    names.insert(name_of(dtype));
  }
  CHECK(names.size() == kNumDTypes);
  CHECK(size_of(DType::kBFloat16) == 2);
  CHECK(size_of(DType::kComplex128) == 16);
  CHECK(size_of(static_cast<DType>(kNumDTypes)) == 0);
  CHECK(std::string(name_of(static_cast<DType>(kNumDTypes))) == "unknown dtype");
}

TEST_CASE("a mean is defined for floating and complex dtypes only", "[base]") {
  CHECK(is_floating(DType::kBFloat16));
  CHECK(is_floating(DType::kComplex64));
  CHECK_FALSE(is_floating(DType::kInt64));
  CHECK_FALSE(is_floating(DType::kBool));
}

TEST_CASE("every reduction has a name of its own", "[base]") {
  std::set<std::string> names;
  for (int i = 0; i < kNumReduceOps; ++i) {
    names.insert(name_of(static_cast<ReduceOp>(i)));
  }
  CHECK(names.size() == kNumReduceOps);
  CHECK(std::string(name_of(ReduceOp::kBxor)) == "bxor");
}

}  // namespace
}  // namespace aikido

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "base/rank_set.h"

#include "harness/catch.h"

namespace aikido {
namespace {

TEST_CASE("a rank set holds each rank once, in worlds of any size") {
  for (int32_t n : {1, 2, 63, 64, 65, 128, 200}) {
    RankSet set(n);
    std::vector<int32_t> in, missing;
    for (int32_t r = n - 1; r >= 0; r -= 3) {
      CHECK(set.insert(Rank(r)));
      CHECK_FALSE(set.insert(Rank(r)));
    }
    set.for_each([&](Rank r) { in.push_back(r.value); });
    set.for_each_missing([&](Rank r) { missing.push_back(r.value); });
    CHECK(in.size() == static_cast<size_t>(set.count()));
    CHECK(in.size() + missing.size() == static_cast<size_t>(n));
    CHECK(std::is_sorted(in.begin(), in.end()));
    CHECK(std::is_sorted(missing.begin(), missing.end()));
    for (int32_t r : in) CHECK(set.contains(Rank(r)));
    for (int32_t r : missing) CHECK(set.insert(Rank(r)));
    CHECK(set.is_full());
    set.for_each_missing([&](Rank) { FAIL("a full set misses nobody"); });
    CHECK(set.erase(Rank(0)));
    CHECK_FALSE(set.erase(Rank(0)));
    CHECK(set.count() == n - 1);
  }
}

TEST_CASE("the bits of a rank set are its ranks, with rank 0 lowest") {
  RankSet set(70);
  set.insert(Rank(0));
  set.insert(Rank(5));
  set.insert(Rank(69));
  CHECK(set.words() == std::vector<uint64_t>{0x21, 0x20});
  RankSet other(70);
  CHECK(set != other);
}

TEST_CASE("a set covers its subsets") {
  for (const int32_t n : {3, 64, 70}) {
    RankSet some(n);
    const RankSet full = RankSet::full(n);
    CHECK(full.is_full());
    CHECK(full.covers(some));
    CHECK(some.covers(RankSet(n)));
    some.insert(Rank(n - 1));
    CHECK(full.covers(some));
    CHECK(some.covers(some));
    CHECK_FALSE(some.covers(full));
    CHECK_FALSE(RankSet(n).covers(some));
    RankSet other(n);
    other.insert(Rank(0));
    CHECK_FALSE(some.covers(other));
    CHECK_FALSE(other.covers(some));
  }
}

TEST_CASE("a rank outside the world is a defect of the caller") {
  RankSet set(4);
  CHECK_THROWS_AS(set.insert(Rank(4)), InternalError);
  CHECK_THROWS_AS(set.contains(kNoRank), InternalError);
}

}  // namespace
}  // namespace aikido

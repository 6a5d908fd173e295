// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "straggler/nearly_here.h"

#include "harness/catch.h"

using namespace aikido;
using straggler::NearlyHere;

namespace {

TimePoint at(int64_t ms) {
  return TimePoint(std::chrono::milliseconds(ms));
}

RankSet only(int32_t rank) {
  RankSet set(3);
  set.insert(Rank(rank));
  return set;
}

}  // namespace

TEST_CASE("a wait becomes longer for a contribution that is expected soon") {
  NearlyHere nearly(3);
  CHECK(nearly.extended(at(10), RankSet(3)) == at(10));
  nearly.expect(Rank(1), at(14), at(10), 1.5, at(20));
  CHECK(nearly.extended(at(10), RankSet(3)) == at(16));
  CHECK(nearly.extended(at(18), RankSet(3)) == at(18));
  CHECK(nearly.extended(at(10), only(1)) == at(10));
  CHECK(nearly.extended(at(10), only(2)) == at(16));
}

TEST_CASE(
    "no wait is longer than the longest, and a later contribution is not waited for") {
  NearlyHere nearly(3);
  nearly.expect(Rank(2), at(21), at(10), 1.5, at(20));
  CHECK(nearly.extended(at(10), RankSet(3)) == at(10));
  nearly.expect(Rank(2), at(19), at(10), 1.5, at(20));
  CHECK(nearly.extended(at(10), RankSet(3)) == at(20));
}

TEST_CASE("there is one look in each wait") {
  NearlyHere nearly(3);
  CHECK_FALSE(nearly.has_looked());
  nearly.note_look();
  CHECK(nearly.has_looked());
  nearly.begin_wait();
  CHECK_FALSE(nearly.has_looked());
}

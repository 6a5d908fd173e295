// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "straggler/result_log.h"

#include <initializer_list>

#include "harness/catch.h"

namespace aikido::straggler {
namespace {

constexpr Rank kLate{3};

// All members but the late one have called `seq`, and `bytes` of its result are kept.
void close(ResultLog& log, uint64_t seq, uint64_t bytes,
           std::initializer_list<int32_t> called = {0, 1, 2}) {
  for (const int32_t r : called) log.on_called(Rank(r), Seq(seq));
  log.on_closed(Seq(seq), bytes);
}

RankSet without_late() {
  RankSet set = RankSet::full(4);
  set.erase(kLate);
  return set;
}

TEST_CASE("bytes of results not called yet are counted against the log's limit") {
  ResultLog log(4, 100);
  CHECK(log.world_size() == 4);
  CHECK_FALSE(log.would_overflow(kLate, 100));
  CHECK(log.would_overflow(kLate, 101));
  close(log, 1, 30);
  close(log, 1, 10);  // its second shard
  close(log, 2, 20, {0, 1});
  CHECK(log.outstanding_bytes(kLate) == 60);
  CHECK(log.outstanding_bytes(Rank(2)) == 20);
  CHECK(log.outstanding_bytes(Rank(0)) == 0);
  CHECK_FALSE(log.would_overflow(kLate, 40));
  CHECK(log.would_overflow(kLate, 41));
  CHECK(log.would_overflow(kLate, UINT64_MAX));
  log.on_called(kLate, Seq(1));
  CHECK(log.outstanding_bytes(kLate) == 20);
  close(log, 1, 5);  // called already
  CHECK(log.outstanding_bytes(kLate) == 20);
  log.on_called(kLate, Seq(9));
  CHECK(log.outstanding_bytes(kLate) == 0);
  close(log, 10, 150);  // decided by another owner
  CHECK(log.last() == Seq(10));
  CHECK(log.would_overflow(kLate, 0));
  CHECK(log.would_overflow(kLate, 1));
  log.on_called(kLate, Seq(10));
  close(log, 3, 500);
  CHECK(log.outstanding_bytes(kLate) == 0);
  CHECK(log.outstanding_bytes(Rank(2)) == 0);
}

TEST_CASE(
    "a log may grow by half for results under way, and has room for any single "
    "result") {
  ResultLog log(4, 100);
  CHECK_FALSE(log.would_overflow_far(kLate, 1000));
  close(log, 1, 90);
  CHECK_FALSE(log.would_overflow_far(kLate, 60));
  CHECK(log.would_overflow_far(kLate, 61));
  close(log, 2, 90);
  CHECK(log.would_overflow_far(kLate, 0));
  CHECK_FALSE(log.would_overflow_far(Rank(0), 1000));
}

TEST_CASE(
    "nothing is kept for an excluded member, and its log is empty when it rejoins") {
  ResultLog log(4, 100);
  close(log, 1, 30);
  log.set_members(without_late());
  close(log, 2, 30);
  close(log, 3, 30, {0, 1});
  CHECK(log.outstanding_bytes(kLate) == 30);
  CHECK(log.outstanding_bytes(Rank(2)) == 30);
  log.set_members(RankSet::full(4));
  log.set_members(RankSet::full(4));
  CHECK(log.outstanding_bytes(kLate) == 0);
  CHECK(log.outstanding_bytes(Rank(2)) == 30);
  log.on_called(kLate, Seq(3));  // known already
  CHECK(log.outstanding_bytes(kLate) == 0);
  close(log, 4, 20);
  CHECK(log.outstanding_bytes(kLate) == 20);
}

TEST_CASE("a log without members, and a rank outside of it, are defects") {
  CHECK_THROWS_AS(ResultLog(0, 100), InternalError);
  CHECK_THROWS_AS(ResultLog(4, 100).on_called(Rank(4), Seq(1)), InternalError);
  CHECK_THROWS_AS(ResultLog(4, 100).outstanding_bytes(Rank(-1)), InternalError);
}

}  // namespace
}  // namespace aikido::straggler

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "straggler/call_times.h"

#include "harness/catch.h"
#include "straggler/play.h"

namespace aikido::straggler {
namespace {

using testing::kBytes;
using testing::log_of;
using testing::ms;
using testing::skip_options;

TimePoint at(double time_ms) {
  return TimePoint(ms(time_ms));
}

// The first three of four members have called at 0, 1 and 2 ms.
CallTimes three_called() {
  CallTimes calls(4);
  for (int32_t r = 0; r < 3; ++r) calls.on_called(Rank(r), at(r));
  return calls;
}

TEST_CASE("a member that calls later than its deadline after the others has no time") {
  struct Row {
    double called_ms;  // call of member 3; negative: it has not called
    double t_q_ms, left_ms;
  };
  const Row rows[] = {
      {3, 12, 20},   // in time
      {22, 12, 20},  // just in time
      {23, 32, 0},   // its call is late
      {-1, 12, 10},  // it may still call until 22 ms
      {-1, 22, 0},   // it has not called in time
      {-1, 30, 0},   // its time ended long ago
      {42, 82, 20},  // late, but links are slow: half of 80 ms
      {43, 82, 0},   // later than that, too
      {-1, 82, 0},   // the same for a member that has not called
      {-1, 2, 20},   // all at once
  };
  for (const Row& row : rows) {
    INFO("called at " << row.called_ms << ", quorum at " << row.t_q_ms);
    CallTimes calls = three_called();
    if (row.called_ms >= 0) calls.on_called(Rank(3), at(row.called_ms));
    CHECK(calls.time_left(Rank(3), ms(20), 3, at(row.t_q_ms)) == ms(row.left_ms));
    CHECK(calls.time_left(Rank(3), ms(0), 3, at(row.t_q_ms)) == ms(0));
    // Member 2 has called in time, so its lateness has another reason.
    CHECK(calls.time_left(Rank(2), ms(20), 3, at(row.t_q_ms)) == ms(20));
  }
}

TEST_CASE("the first notice of a call counts") {
  CallTimes calls = three_called();
  calls.on_called(Rank(3), at(5));
  calls.on_called(Rank(3), at(500));
  CHECK(calls.time_left(Rank(3), ms(20), 3, at(100)) == ms(20));
}

TEST_CASE("a shard closes with its quorum if a member has not even called") {
  GroupPolicy group(skip_options(), log_of(4, UINT64_MAX));
  TimePoint start{};
  for (uint64_t seq = 1; seq <= 20; ++seq) {
    start += ms(400);
    auto policy = group.start(Seq(seq), kBytes);
    for (int32_t r = 0; r < 4; ++r) policy->on_called(Rank(r), start);
    for (int32_t r = 0; r < 4; ++r) policy->on_arrival(Rank(r), start + ms(122));
    policy->on_close({}, kBytes, start + ms(122));
    group.history().on_committed(Seq(seq), policy->arrived(), kBytes);
  }
  auto policy = group.start(Seq(21), kBytes);
  for (int32_t r = 0; r < 3; ++r) policy->on_called(Rank(r), start + ms(400));
  for (int32_t r = 0; r < 3; ++r) policy->on_arrival(Rank(r), start + ms(522));
  const Decision silent = policy->decide(start + ms(522));
  CHECK(silent.closes());
  CHECK(silent.reason == Reason::kDeadline);
  CHECK(silent.deadline == ms(0));
  CHECK(silent.rank == Rank(3));
  policy->on_called(Rank(3), start + ms(522));  // long after the others
  CHECK(policy->decide(start + ms(522)).closes());
  policy = group.start(Seq(22), kBytes);
  for (int32_t r = 0; r < 4; ++r) policy->on_called(Rank(r), start + ms(800));
  for (int32_t r = 0; r < 3; ++r) policy->on_arrival(Rank(r), start + ms(922));
  CHECK_FALSE(policy->decide(start + ms(923)).closes());
}

}  // namespace
}  // namespace aikido::straggler

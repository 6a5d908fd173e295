// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "engine/heartbeats.h"

#include <set>

#include "harness/catch.h"

using namespace aikido;
using namespace aikido::engine;
using std::chrono::milliseconds;
using std::chrono::seconds;

namespace {

constexpr HeartbeatOptions kOptions{seconds(1), seconds(30)};
constexpr TimePoint kBegin{seconds(1000)};

Heartbeats group_of(int32_t size, const HeartbeatOptions& options = kOptions) {
  Heartbeats beats(options, size);
  for (int32_t r = 1; r < size; ++r) beats.add(Rank(r), kBegin);
  return beats;
}

// Looks at every interval from `from` to `until`. Each time the members in `heard` have
// been heard.
void live(Heartbeats& beats, Duration from, Duration until,
          const std::set<int32_t>& heard = {}) {
  for (Duration t = from; t <= until; t += seconds(1)) {
    for (const int32_t r : heard) beats.on_heard(Rank(r));
    beats.on_time(kBegin + t);
  }
}

}  // namespace

TEST_CASE("a heartbeat goes to each member that was sent nothing for an interval") {
  struct Row {
    Duration now;
    std::vector<int32_t> told;    // sent a frame before the look
    std::vector<int32_t> beaten;  // get a heartbeat at the look
  };
  auto beats = group_of(4);
  for (const Row& row : std::vector<Row>{{milliseconds(999), {}, {}},
                                         {milliseconds(1000), {}, {1, 2, 3}},
                                         {milliseconds(1500), {}, {}},
                                         {milliseconds(2000), {2}, {1, 3}},
                                         {milliseconds(3100), {1, 3}, {2}},
                                         {milliseconds(4000), {}, {}},  // 900 ms later
                                         {milliseconds(4100), {1, 2, 3}, {}}}) {
    for (const int32_t r : row.told) beats.on_sent(Rank(r));
    std::vector<int32_t> beaten;
    for (const Rank r : beats.on_time(kBegin + row.now)) beaten.push_back(r.value);
    INFO("at " << to_ms(row.now) << " ms");
    CHECK(beaten == row.beaten);
  }
  CHECK(*beats.next_look() == kBegin + milliseconds(5100));
}

TEST_CASE("a member that is not heard for longer than the time-out is silent") {
  auto beats = group_of(4);
  live(beats, seconds(1), seconds(30), {1, 3});
  CHECK(beats.silent().empty());
  CHECK_FALSE(beats.is_anybody_silent());
  live(beats, seconds(31), seconds(31), {1, 3});
  CHECK(beats.silent() == std::vector<Rank>{Rank(2)});
  CHECK(beats.is_anybody_silent());
  CHECK(beats.silence(Rank(2)) == seconds(31));
  CHECK_FALSE(beats.silence(Rank(1)).has_value());
  live(beats, seconds(32), seconds(40), {1, 3});
  CHECK(beats.silence(Rank(2)) == seconds(40));
}

TEST_CASE("a member that is heard again is not silent any more") {
  auto beats = group_of(2);
  live(beats, seconds(1), seconds(50));
  CHECK(beats.silence(Rank(1)).has_value());
  beats.on_heard(Rank(1));
  CHECK_FALSE(beats.silence(Rank(1)).has_value());
  live(beats, seconds(51), seconds(80));
  CHECK_FALSE(beats.silence(Rank(1)).has_value());
  live(beats, seconds(81), seconds(81));
  CHECK(beats.silence(Rank(1)).has_value());
}

TEST_CASE("a member that was stopped itself takes no other member for silent") {
  auto beats = group_of(3);
  live(beats, seconds(1), seconds(20), {1});  // rank 2 is silent for 20 s
  // Stopped for an hour. The first look comes before any member was heard.
  beats.on_time(kBegin + std::chrono::hours(1));
  CHECK(beats.silent().empty());
  CHECK_FALSE(beats.is_anybody_silent());
  live(beats, std::chrono::hours(1) + seconds(1), std::chrono::hours(1) + seconds(9),
       {1});
  CHECK(beats.silent().empty());
  CHECK_FALSE(beats.is_anybody_silent());
  live(beats, std::chrono::hours(1) + seconds(10), std::chrono::hours(1) + seconds(10),
       {1});
  CHECK(beats.silent() == std::vector<Rank>{Rank(2)});
  CHECK(beats.is_anybody_silent());
  CHECK(beats.silence(Rank(2)) == seconds(31));
}

TEST_CASE("members that are not connected get no heartbeats") {
  Heartbeats beats(kOptions, 3);
  CHECK_FALSE(beats.next_look().has_value());
  beats.add(Rank(2), kBegin + seconds(5));
  CHECK(*beats.next_look() == kBegin + seconds(6));
  CHECK(beats.on_time(kBegin + seconds(6)) == std::vector<Rank>{Rank(2)});
  beats.remove(Rank(2));
  beats.remove(Rank(2));
  CHECK_FALSE(beats.next_look().has_value());
  CHECK(beats.on_time(kBegin + seconds(100)).empty());
  CHECK(beats.silent().empty());
  CHECK_FALSE(beats.is_anybody_silent());
  // A member that connects late has its whole time.
  beats.add(Rank(1), kBegin + seconds(200));
  live(beats, seconds(201), seconds(230));
  CHECK(beats.silent().empty());
  CHECK_FALSE(beats.is_anybody_silent());
}

TEST_CASE("heartbeats and silence can be switched off") {
  auto off = group_of(2, {});
  CHECK_FALSE(off.next_look().has_value());
  live(off, seconds(1), seconds(100));
  CHECK(off.silent().empty());
  CHECK_FALSE(off.is_anybody_silent());
  auto patient = group_of(2, {seconds(1), {}});
  CHECK(patient.on_time(kBegin + seconds(1)).size() == 1);
  live(patient, seconds(2), seconds(1000));
  CHECK(patient.silent().empty());
}

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "straggler/uplink_estimate.h"

#include <cmath>

#include "harness/catch.h"

namespace aikido::straggler {
namespace {

using std::chrono::milliseconds;

TimePoint at(int64_t ms) {
  return TimePoint(milliseconds(ms));
}

// Payloads of `bytes` that take `took` ms each, and come every 100 ms.
void come(UplinkEstimate& uplink, int times, uint64_t bytes, int64_t took,
          int64_t from = 0) {
  for (int i = 0; i < times; ++i) {
    uplink.on_begin(at(from + 100 * i));
    uplink.on_end(bytes, at(from + 100 * i + took));
  }
}

TEST_CASE("the time from the beginning to the end of a payload counts") {
  UplinkEstimate uplink;
  CHECK_FALSE(uplink.bytes_per_second(at(0)));
  come(uplink, 4, 64'000, 64);
  CHECK(*uplink.bytes_per_second(at(400)) == Approx(1e6));
  come(uplink, 9, UplinkEstimate::kLeastBytes - 1, 90, 400);
  CHECK(*uplink.bytes_per_second(at(1300)) == Approx(1e6));
}

TEST_CASE("a link that has changed shows after a few payloads") {
  UplinkEstimate uplink;
  come(uplink, 100, 64'000, 2);
  come(uplink, 4, 64'000, 80, 10'000);
  CHECK(*uplink.bytes_per_second(at(10'400)) == Approx(8e5));
  come(uplink, 5, 64'000, 2, 10'400);
  CHECK(*uplink.bytes_per_second(at(10'900)) == Approx(3.2e7));
}

TEST_CASE("payloads that had gathered do not show a fast uplink") {
  UplinkEstimate uplink;
  come(uplink, 3, 64'000, 0);
  CHECK_FALSE(uplink.bytes_per_second(at(300)));
  come(uplink, 1, 64'000, 64, 300);
  CHECK(std::isinf(*uplink.bytes_per_second(at(400))));
  come(uplink, 2, 64'000, 64, 400);
  CHECK(*uplink.bytes_per_second(at(600)) == Approx(1e6));
}

TEST_CASE("bytes that come at once have an infinite rate, and old bytes show nothing") {
  UplinkEstimate uplink;
  come(uplink, 4, 8 << 10, 0);
  CHECK(std::isinf(*uplink.bytes_per_second(at(301))));
  CHECK(uplink.bytes_per_second(at(2300)));
  CHECK_FALSE(uplink.bytes_per_second(at(2301)));
}

// Calls of a megabyte, ten per second.
Demand ten_a_second() {
  Demand demand;
  for (int64_t i = 0; i < 20; ++i) demand.on_call(1'000'000, at(100 * i));
  return demand;
}

TEST_CASE("an owner sends two n-th of all but its own bytes") {
  CHECK(ten_a_second().bytes_per_second(4) == Approx(1.5e7));
  CHECK(ten_a_second().bytes_per_second(2) == Approx(1e7));
  CHECK(Demand().bytes_per_second(4) == 0);
  Demand at_once;
  for (size_t i = 0; i < Demand::kCalls; ++i) at_once.on_call(1, at(0));
  CHECK(at_once.bytes_per_second(4) == 0);
  Demand burst;
  for (int64_t i = 0; i < 16; ++i) burst.on_call(1'000'000, at(6 * i));
  CHECK(burst.bytes_per_second(4) == 0);
}

TEST_CASE("a member suits if its uplink carries an owner's bytes") {
  const Demand demand = ten_a_second();
  CHECK(demand.judge(5.1e6, 4) == Suits::kYes);
  CHECK(demand.judge(4.9e6, 4) == Suits::kNo);
  CHECK(demand.judge(INFINITY, 4) == Suits::kYes);
  CHECK(demand.judge(std::nullopt, 4) == Suits::kUnknown);
  CHECK(Demand().judge(1.0, 4) == Suits::kUnknown);
}

}  // namespace
}  // namespace aikido::straggler

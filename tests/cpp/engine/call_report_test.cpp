// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors

#include "engine/call_report.h"

#include "harness/catch.h"

using namespace aikido;
using engine::CallReport;
using std::chrono::milliseconds;

namespace {
constexpr TimePoint kStart{std::chrono::seconds(100)};
constexpr Duration kWait = CallReport::kLongestWait;
}  // namespace

TEST_CASE("a report without a wait is due at once, and once") {
  uint64_t called = 0;
  CallReport report(&called);
  CHECK_FALSE(report.is_due(kStart, Duration::zero()));
  CHECK_FALSE(report.next_look());
  called = 1;
  CHECK(report.is_missing());
  CHECK(report.is_due(kStart, Duration::zero()));
  report.on_told();
  CHECK_FALSE(report.is_missing());
  CHECK_FALSE(report.is_due(kStart + kWait, Duration::zero()));
}

TEST_CASE("a report waits from the first call that no frame has reported") {
  uint64_t called = 1;
  CallReport report(&called);
  CHECK_FALSE(report.is_due(kStart, kWait));
  CHECK(report.next_look() == kStart + kWait);
  called = 2;
  CHECK_FALSE(report.is_due(kStart + milliseconds(15), kWait));
  CHECK(report.next_look() == kStart + kWait);
  CHECK(report.age(kStart + milliseconds(19)) == milliseconds(4));
  CHECK(report.is_due(kStart + kWait, kWait));
  CHECK(report.age(kStart + kWait) == kWait - milliseconds(15));
  CHECK(report.age(kStart + 9 * kWait) == kWait);
}

TEST_CASE(
    "a frame that carries the number saves the report, and later calls wait anew") {
  uint64_t called = 1;
  CallReport report(&called);
  CHECK_FALSE(report.is_due(kStart, kWait));
  report.on_told();
  CHECK_FALSE(report.next_look());
  CHECK_FALSE(report.is_due(kStart + 2 * kWait, kWait));
  CHECK(report.age(kStart + 2 * kWait) == Duration::zero());
  called = 2;
  CHECK_FALSE(report.is_due(kStart + 3 * kWait, kWait));
  CHECK(report.next_look() == kStart + 4 * kWait);
  // The call of a member that owns a shard of a later operation cannot wait.
  CHECK(report.is_due(kStart + 3 * kWait, Duration::zero()));
}

TEST_CASE("the age of a call is not told before is_due has seen the call") {
  uint64_t called = 1;
  CallReport report(&called);
  CHECK(report.age(kStart) == Duration::zero());
  CHECK_FALSE(report.is_due(kStart, kWait));
  called = 2;
  CHECK(report.age(kStart + milliseconds(9)) == Duration::zero());
}

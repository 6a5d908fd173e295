// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "trace/stop_watch.h"

#include "harness/catch.h"

using namespace aikido;
using std::chrono::milliseconds;
using trace::StopWatch;

TEST_CASE("a very late check means a stop, and a slightly late check does not") {
  StopWatch watch;
  TimePoint now(milliseconds(5));
  CHECK_FALSE(watch.look(now));
  for (const int late : {0, 5, 40, 79}) {
    now += StopWatch::kInterval + milliseconds(late);
    CHECK_FALSE(watch.look(now));
  }
  const TimePoint before = now;
  now += milliseconds(1000);
  const auto span = watch.look(now);
  REQUIRE(span);
  CHECK(span->kind == trace::SpanKind::kStop);
  CHECK(span->begin_ns == trace::to_ns(before));
  CHECK(span->end_ns == trace::to_ns(now));
  CHECK_FALSE(watch.look(now + StopWatch::kInterval));
}

TEST_CASE("an intended pause of the checks is no stop") {
  StopWatch watch;
  watch.look(TimePoint(milliseconds(5)));
  watch.restart();
  CHECK_FALSE(watch.look(TimePoint(milliseconds(90'000))));
}

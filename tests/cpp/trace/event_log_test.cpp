// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "trace/event_log.h"

#include <string>

#include "harness/catch.h"

using namespace aikido;
using trace::Event;
using trace::EventKind;
using trace::EventLog;

namespace {

Event lost(int32_t member) {
  Event event;
  event.kind = EventKind::kLost;
  event.member = Rank(member);
  return event;
}

}  // namespace

TEST_CASE("each reader of the log gets the events that are new to it, in order") {
  EventLog log;
  CHECK(log.after(0).empty());
  log.add(lost(3));
  log.add(lost(1));
  const auto all = log.after(0);
  REQUIRE(all.size() == 2);
  CHECK(all[0].number == 1);
  CHECK(all[0].member == Rank(3));
  CHECK(all[1].number == 2);
  CHECK(all[1].member == Rank(1));
  CHECK(log.after(2).empty());
  log.add(lost(2));
  CHECK(log.after(0).size() == 3);
  const auto news = log.after(2);
  REQUIRE(news.size() == 1);
  CHECK(news[0].member == Rank(2));
  CHECK(log.after(100).empty());
}

TEST_CASE("a log without a reader keeps the latest events, with a gap in the numbers") {
  EventLog log;
  for (size_t i = 0; i < EventLog::kRoom + 5; ++i)
    log.add(lost(static_cast<int32_t>(i)));
  const auto events = log.after(0);
  REQUIRE(events.size() == EventLog::kRoom);
  CHECK(events.front().number == 6);
  CHECK(events.front().member == Rank(5));
  CHECK(events.back().number == EventLog::kRoom + 5);
}

TEST_CASE("each kind of event has a name of its own") {
  CHECK(trace::name_of(EventKind::kLate) == std::string("late"));
  CHECK(trace::name_of(EventKind::kSilent) == std::string("silent"));
  CHECK(trace::name_of(EventKind::kShardsMoved) == std::string("shards_moved"));
  CHECK(trace::name_of(EventKind::kShardsBack) == std::string("shards_back"));
  CHECK(trace::name_of(EventKind::kStoodIn) == std::string("stood_in"));
  CHECK(trace::name_of(EventKind::kOut) == std::string("out"));
  CHECK(trace::name_of(EventKind::kBack) == std::string("back"));
  CHECK(trace::name_of(EventKind::kTookOver) == std::string("took_over"));
  CHECK(trace::name_of(EventKind::kLost) == std::string("lost"));
}

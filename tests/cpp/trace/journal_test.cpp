// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "trace/journal.h"

#include <string>

#include "harness/catch.h"

using namespace aikido;
using trace::Event;
using trace::EventKind;
using trace::Journal;

namespace {

Event lost(int32_t member) {
  Event event;
  event.kind = EventKind::kLost;
  event.member = Rank(member);
  return event;
}

}  // namespace

TEST_CASE("each reader of the journal gets the events that are new to it, in order") {
  Journal journal;
  CHECK(journal.after(0).empty());
  journal.add(lost(3));
  journal.add(lost(1));
  const auto all = journal.after(0);
  REQUIRE(all.size() == 2);
  CHECK(all[0].number == 1);
  CHECK(all[0].member == Rank(3));
  CHECK(all[1].number == 2);
  CHECK(all[1].member == Rank(1));
  CHECK(journal.after(2).empty());
  journal.add(lost(2));
  CHECK(journal.after(0).size() == 3);
  const auto news = journal.after(2);
  REQUIRE(news.size() == 1);
  CHECK(news[0].member == Rank(2));
  CHECK(journal.after(100).empty());
}

TEST_CASE(
    "a journal without a reader keeps the latest events, with a gap in the numbers") {
  Journal journal;
  for (size_t i = 0; i < Journal::kRoom + 5; ++i)
    journal.add(lost(static_cast<int32_t>(i)));
  const auto events = journal.after(0);
  REQUIRE(events.size() == Journal::kRoom);
  CHECK(events.front().number == 6);
  CHECK(events.front().member == Rank(5));
  CHECK(events.back().number == Journal::kRoom + 5);
}

TEST_CASE("each kind of event has a name of its own") {
  CHECK(trace::name_of(EventKind::kLate) == std::string("late"));
  CHECK(trace::name_of(EventKind::kSilent) == std::string("silent"));
  CHECK(trace::name_of(EventKind::kShardsMoved) == std::string("shards_moved"));
  CHECK(trace::name_of(EventKind::kShardsBack) == std::string("shards_back"));
  CHECK(trace::name_of(EventKind::kStoodIn) == std::string("stood_in"));
  CHECK(trace::name_of(EventKind::kOut) == std::string("out"));
  CHECK(trace::name_of(EventKind::kBack) == std::string("back"));
  CHECK(trace::name_of(EventKind::kLost) == std::string("lost"));
}

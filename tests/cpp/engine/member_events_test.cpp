// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "engine/member_events.h"

#include <chrono>
#include <string>
#include <vector>

#include "harness/catch.h"
#include "harness/cluster.h"

using namespace aikido;
using namespace aikido::testing;
using engine::MemberEvents;
using std::chrono::minutes;
using std::chrono::seconds;
using Lines = std::vector<std::string>;

namespace {

// "kind member" or "kind member by rank rank ..."
Lines lines_of(const std::vector<trace::Event>& events) {
  Lines lines;
  for (const trace::Event& event : events) {
    std::string line = concat(trace::name_of(event.kind), " ", event.member.value);
    for (const int32_t r : event.by) line += concat(r == event.by[0] ? " by " : " ", r);
    lines.push_back(line);
  }
  return lines;
}

struct Told {
  trace::EventLog log;
  MemberEvents member_events{&log, "test", Rank(0), 4};
  uint64_t seen = 0;

  Lines take() {
    const auto events = log.after(seen);
    if (!events.empty()) seen = events.back().number;
    return lines_of(events);
  }
};

// View 2, with these members and owners.
membership::View view_of(const std::vector<int32_t>& members,
                         const std::vector<int32_t>& owners) {
  membership::View view = membership::View::first_of(4);
  view.number = 2;
  view.members = RankSet(4);
  for (const int32_t r : members) view.members.insert(Rank(r));
  view.cuts.push_back({Seq(10), {}, RankSet(4)});
  for (const int32_t r : owners) view.cuts.back().owners.emplace_back(r);
  return view;
}

}  // namespace

TEST_CASE("an event names its group, the member and the reason") {
  Told t;
  t.member_events.on_lost(Rank(3), {Code::kPeerLost, "rank 3 is lost", Rank(3)});
  const auto events = t.log.after(0);
  REQUIRE(events.size() == 1);
  CHECK(events[0].group == "test");
  CHECK(events[0].self == Rank(0));
  CHECK(events[0].member == Rank(3));
  CHECK(events[0].text == "rank 3 is lost");
  CHECK(t.take() == Lines{"lost 3"});
}

TEST_CASE("a late member is reported once in each view") {
  Told t;
  for (int i = 0; i < 1000; ++i) t.member_events.on_late(Rank(2));
  t.member_events.on_late(Rank(1));
  CHECK(t.take() == Lines{"late 2", "late 1"});
  t.member_events.on_view(view_of({0, 1, 2, 3}, {0, 1, 2, 3}));
  CHECK(t.take().empty());
  t.member_events.on_late(Rank(2));
  CHECK(t.take() == Lines{"late 2"});
}

TEST_CASE("a silent member is reported once until it is heard again") {
  Told t;
  t.member_events.on_silent({});
  CHECK(t.take().empty());
  for (int i = 0; i < 1000; ++i) t.member_events.on_silent({Rank(1)});
  CHECK(t.take() == Lines{"silent 1"});
  t.member_events.on_silent({Rank(1), Rank(3)});
  CHECK(t.take() == Lines{"silent 3"});
  t.member_events.on_silent({Rank(3)});
  t.member_events.on_silent({Rank(1), Rank(3)});
  CHECK(t.take() == Lines{"silent 1"});
  t.member_events.on_silent({});
  t.member_events.on_silent({Rank(3)});
  CHECK(t.take() == Lines{"silent 3"});
}

TEST_CASE("a view reports moved shards, and excluded and rejoined members") {
  Told t;
  t.member_events.on_view(view_of({0, 1, 2, 3}, {0, 2, 3, 0}));
  CHECK(t.take() == Lines{"shards_moved 1 by 0 2 3"});
  t.member_events.on_view(view_of({0, 2, 3}, {0, 2, 3}));
  CHECK(t.take() == Lines{"out 1"});
  t.member_events.on_view(view_of({0, 1, 2}, {0, 2}));
  CHECK(t.take() == Lines{"back 1", "shards_moved 3 by 0 2", "out 3"});
  t.member_events.on_view(view_of({0, 1, 2}, {0, 2}));
  CHECK(t.take().empty());
  t.member_events.on_view(view_of({0, 1, 2, 3}, {0, 1, 2}));
  CHECK(t.take() == Lines{"shards_back 1", "back 3"});
}

TEST_CASE("a view without a member that has said goodbye is not reported") {
  Told t;
  t.member_events.on_left(Rank(3));
  t.member_events.on_view(view_of({0, 1, 2}, {0, 1, 2}));
  CHECK(t.take().empty());
  t.member_events.on_left(Rank(1));
  t.member_events.on_view(view_of({0}, {0}));
  CHECK(t.take() == Lines{"shards_moved 2 by 0", "out 2"});
}

TEST_CASE("stand-ins for a member are reported when they begin, and not each time") {
  Told t;
  TimePoint now = TimePoint() + minutes(1);
  for (int i = 0; i < 100; ++i, now += seconds(1))
    t.member_events.on_stand_in({Rank(1), Rank(i % 2 == 0 ? 3 : 2)}, now);
  CHECK(t.take() == Lines{"stood_in 1 by 3"});
  t.member_events.on_stand_in({Rank(0), Rank(3)}, now);
  CHECK(t.take() == Lines{"stood_in 0 by 3"});
  now += MemberEvents::kCalm;
  t.member_events.on_stand_in({Rank(1), Rank(2)}, now);
  CHECK(t.take() == Lines{"stood_in 1 by 2"});
}

TEST_CASE("without a log nothing is reported") {
  MemberEvents member_events(nullptr, "test", Rank(0), 4);
  member_events.on_late(Rank(1));
  member_events.on_silent({Rank(1)});
  member_events.on_lost(Rank(1), {Code::kPeerLost, "lost", Rank(1)});
  member_events.on_view(view_of({0}, {0}));
  member_events.on_stand_in({Rank(1), Rank(2)}, TimePoint());
}

namespace {

// A cluster whose members each have a log.
struct Journals {
  Cluster cluster;

  explicit Journals(ClusterOptions options) : cluster(with_recorders(options)) {}

  static ClusterOptions with_recorders(ClusterOptions& options) {
    options.recorder = [](int32_t, const Clock& clock) {
      return std::make_unique<trace::Recorder>(16, &clock);
    };
    return options;
  }
  Lines of(int32_t rank) {
    return lines_of(cluster.recorder(rank).event_log().after(0));
  }
};

constexpr engine::HeartbeatOptions kHeartbeat{seconds(1), seconds(30)};

}  // namespace

TEST_CASE(
    "a member that stands still is silent, and a member that has left is not lost") {
  Journals j({.size = 3, .heartbeat = kHeartbeat});
  j.cluster.run_for(minutes(10));
  CHECK(j.of(0).empty());
  j.cluster.stop(2, minutes(5));
  j.cluster.run_for(minutes(4));
  CHECK(j.of(0) == Lines{"silent 2"});
  CHECK(j.of(1) == Lines{"silent 2"});
  j.cluster.run_for(minutes(2));
  CHECK(j.of(2).empty());
  j.cluster.group(2).leave();
  j.cluster.run_for(seconds(5));
  j.cluster.kill(1);
  j.cluster.run_for(seconds(5));
  CHECK(j.of(0) == Lines{"silent 2", "lost 1"});
  CHECK(j.of(1) == Lines{"silent 2", "lost 0"});
}

TEST_CASE(
    "a death is reported with its sentence, and then the new owners of the shards") {
  Journals j({.size = 4});
  j.cluster.set_all_delays(milliseconds(1));
  auto answers = call_all(j.cluster, skip_sum_call(1000), {0, 1, 2, 3});
  REQUIRE(j.cluster.run_until_done(answers, milliseconds(200)));
  answers = call_all(j.cluster, skip_sum_call(1000), {1, 2, 3});
  j.cluster.kill(0);
  REQUIRE(j.cluster.run_until_done(answers, milliseconds(1000)));
  for (const int32_t r : {1, 2, 3})
    CHECK(j.of(r) == Lines{"lost 0", "shards_moved 0 by 1 2 3", "out 0"});
  const auto told = j.cluster.recorder(1).event_log().after(0);
  CHECK(told[0].text.starts_with("rank 0 is lost to group \"test\""));
}

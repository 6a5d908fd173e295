// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "membership/next_view.h"

#include <functional>
#include <random>
#include <set>

#include "harness/catch.h"
#include "harness/views.h"

using namespace aikido;
using namespace aikido::membership;
using namespace aikido::testing;

namespace {

// Plan of a view change without moved and restored owners.
ViewPlan plan_of(int32_t size, std::map<Rank, Report> answers) {
  ViewPlan plan;
  plan.answers = std::move(answers);
  plan.moved = plan.restored = RankSet(size);
  return plan;
}

bool has(const Report& report, Seq seq, int32_t number) {
  return seq <= report.acked ||
         std::any_of(
             report.received.begin(), report.received.end(),
             [&](const ReceivedShard& h) { return h.seq == seq && h.shard == number; });
}

// True if the result of this shard is in parts, in the random histories below.
// Requires: the shard has parts.
bool is_in_parts(const Cut& cut, Seq seq, int32_t shard) {
  return cut.is_divided(shard) && (seq.value + static_cast<uint64_t>(shard)) % 2 == 0;
}

bool is_one(const Cut& cut, Seq seq, int32_t number) {
  const int32_t shard = cut.shard_of(number);
  return is_in_parts(cut, seq, shard) == (number != shard);
}

bool is_sound(const View& view, int32_t size) {
  std::vector<std::byte> bytes;
  append(bytes, view);
  std::span<const std::byte> rest(bytes);
  auto again = read_view(rest, size);
  return again.is_ok() && *again == view;
}

// Checks the operations beyond `open.first`, up to `open.second`. Returns how many of
// their shards are held.
size_t check_open(const View& old, const View& next, const ViewPlan& plan,
                  const std::map<Rank, Report>& all, std::pair<Seq, Seq> open) {
  size_t held_here = 0;
  for (Seq seq(open.first.value + 1); seq <= open.second; ++seq.value) {
    const Cut& cut = old.cut_of(seq);
    REQUIRE(next.cut_of(seq).owners.size() == cut.owners.size());
    REQUIRE(next.cut_of(seq).num_numbers() >= cut.num_numbers());
    for (int32_t s = 0; s < cut.num_numbers(); ++s) {
      RankSet having(old.members.world_size()), lacking = having;
      bool is_there = false;
      for (const auto& [r, report] : all) {
        (has(report, seq, s) ? having : lacking).insert(r);
        is_there = is_there || (has(report, seq, s) && is_one(cut, seq, s) &&
                                plan.answers.contains(r));
      }
      const Held* held = next.held_at(seq, s);
      REQUIRE((held != nullptr) == (is_there && lacking.count() > 0));
      if (held == nullptr) continue;
      ++held_here;
      REQUIRE(having.contains(held->holder));
      REQUIRE(plan.answers.contains(held->holder));
      REQUIRE(held->lacking == lacking);
      const Rank before =
          old.held_at(seq, s) != nullptr ? old.held_at(seq, s)->holder : cut.owner(s);
      const auto fitness = [&](Rank r) {
        return !old.is_owner(r) ? 0 : plan.moved.contains(r) ? 1 : 2;
      };
      const bool may_stay = plan.answers.contains(before) && having.contains(before) &&
                            fitness(before) == 2;
      if (may_stay) REQUIRE(held->holder == before);
      for (const auto& [r, report] : plan.answers)
        if (having.contains(r) && report.keeps(cut, seq, s))
          REQUIRE(fitness(r) <= fitness(held->holder));
    }
  }
  return held_here;
}

}  // namespace

TEST_CASE("an answering rank is a member, and keeps its seat") {
  View old = View::first_of(3);
  old.number = 4;
  old.seats[2] = {3, Seq(9)};
  const View next = next_view(old, plan_of(3, {{Rank(0), report_of(3, 12, 10)},
                                               {Rank(2), report_of(3, 11, 10)}}));
  CHECK(next.number == 5);
  CHECK(next.members == set_of(3, {0, 2}));
  CHECK(next.seats[2] == Seat{3, Seq(9)});
  CHECK(is_sound(next, 3));
}

TEST_CASE("a member without shards sends a result only if no other can") {
  ViewPlan move = plan_of(4, {});
  for (int32_t r = 0; r < 4; ++r) move.answers[Rank(r)] = report_of(4, 4, 4);
  move.moved.insert(Rank(3));
  const View old = next_view(View::first_of(4), move);
  REQUIRE_FALSE(old.is_owner(Rank(3)));
  struct Row {
    std::vector<int32_t> holders;
    int32_t moved, holder;
  };
  for (const Row& row : {Row{{2, 3}, 0, 2}, Row{{2, 3}, 2, 2}, Row{{3}, 2, 3}}) {
    CAPTURE(row.holders, row.moved);
    ViewPlan plan = plan_of(4, {});
    for (int32_t r = 0; r < 4; ++r) plan.answers[Rank(r)] = report_of(4, 5, 4);
    for (const int32_t r : row.holders)
      plan.answers[Rank(r)].received.push_back({Seq(5), 0, 1});
    plan.moved.insert(Rank(row.moved));
    const View next = next_view(old, plan);
    REQUIRE(next.held_at(Seq(5), 0) != nullptr);
    CHECK(next.held_at(Seq(5), 0)->holder == Rank(row.holder));
  }
}

TEST_CASE("a member that has closed a result which another has does not get it") {
  struct Row {
    const char* name;
    uint64_t closed;  // mask with which rank 1, the owner, has closed the shard
    std::vector<int32_t> has;  // members that have received it with mask 7, beyond
                               // their acknowledged operations
    bool is_held, is_lacking;
  };
  for (const Row& row : {
           Row{"the same", 7, {0, 2, 3}, true, false},
           Row{"the same as one of them", 7, {2}, true, false},
           Row{"another one", 8, {0, 2, 3}, true, true},
           Row{"nobody has it", 7, {}, false, false},
       }) {
    INFO(row.name);
    ViewPlan plan = plan_of(4, {});
    for (int32_t r = 0; r < 4; ++r) plan.answers[Rank(r)] = report_of(4, 5, 4);
    for (const int32_t r : row.has)
      plan.answers[Rank(r)].received.push_back({Seq(5), 1, 7});
    plan.answers[Rank(1)].closed.push_back({Seq(5), 1, row.closed});
    const View next = next_view(View::first_of(4), plan);
    CHECK(is_sound(next, 4));
    const Held* held = next.held_at(Seq(5), 1);
    REQUIRE((held != nullptr) == row.is_held);
    if (held == nullptr) continue;
    CHECK(held->lacking.contains(Rank(1)) == row.is_lacking);
    CHECK((held->holder == Rank(1)) != row.is_lacking);  // its owner sends it
  }
  // The view does not list a result that its holder has acknowledged.
  ViewPlan plan = plan_of(4, {});
  for (int32_t r = 0; r < 4; ++r)
    plan.answers[Rank(r)] = report_of(4, 5, r == 0 ? 5u : 4u);
  plan.answers[Rank(1)].closed.push_back({Seq(5), 1, 7});
  CHECK(
      next_view(View::first_of(4), plan).held_at(Seq(5), 1)->lacking.contains(Rank(1)));
}

TEST_CASE("a result that some member has stays with a holder") {
  struct Row {
    const char* name;
    std::vector<int32_t> holders;  // of shard 1 of operation 5
    std::vector<int32_t> moved;
    int32_t holder;  // -1: no member sends it
  };
  // A group of 4 in which rank 1 owns shard 1.
  for (const Row& row : {
           Row{"the old owner first", {0, 1, 3}, {}, 1},
           Row{"another one if it has not got it", {2, 3}, {}, 2},
           Row{"one that is moved last", {1, 3}, {1}, 3},
           Row{"even the one that is moved, if only it has it", {1}, {1}, 1},
           Row{"of two that are moved any", {1, 2}, {1, 2}, 1},
           Row{"nobody has it", {}, {1}, -1},
           Row{"all have it", {0, 1, 2, 3}, {}, -1},
       }) {
    ViewPlan plan = plan_of(4, {});
    for (int32_t r = 0; r < 4; ++r) plan.answers[Rank(r)] = report_of(4, 5, 4);
    for (const int32_t r : row.holders)
      plan.answers[Rank(r)].received.push_back({Seq(5), 1, 1});
    for (const int32_t r : row.moved) plan.moved.insert(Rank(r));
    const View next = next_view(View::first_of(4), plan);
    INFO(row.name);
    CHECK(is_sound(next, 4));
    const Held* held = next.held_at(Seq(5), 1);
    if (row.holder < 0) {
      CHECK(held == nullptr);
      continue;
    }
    REQUIRE(held != nullptr);
    CHECK(held->holder == Rank(row.holder));
    CHECK(held->lacking.count() == 4 - static_cast<int32_t>(row.holders.size()));
    for (const int32_t r : row.holders) CHECK_FALSE(held->lacking.contains(Rank(r)));
    CHECK(next.held.size() == 1);
  }
}

TEST_CASE("a shard that was held before stays with its holder if it can") {
  View old = View::first_of(3);
  old.held = {{Seq(5), 0, Rank(2), set_of(3, {0, 1})}};
  const auto next =
      next_view(old, plan_of(3, {{Rank(0), report_of(3, 5, 4)},
                                 {Rank(1), report_of(3, 5, 4, {{Seq(5), 0, 1}})},
                                 {Rank(2), report_of(3, 5, 4, {{Seq(5), 0, 1}})}}));
  REQUIRE(next.held.size() == 1);
  CHECK(next.held[0] == Held{Seq(5), 0, Rank(2), set_of(3, {0})});
}

TEST_CASE("an acknowledged result counts as received by its member") {
  const View next = next_view(
      View::first_of(2),
      plan_of(2, {{Rank(0), report_of(2, 6, 5)}, {Rank(1), report_of(2, 6, 4)}}));
  REQUIRE(next.held.size() == 2);
  CHECK(next.held[0] == Held{Seq(5), 0, Rank(0), set_of(2, {1})});
  CHECK(next.held[1] == Held{Seq(5), 1, Rank(0), set_of(2, {1})});
}

TEST_CASE("open shards keep their owner if it is there and not moved") {
  struct Row {
    std::vector<int32_t> answers, moved;
    std::initializer_list<int32_t> open, coming;  // owners
  };
  // Operations 3 and 4 are open. No member has heard of operation 5.
  for (const Row& row : {
           Row{{0, 1, 2, 3}, {}, {0, 1, 2, 3}, {0, 1, 2, 3}},
           Row{{0, 1, 2, 3}, {2}, {0, 1, 3, 3}, {0, 1, 3}},
           Row{{0, 1, 3}, {}, {0, 1, 3, 3}, {0, 1, 3}},
           Row{{0, 1, 3}, {0}, {1, 1, 1, 3}, {1, 3}},
           // All remaining members are moved, but the shards need an owner all the
           // same.
           Row{{1, 2}, {1, 2}, {1, 1, 1, 1}, {1}},
       }) {
    ViewPlan plan = plan_of(4, {});
    for (const int32_t r : row.answers) plan.answers[Rank(r)] = report_of(4, 4, 2);
    for (const int32_t r : row.moved) plan.moved.insert(Rank(r));
    const View next = next_view(View::first_of(4), plan);
    CHECK(is_sound(next, 4));
    CHECK(next.cut_of(Seq(3)).owners == ranks_of(row.open));
    CHECK(next.cut_of(Seq(4)).owners == ranks_of(row.open));
    CHECK(next.cut_of(Seq(5)).owners == ranks_of(row.coming));
  }
}

TEST_CASE("the shard of an owner that is lost goes to all others in parts") {
  struct Row {
    std::vector<int32_t> answers, moved;
    std::vector<Division> divisions;
  };
  const auto view_of = [](const View& old, const Row& row) {
    ViewPlan plan = plan_of(4, {});
    for (const int32_t r : row.answers) plan.answers[Rank(r)] = report_of(4, 4, 2);
    for (const int32_t r : row.moved) plan.moved.insert(Rank(r));
    return next_view(old, plan);
  };
  for (const Row& row : {
           Row{{0, 1, 2, 3}, {}, {}},
           Row{{0, 1, 2, 3}, {2}, {{2, ranks_of({3, 0, 1})}}},
           Row{{0, 1, 3}, {}, {{2, ranks_of({3, 0, 1})}}},
           Row{{0, 1, 3}, {0}, {{0, ranks_of({1, 3})}, {2, ranks_of({1, 3})}}},
           // No other member can share the shard.
           Row{{1, 2}, {1}, {}},
       }) {
    const View next = view_of(View::first_of(4), row);
    CHECK(is_sound(next, 4));
    CHECK(next.cut_of(Seq(4)).divisions == row.divisions);
    CHECK(next.cut_of(Seq(5)).divisions.empty());
  }
  // A shard is divided once only. If the owner of a part is lost later, another member
  // gets the whole part.
  View view = view_of(View::first_of(4), {{0, 1, 2}, {}, {}});
  CHECK(view.cut_of(Seq(4)).divisions ==
        std::vector<Division>{{3, ranks_of({0, 1, 2})}});
  view = view_of(view, {{1, 2}, {}, {}});
  CHECK(view.cut_of(Seq(4)).divisions ==
        std::vector<Division>{{3, ranks_of({2, 1, 2})}, {0, ranks_of({1, 2})}});
  CHECK(is_sound(view, 4));
}

TEST_CASE("a large group shares a shard among some") {
  ViewPlan plan = plan_of(20, {});
  for (int32_t r = 0; r < 19; ++r) plan.answers[Rank(r)] = report_of(20, 4, 2);
  const View next = next_view(View::first_of(20), plan);
  const auto& divisions = next.cut_of(Seq(4)).divisions;
  REQUIRE(divisions.size() == 1);
  CHECK(divisions[0].owners == ranks_of({0, 1, 2, 3, 4, 5, 6, 7}));
}

TEST_CASE("an acknowledged result is sent whole or in parts, as its holder has it") {
  View old = View::first_of(3);
  old.cuts[0].divisions = {{1, ranks_of({0, 2})}};
  for (const bool is_in_parts : {false, true}) {
    ViewPlan plan =
        plan_of(3, {{Rank(0), report_of(3, 5, 5)}, {Rank(2), report_of(3, 5, 4)}});
    if (is_in_parts) plan.answers[Rank(0)].divided = {{Seq(5), 1}};
    const View next = next_view(old, plan);
    for (int32_t n = 0; n < 5; ++n) {
      const bool is_held = n == 1 ? !is_in_parts : n < 3 || is_in_parts;
      CHECK((next.held_at(Seq(5), n) != nullptr) == is_held);
    }
  }
}

TEST_CASE("a restored owner owns shards of future operations only") {
  View old = View::first_of(3);
  old.cuts = {{Seq(1), ranks_of({0, 1}), RankSet(3)}};
  ViewPlan plan = plan_of(3, {});
  for (int32_t r = 0; r < 3; ++r) plan.answers[Rank(r)] = report_of(3, 7, 6);
  CHECK(next_view(old, plan).cuts ==
        old.cuts);  // a member does not become an owner by itself
  plan.restored.insert(Rank(2));
  const View next = next_view(old, plan);
  CHECK(next.cut_of(Seq(7)).owners == ranks_of({0, 1}));
  CHECK(next.cut_of(Seq(8)).owners == ranks_of({0, 1, 2}));
}

TEST_CASE("a member that is restored while another is moved owns whole shards") {
  View old = View::first_of(4);
  old.cuts = {{Seq(1), ranks_of({0, 1, 2}), RankSet(4)}};
  ViewPlan plan = plan_of(4, {});
  for (int32_t r = 0; r < 4; ++r) plan.answers[Rank(r)] = report_of(4, 7, 6);
  plan.moved.insert(Rank(2));
  plan.restored.insert(Rank(3));
  const View next = next_view(old, plan);
  CHECK(next.cut_of(Seq(7)).is_divided(2));
  CHECK(next.cut_of(Seq(8)).owners == ranks_of({0, 1, 3}));
  CHECK(next.cut_of(Seq(8)).divisions.empty());
}

TEST_CASE("a rejoining member takes part from the first unknown operation") {
  View old = View::first_of(3);
  old.number = 2;
  old.members = set_of(3, {0, 1});
  old.cuts = {{Seq(1), ranks_of({0, 1, 1}), RankSet(3)},
              {Seq(6), ranks_of({0, 1}), set_of(3, {2})}};
  ViewPlan plan =
      plan_of(3, {{Rank(0), report_of(3, 9, 8)}, {Rank(1), report_of(3, 8, 8)}});
  plan.joining = {{Rank(2), report_of(3, 20, 4)}};
  const View next = next_view(old, plan);
  CHECK(is_sound(next, 3));
  CHECK(next.members == RankSet::full(3));
  // Rank 2 counts as a new member: its messages from before view 3 are ignored.
  CHECK(next.seats[2] == Seat{3, Seq(10)});
  CHECK_FALSE(next.takes_part(Rank(2), Seq(9)));
  CHECK_FALSE(next.is_owner(Rank(2)));
  // Members that have the missed results send them to rank 2: three shards of operation
  // 5, and two of each later operation. No member has a result of operation 9.
  CHECK(next.held.size() == 3 + 3 * 2);
  for (const Held& held : next.held) CHECK(held.lacking == set_of(3, {2}));
}

TEST_CASE("cuts stay while some member can send their results") {
  View old = View::first_of(3);
  // Rank 2 has results up to 4, and is excluded while the others continue.
  View next = next_view(old, plan_of(3, {{Rank(0), report_of(3, 10, 9)},
                                         {Rank(1), report_of(3, 10, 9)}}));
  ViewPlan plan =
      plan_of(3, {{Rank(0), report_of(3, 30, 29)}, {Rank(1), report_of(3, 30, 29)}});
  plan.moved.insert(Rank(1));
  next = next_view(next, plan);
  plan = plan_of(3, {{Rank(0), report_of(3, 50, 49)}, {Rank(1), report_of(3, 50, 49)}});
  plan.joining = {{Rank(2), report_of(3, 10, 4)}};
  next = next_view(next, plan);
  CHECK(is_sound(next, 3));
  CHECK(next.cut_of(Seq(5)).owners.size() == 3);
  CHECK(next.cut_of(Seq(11)).owners.size() == 2);
  CHECK(next.cut_of(Seq(31)).owners.size() == 1);
  REQUIRE(next.held_at(Seq(5), 2) != nullptr);
  // All members are in the view again. The log of one member still reaches back.
  plan = plan_of(3, {});
  for (int32_t r = 0; r < 3; ++r) {
    plan.answers[Rank(r)] = report_of(3, 60, 55);
    plan.answers[Rank(r)].kept = Seq(56);
  }
  plan.answers[Rank(1)].kept = Seq(12);
  next = next_view(next, plan);
  CHECK(next.cuts.front().first == Seq(11));
  plan.answers[Rank(1)].kept = Seq(56);
  next = next_view(next, plan);
  CHECK(next.cuts.size() == 1);
}

TEST_CASE("operations known only to a lost member are cut anew") {
  View old = View::first_of(4);
  old.number = 3;
  old.cuts = {{Seq(1), ranks_of({0, 1, 2, 3}), RankSet(4)},
              {Seq(11), ranks_of({0, 1, 2}), RankSet(4)},
              {Seq(21), ranks_of({0, 1}), RankSet(4)}};
  // Rank 3 has called 20 operations. The others have not heard of the last 15.
  ViewPlan plan = plan_of(4, {});
  for (int32_t r = 0; r < 3; ++r) plan.answers[Rank(r)] = report_of(4, 5, 3);
  const View next = next_view(old, plan);
  CHECK(is_sound(next, 4));
  CHECK(next.cut_of(Seq(5)).owners.size() == 4);
  CHECK(next.cut_of(Seq(6)).owners == ranks_of({0, 1}));
  CHECK(next.cuts.size() == 2);
}

TEST_CASE("operations list an excluded member from the first unknown operation on") {
  const auto report = [](uint64_t known) { return report_of(3, known, known - 1); };
  View next = next_view(View::first_of(3),
                        plan_of(3, {{Rank(0), report(10)}, {Rank(1), report(9)}}));
  CHECK(is_sound(next, 3));
  CHECK(next.cut_of(Seq(10)).out == RankSet(3));
  CHECK(next.cut_of(Seq(11)).out == set_of(3, {2}));
  ViewPlan plan = plan_of(3, {{Rank(0), report(20)}, {Rank(1), report(20)}});
  plan.joining = {{Rank(2), report_of(3, 10, 8)}};
  next = next_view(next, plan);
  CHECK(is_sound(next, 3));
  // The list of excluded members stays the same if a cut is made again.
  CHECK(next.cut_of(Seq(10)).out == RankSet(3));
  CHECK(next.cut_of(Seq(20)).out == set_of(3, {2}));
  CHECK(next.cut_of(Seq(21)).out == RankSet(3));
  CHECK(next.cut_of(Seq(21)).owners == ranks_of({0, 1}));
}

TEST_CASE("a member that would wait for a skipped result in vain is excluded") {
  struct Row {
    const char* name;
    std::vector<int32_t> answers;    // of ranks 0 .. 4
    std::vector<int32_t> passed;     // have copied a state behind operation 6
    std::vector<int32_t> lacking;    // have results up to 4; the others up to 6
    std::vector<int32_t> forgetful;  // keep no results
    std::vector<int32_t> in_vain;
    std::vector<int32_t> members;
    uint64_t skipped_from = 5;
  };
  for (const Row& row : {
           Row{"somebody keeps it", {0, 1, 2, 3}, {2, 3}, {1}, {}, {}, {0, 1, 2, 3}},
           Row{"who has not answered keeps it",
               {1, 2, 3, 4},
               {2, 3, 4},
               {1},
               {},
               {1},
               {2, 3, 4}},
           Row{"nobody has passed it over",
               {1, 2, 3, 4},
               {},
               {1, 2, 3, 4},
               {},
               {},
               {1, 2, 3, 4}},
           // Operation 5 may be strict, with a result that each member has received.
           Row{"it is acked only", {1, 2, 3, 4}, {}, {1}, {2, 3, 4}, {}, {1, 2, 3, 4}},
           Row{"the others are no majority",
               {1, 2, 3},
               {2, 3},
               {1},
               {},
               {1},
               {1, 2, 3}},
           Row{"they have had what it lacks",
               {1, 2, 3, 4},
               {2, 3, 4},
               {1},
               {},
               {},
               {1, 2, 3, 4},
               7},
           Row{"several", {0, 1, 2, 3, 4}, {2, 3, 4}, {0, 1}, {}, {0, 1}, {2, 3, 4}},
       }) {
    ViewPlan plan = plan_of(5, {});
    for (const int32_t r : row.answers) plan.answers[Rank(r)] = report_of(5, 8, 6);
    for (const int32_t r : row.lacking) {
      if (!plan.answers.contains(Rank(r))) continue;
      plan.answers[Rank(r)].acked = Seq(4);
      plan.answers[Rank(r)].open = Seq(5);
    }
    for (const int32_t r : row.forgetful) plan.answers[Rank(r)].kept = Seq(7);
    for (const int32_t r : row.passed) {
      plan.answers[Rank(r)].skipped_from = Seq(row.skipped_from);
      plan.answers[Rank(r)].skipped_through = Seq(6);
      plan.answers[Rank(r)].kept = Seq(7);
    }
    INFO(row.name);
    RankSet in_vain(5), members(5);
    for (const int32_t r : row.in_vain) in_vain.insert(Rank(r));
    for (const int32_t r : row.members) members.insert(Rank(r));
    CHECK(waiting_in_vain(View::first_of(5), plan.answers) == in_vain);
    const View next = next_view(View::first_of(5), plan);
    CHECK(next.members == members);
    CHECK(is_sound(next, 5));
  }
}

TEST_CASE("a late member would wait in vain for results that the others dropped") {
  struct Row {
    const char* name;
    bool is_in_vain;
    std::function<void(View&, std::map<Rank, Report>&)> prepare;
  };
  // Rank 1 came after operation 5, and waits for it. Ranks 2, 3 and 4 have received its
  // result.
  for (const Row& row : {
           Row{"nobody keeps it", true, [](View&, auto&) {}},
           Row{"somebody keeps it", false,
               [](View&, auto&all) { all[Rank(3)].kept = Seq(5); }},
           // The others keep the result for a member that takes part.
           Row{"it takes part", false,
               [](View&old, auto&) { old.seats[1].first = Seq(5); }},
           Row{"it waits for nothing", false,
               [](View&, auto&all) { all[Rank(1)].open = Seq(); }},
           Row{"who had an error says so", false,
               [](View&, auto&all) { all[Rank(4)].failed = {Seq(5)}; }},
           Row{"those that have not had it make it", false,
               [](View&, auto&all) {
                 for (const int32_t r : {2, 3, 4}) all[Rank(r)] = report_of(5, 8, 4);
               }},
       }) {
    View old = View::first_of(5);
    old.seats[1] = {1, Seq(6)};
    ViewPlan plan = plan_of(5, {});
    for (int32_t r = 1; r < 5; ++r) {
      plan.answers[Rank(r)] = report_of(5, 8, 6);
      plan.answers[Rank(r)].kept = Seq(7);
    }
    plan.answers[Rank(1)] = report_of(5, 5, 4);
    plan.answers[Rank(1)].open = Seq(5);
    row.prepare(old, plan.answers);
    INFO(row.name);
    CHECK((waiting_in_vain(old, plan.answers).count() == 1) == row.is_in_vain);
    CHECK(next_view(old, plan).has(Rank(1)) != row.is_in_vain);
  }
}

TEST_CASE("an excluded member takes its results along") {
  // Rank 0 has operation 5 and waits for 6. Rank 1 waits for 5. Ranks 2, 3 and 4 have
  // skipped through both.
  ViewPlan plan =
      plan_of(5, {{Rank(0), report_of(5, 6, 5)}, {Rank(1), report_of(5, 6, 4)}});
  for (int32_t r = 2; r < 5; ++r) {
    plan.answers[Rank(r)] = report_of(5, 6, 6);
    plan.answers[Rank(r)].skipped_from = Seq(5);
    plan.answers[Rank(r)].skipped_through = Seq(6);
    plan.answers[Rank(r)].kept = Seq(7);
  }
  CHECK(next_view(View::first_of(5), plan).members == set_of(5, {2, 3, 4}));
  // Rank 1 has received a shard of operation 6, and waits for the rest.
  plan.answers[Rank(0)] = report_of(5, 6, 6);
  plan.answers[Rank(1)].acked = Seq(5);
  plan.answers[Rank(1)].received = {{Seq(6), 0, 1}};
  plan.answers[Rank(1)].open = Seq(6);
  CHECK(next_view(View::first_of(5), plan).members == RankSet::full(5));
  plan.answers.erase(Rank(0));
  CHECK(next_view(View::first_of(5), plan).members == set_of(5, {2, 3, 4}));
}

TEST_CASE("a member does not rejoin if it would wait in vain") {
  View old = View::first_of(4);
  old.members = set_of(4, {0, 1, 2});
  ViewPlan plan = plan_of(4, {});
  for (int32_t r = 0; r < 3; ++r) {
    plan.answers[Rank(r)] = report_of(4, 6, 6);
    plan.answers[Rank(r)].skipped_from = Seq(5);
    plan.answers[Rank(r)].skipped_through = Seq(6);
    plan.answers[Rank(r)].kept = Seq(7);
  }
  plan.joining = {{Rank(3), report_of(4, 6, 4)}};
  CHECK(next_view(old, plan).members == set_of(4, {0, 1, 2}));
  plan.answers[Rank(1)] = report_of(4, 6, 6);
  CHECK(next_view(old, plan).members == RankSet::full(4));
}

// Random histories: members get results, call ahead, are moved, leave and rejoin.
TEST_CASE("every next view keeps the rules") {
  std::mt19937 random(20240311);
  const auto below = [&](size_t n) { return static_cast<int32_t>(random() % n); };
  int num_held = 0, num_joined = 0, num_recut = 0;
  for (int run = 0; run < 300; ++run) {
    const int32_t n = 2 + below(5);
    View old = View::first_of(n);
    std::vector<Report> reports(static_cast<size_t>(n), report_of(n, 0, 0));
    for (int change = 0; change < 12; ++change) {
      // Moves each member ahead, and gives it some results of open operations.
      for (int32_t r = 0; r < n; ++r) {
        Report& mine = reports[static_cast<size_t>(r)];
        if (!old.has(Rank(r))) continue;
        mine.acked.value += static_cast<uint64_t>(below(3));
        mine.known.value =
            std::max(mine.known, mine.acked).value + static_cast<uint64_t>(below(4));
        mine.received.clear();
        for (Seq seq(mine.acked.value + 1); seq <= mine.known; ++seq.value)
          for (int32_t s = 0; s < old.cut_of(seq).num_numbers(); ++s)
            if (is_one(old.cut_of(seq), seq, s) && below(3) == 0)
              mine.received.push_back({seq, s, 1});
        mine.divided.clear();
        for (Seq seq(1); seq <= mine.acked; ++seq.value)
          for (int32_t s = 0; s < std::ssize(old.cut_of(seq).owners); ++s)
            if (is_in_parts(old.cut_of(seq), seq, s)) mine.divided.emplace_back(seq, s);
      }
      ViewPlan plan = plan_of(n, {});
      old.members.for_each([&](Rank r) {
        if (below(4) > 0) plan.answers[r] = reports[static_cast<size_t>(r.value)];
        if (below(4) == 0) plan.moved.insert(r);
        if (below(4) == 0) plan.restored.insert(r);
      });
      if (plan.answers.empty()) break;
      Seq boundary, low(UINT64_MAX);
      const auto note = [&](const auto& entry) {
        low = std::min(low, entry.second.acked);
      };
      for (const auto& [r, report] : plan.answers)
        boundary = std::max({boundary, report.known, report.acked});
      for (int32_t r = 0; r < n; ++r) {
        const Report& theirs = reports[static_cast<size_t>(r)];
        if (!old.has(Rank(r)) && below(2) == 0 && theirs.acked < boundary)
          plan.joining[Rank(r)] = theirs;
      }
      std::for_each(plan.answers.begin(), plan.answers.end(), note);
      std::for_each(plan.joining.begin(), plan.joining.end(), note);
      const View next = next_view(old, plan);

      REQUIRE(is_sound(next, n));  // owners and holders are members, cuts ascend
      REQUIRE(next.members.count() ==
              static_cast<int32_t>(plan.answers.size() + plan.joining.size()));
      std::map<Rank, Report> all = plan.answers;
      all.insert(plan.joining.begin(), plan.joining.end());
      num_joined += static_cast<int>(plan.joining.size());
      const size_t held_here = check_open(old, next, plan, all, {low, boundary});
      REQUIRE(next.held.size() == held_here);
      num_held += static_cast<int>(held_here);
      num_recut += next.cuts.size() > 1 ? 1 : 0;
      const auto& owners = next.cuts.back().owners;
      REQUIRE(std::set<Rank>(owners.begin(), owners.end()).size() == owners.size());
      for (const Rank r : owners)
        if (owners.size() > 1) REQUIRE_FALSE(plan.moved.contains(r));
      for (const auto& [r, report] : plan.joining)
        REQUIRE(next.seats[static_cast<size_t>(r.value)] ==
                Seat{next.number, Seq(boundary.value + 1)});
      old = next;
      for (const auto& [r, report] : plan.joining) {
        Report& mine = reports[static_cast<size_t>(r.value)];
        mine.known = boundary;
        mine.received.clear();
      }
    }
  }
  // The histories were long enough to test the rules.
  CHECK(num_held > 1000);
  CHECK(num_joined > 100);
  CHECK(num_recut > 500);
}

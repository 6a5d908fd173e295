// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "membership/view_change.h"

#include "membership/members.h"

using namespace aikido;
using namespace aikido::membership;
using namespace aikido::membership::testing;
using namespace aikido::testing;
using std::chrono::milliseconds;
using std::chrono::seconds;

namespace {

// Rank 0 came in view 2 and lacks operation 5, which only `keeper` keeps.
void take_back_0(Members& members, int32_t keeper) {
  ViewMessage newest;
  newest.step = ViewStep::kView;
  newest.view = 2;
  newest.proposed = View::first_of(members.size);
  newest.proposed->number = 2;
  newest.proposed->seats[0] = {2, Seq(6)};
  for (int32_t r = 1; r < members.size; ++r) {
    members[r].mine = report_of(members.size, 6, 6);
    if (r != keeper) members[r].mine.kept = Seq(7);
  }
  for (auto& m : members.all)
    REQUIRE(m->change.on_message(Rank(1), newest, members.now).is_ok());
  members.pump();
}

}  // namespace

TEST_CASE("a suspicion moves the shards of a member, which stays in the view") {
  for (const int32_t n : {2, 3, 4, 7}) {
    Members members(n);
    members[0].change.suspect(Rank(1), members.now);
    CHECK(members[0].change.is_promised());
    members.pump();  // no time passes
    for (int32_t r = 0; r < n; ++r) {
      REQUIRE(members[r].installed.size() == 1);
      CHECK(members[r].num_promises == 1);
      CHECK(members.view(r) == members.view(0));
      CHECK_FALSE(members[r].change.next_look());
    }
    CHECK(members.view(0).number == 2);
    CHECK(members.view(0).members == RankSet::full(n));
    CHECK_FALSE(members.view(0).is_owner(Rank(1)));
    CHECK(std::ssize(members.view(0).cut_of(Seq(6)).owners) == n - 1);
    // The number of messages that README.md names.
    CHECK(members.count(ViewStep::kPrepare) == n - 1);
    CHECK(members.count(ViewStep::kState) == n - 1);
    CHECK(members.count(ViewStep::kPropose) == n - 1);
    CHECK(members.count(ViewStep::kAccepted) == n - 1);
    // Members that accept after more than half of the group get the view once more.
    CHECK(members.count(ViewStep::kView) == n * (n - 1) + (n - 1 - n / 2));
    // Rank 1 owns nothing more that could be moved.
    members[0].change.suspect(Rank(1), members.now);
    CHECK(members.post.empty());
  }
}

TEST_CASE(
    "if all members notice the same, the first healthy one coordinates and the others "
    "wait") {
  struct Row {
    int32_t lost;
    int32_t coordinator;
    int64_t after_ms;
  };
  for (const Row& row : {Row{3, 0, 0}, Row{0, 1, 0}}) {
    Members members(4);
    Rank first = kNoRank;
    members.is_lost = [&](const Letter& letter) {
      if (letter.message.step == ViewStep::kPrepare) {
        CHECK((first == kNoRank || first == letter.from));
        first = letter.from;
      }
      return without({row.lost})(letter);
    };
    for (int32_t r = 0; r < 4; ++r)
      if (r != row.lost) members[r].change.on_lost(Rank(row.lost), members.now);
    members.run(milliseconds(50));
    CHECK(first == Rank(row.coordinator));
    for (int32_t r = 0; r < 4; ++r) {
      if (r == row.lost) continue;
      REQUIRE(members[r].installed.size() == 1);
      CHECK(members.view(r).members.count() == 3);
      CHECK_FALSE(members.view(r).has(Rank(row.lost)));
    }
  }
  // A suspect that owns shards has the last turn, so rank 1 does not wait.
  Members members(3);
  members[1].change.suspect(Rank(0), members.now);
  members[0].change.suspect(Rank(1), members.now);
  members.run(milliseconds(30));
  CHECK(members.agree({0, 1, 2}));
}

TEST_CASE("suspicions of a member whose shards move have no effect") {
  Members members(4);
  members[3].change.suspect(Rank(2), members.now);  // waits for its turn
  members[0].change.suspect(Rank(3), members.now);
  members.run(milliseconds(100));
  CHECK(members.agree({0, 1, 2, 3}));
  CHECK(members.view(0).number == 2);
  CHECK_FALSE(members.view(0).is_owner(Rank(3)));
  CHECK(members.view(0).is_owner(Rank(2)));
}

TEST_CASE("a member that noticed alone waits for its turn") {
  Members members(4);
  members[2].change.suspect(Rank(3), members.now);
  CHECK(members.post.empty());
  CHECK(members[2].change.next_look() == members.now + milliseconds(20));
  members.run(milliseconds(19));
  CHECK(members.view(2).number == 1);
  members.run(milliseconds(2));
  CHECK(members.view(2).number == 2);
  CHECK(members.agree({0, 1, 2, 3}));
}

TEST_CASE("a silent member is excluded if it does not answer, and a slow one stays") {
  for (const bool is_slow : {false, true}) {
    Members members(4);
    if (!is_slow) members.is_lost = without({3});
    for (int32_t r = 0; r < 3; ++r) members[r].change.on_silent(Rank(3), members.now);
    members.run(milliseconds(is_slow ? 5 : 99));
    CHECK(members.view(0).number == (is_slow ? 2 : 1));
    members.run(milliseconds(5));
    CHECK(members.agree({0, 1, 2}));
    CHECK(members.view(0).number == 2);
    CHECK(members.view(0).has(Rank(3)) == is_slow);
    CHECK_FALSE(members.view(0).is_owner(Rank(3)));
  }
}

TEST_CASE("an answering silent member is spared, twice as long each time") {
  Members members(4);
  Duration since{};  // time since the last view
  const auto spared = [&] {
    const uint32_t number = members.view(0).number;
    for (since = Duration::zero(); members.view(0).number == number;) {
      members[0].change.on_silent(Rank(3), members.now);
      members.run(milliseconds(1));
      since += milliseconds(1);
      REQUIRE(since < seconds(5));
    }
    return since;
  };
  CHECK(spared() == milliseconds(1));
  for (const int ms : {100, 200, 400, 800, 1600, 1600}) {
    const Duration time = spared();
    CHECK(time >= milliseconds(ms - 1));
    CHECK(time <= milliseconds(ms + 1));
    CHECK(members.view(0).has(Rank(3)));
  }
  members.run(8 * milliseconds(1600));
  CHECK(spared() <= milliseconds(1601));
  members.run(2 * 8 * milliseconds(1600));
  CHECK(spared() == milliseconds(1));
  CHECK(spared() <= milliseconds(101));
  // A member that does not answer is excluded as fast as before.
  members.run(milliseconds(201));
  members.is_lost = without({3});
  members[0].change.on_silent(Rank(3), members.now);
  members.run(milliseconds(105));
  CHECK_FALSE(members.view(0).has(Rank(3)));
}

TEST_CASE("silent members are waited for if two others have lost each other") {
  for (const bool notices_late : {false, true}) {
    Members members(4);
    for (int32_t r = 0; r < 4; ++r) {
      members[r].mine.open = Seq(5);
      members[r].mine.needed = 3;
    }
    const auto lose = [&] {
      for (const int32_t r : {1, 2}) {
        members[r].mine.lost = set_of(4, {3 - r});
        members[r].change.on_lost(Rank(3 - r), members.now);
      }
    };
    members.is_lost = without({3});
    if (!notices_late) lose();
    members[0].change.on_silent(Rank(3), members.now);
    members.run(milliseconds(50));
    if (notices_late) lose();
    members.run(milliseconds(450));
    CHECK(members[0].installed.empty());
    members.is_lost = nullptr;
    members.run(seconds(3));
    CHECK_FALSE(members[0].installed.empty());
    for (const View& view : members[0].installed) CHECK(view.has(Rank(3)));
  }
}

TEST_CASE("answers that take long are waited for longer") {
  Members members(3);
  members.is_lost = without({2});
  members[0].change.on_silent(Rank(2), members.now);
  members.now += milliseconds(50);  // until the answer of rank 1
  members.pump();
  CHECK(members[0].change.next_look() == members.now + milliseconds(200));
}

TEST_CASE(
    "the higher of two coordinators succeeds, and both suspects lose their shards") {
  Members members(5);
  members[0].change.suspect(Rank(3), members.now);
  const auto first = std::exchange(members.post, {});
  members[1].change.suspect(Rank(4), members.now);
  members.now += milliseconds(10);
  members[1].change.on_time(members.now);
  // The prepares cross: rank 2 gets the prepare of rank 1 first, the others that of
  // rank 0.
  auto second = std::exchange(members.post, {});
  for (const Letter& letter : first)
    if (letter.to != Rank(2)) members.post.push_back(letter);
  members.post.insert(members.post.end(), second.begin(), second.end());
  for (const Letter& letter : first)
    if (letter.to == Rank(2)) members.post.push_back(letter);
  members.run(seconds(3));
  REQUIRE(members.agree({0, 1, 2, 3, 4}));
  CHECK(members.view(0).members == RankSet::full(5));
  CHECK(members.view(0).cut_of(Seq(9)).owners == ranks_of({0, 1, 2}));
  for (int32_t r = 0; r < 5; ++r) {
    // All members have seen the same views.
    for (size_t i = 0; i < members[r].installed.size(); ++i)
      CHECK(members[r].installed[i].number == i + 2);
    CHECK(members[r].installed == members[0].installed);
  }
}

TEST_CASE("after a promise no lower ballot is answered") {
  Members members(3);
  ViewMessage prepare;
  prepare.ballot = {5, Rank(1)};
  Member& me = members[2];
  CHECK(me.change.on_message(Rank(1), prepare, members.now).is_ok());
  me.change.on_time(members.now);
  REQUIRE(members.post.size() == 1);
  CHECK(members.post[0].message.step == ViewStep::kState);
  CHECK(members.post[0].message.report.known == Seq(5));
  members.post.clear();
  for (const Ballot ballot :
       {Ballot{5, Rank(0)}, Ballot{4, Rank(2)}, Ballot{5, Rank(1)}}) {
    prepare.ballot = ballot;
    CHECK(me.change.on_message(ballot.rank, prepare, members.now).is_ok());
    me.change.on_time(members.now);
    CHECK(members.post.empty());
  }
  // A view of a lower ballot is not accepted either.
  ViewMessage propose = prepare;
  propose.step = ViewStep::kPropose;
  propose.ballot = {4, Rank(0)};
  propose.proposed = View::first_of(3);
  propose.proposed->number = 2;
  CHECK(me.change.on_message(Rank(0), propose, members.now).is_ok());
  CHECK(members.post.empty());
  propose.ballot = {5, Rank(1)};
  CHECK(me.change.on_message(Rank(1), propose, members.now).is_ok());
  REQUIRE(members.post.size() == 1);
  CHECK(members.post[0].message.step == ViewStep::kAccepted);
  CHECK(me.installed.empty());  // another view may be chosen
  CHECK(me.num_promises == 1);
}

TEST_CASE("a result that is read after a prepare, in the same turn, is reported") {
  Members members(3);
  ViewMessage prepare;
  prepare.ballot = {5, Rank(1)};
  Member& me = members[2];
  REQUIRE(me.change.on_message(Rank(1), prepare, members.now).is_ok());
  CHECK(members.post.empty());
  CHECK_FALSE(me.change.is_promised());
  CHECK(me.change.next_look() == members.now);
  me.mine.received = {{Seq(5), 0, 7}};
  me.change.on_time(members.now);
  REQUIRE(members.post.size() == 1);
  CHECK(members.post[0].message.report.received == me.mine.received);
}

TEST_CASE(
    "a prepare of a member that is lost, or of an earlier view, is not answered") {
  const bool is_lost = GENERATE(true, false);
  Members members(3);
  ViewMessage prepare;
  prepare.ballot = {5, Rank(1)};
  Member& me = members[2];
  REQUIRE(me.change.on_message(Rank(1), prepare, members.now).is_ok());
  if (is_lost) {
    me.change.on_lost(Rank(1), members.now);
  } else {
    ViewMessage newest;
    newest.step = ViewStep::kView;
    newest.view = 2;
    newest.proposed = View::first_of(3);
    newest.proposed->number = 2;
    REQUIRE(me.change.on_message(Rank(0), newest, members.now).is_ok());
  }
  members.post.clear();
  me.change.on_time(members.now);
  CHECK(members.post.empty());
  CHECK_FALSE(me.change.is_promised());
}

TEST_CASE("a view that some member has accepted is taken over unchanged") {
  Members members(3);
  members[0].change.suspect(Rank(2), members.now);
  // Rank 1 accepts, but no member learns of it: its answer is lost, and then rank 0 is
  // lost.
  members.is_lost = [](const Letter& letter) {
    return letter.message.step == ViewStep::kAccepted ||
           (letter.message.step == ViewStep::kPropose && letter.to == Rank(2));
  };
  members.pump();
  CHECK(members[0].installed.empty());
  CHECK(members[1].change.is_promised());
  members.is_lost = without({0});
  members.lose(Rank(0), {1, 2});
  members.run(seconds(3));
  REQUIRE(members.agree({1, 2}));
  REQUIRE(members[2].installed.size() == 2);
  // First comes the view that rank 0 may have installed, then the view without rank 0.
  const View& taken = members[2].installed[0];
  CHECK(taken.members == RankSet::full(3));
  CHECK(taken.cut_of(Seq(6)).owners == ranks_of({0, 1}));
  CHECK(members.view(1).number == 3);
  CHECK(members.view(1).members == set_of(3, {1, 2}));
}

TEST_CASE("without more than half of the view nothing happens") {
  struct Row {
    int32_t size;
    std::initializer_list<int32_t> lost;
  };
  for (const Row& row : {Row{2, {1}}, Row{4, {2, 3}}, Row{5, {2, 3, 4}}}) {
    Members members(row.size);
    for (const int32_t r : row.lost) members.lose(Rank(r), {0, 1});
    members.is_lost = without(row.lost);
    members.run(seconds(20));
    CHECK_FALSE(members[0].change.has_majority());
    CHECK(members.view(0).number == 1);
    CHECK(members[0].installed.empty());
  }
  // Silent members may come back, so attempts continue until they do.
  Members members(4);
  members.is_lost = without({2, 3});
  for (const int32_t r : {2, 3}) members[0].change.on_silent(Rank(r), members.now);
  members.run(seconds(20));
  CHECK(members[0].change.has_majority());
  CHECK(members.view(0).number == 1);
  const int attempts = members.count(ViewStep::kPrepare);
  CHECK(attempts > 3);  // with growing pauses
  CHECK(attempts < 30);
  members.is_lost = without({2});
  members.run(seconds(20));
  CHECK(members.agree({0, 1, 3}));
  CHECK(members.view(0).members == set_of(4, {0, 1, 3}));
}

TEST_CASE("a view too small for active operations waits for more answers") {
  for (const int32_t min : {2, 3}) {
    Members members(3);
    for (const int32_t r : {0, 1}) {
      members[r].mine.open = Seq(5);
      members[r].mine.needed = min;
    }
    members.is_lost = without({2});
    for (const int32_t r : {0, 1}) members[r].change.on_silent(Rank(2), members.now);
    // Rank 1 does not start a change of its own meanwhile.
    members.run(milliseconds(4900));
    CHECK(members.view(0).number == (min == 2 ? 2 : 1));
    CHECK(members.count(ViewStep::kPrepare) == 1);
    members.run(milliseconds(200));
    CHECK(members.view(0).number == 2);
    CHECK_FALSE(members.view(0).has(Rank(2)));
  }
}

TEST_CASE("operations called since a failed change make the next change wait, too") {
  Members members(3);
  members.is_lost = without({1, 2});
  members[0].change.on_silent(Rank(2), members.now);
  members.run(milliseconds(10));
  REQUIRE(members[0].change.is_promised());
  members[0].mine.open = Seq(5);
  members[0].mine.needed = 3;
  members.is_lost = without({2});
  members[1].change.on_silent(Rank(2), members.now);
  members.run(milliseconds(4900));
  CHECK(members.view(0).number == 1);
  members.run(milliseconds(400));
  CHECK(members.view(0).number == 2);
}

TEST_CASE("a suspect that cannot have exposed anything is hardly waited for") {
  struct Row {
    const char* name;
    bool is_spared;
    std::function<void(Members&)> prepare;
  };
  // Operation 5 is open, and rank 3 owns its shard 3.
  for (const Row& row : {
           Row{"the coordinator holds a shard back", true, [](Members&) {}},
           Row{"another one has all of it", true,
               [](Members& m) {
                 m[0].held_back = {};
                 m[1].mine.acked = Seq(5);
               }},
           Row{"it may be full", false, [](Members& m) { m[0].held_back = {}; }},
           Row{"the suspect's shard was acknowledged", false,
               [](Members& m) {
                 m[1].mine.received = {{Seq(5), 3, 7}};
               }},
           Row{"another operation may be full", false,
               [](Members& m) { m[1].mine.known = Seq(6); }},
           Row{"calls could not end without it", false,
               [](Members& m) { m[0].is_spare = false; }},
       }) {
    INFO(row.name);
    Members members(4);
    members[0].held_back = {Seq(5)};
    row.prepare(members);
    members.is_lost = without({3});
    members[0].change.suspect(Rank(3), members.now);
    members.run(milliseconds(2));
    CHECK(members.view(0).number == 1);
    members.run(milliseconds(3));
    CHECK(members.view(0).has(Rank(3)) != row.is_spared);
    members.run(milliseconds(387));
    CHECK(members.view(0).number == (row.is_spared ? 2 : 1));
    members.run(milliseconds(20));
    CHECK_FALSE(members.view(0).has(Rank(3)));
    CHECK(members.agree({0, 1, 2}));
    // Rank 3 comes back.
    members.is_lost = nullptr;
    members[0].change.on_message(Rank(3), prepare_of(Rank(3)), members.now).is_ok();
    members.run(milliseconds(600));
    CHECK(members.agree({0, 1, 2, 3}));
    CHECK_FALSE(members.view(0).is_owner(Rank(3)));
  }
}

TEST_CASE("a member that may have exposed a result has the same time to answer") {
  for (const bool may_have : {true, false}) {
    Members members(4);
    members[0].held_back = {Seq(5)};
    members[0].change.suspect(Rank(1), members.now);
    members.pump();
    REQUIRE_FALSE(members.view(0).is_owner(Rank(1)));
    if (may_have) members[0].held_back = {};
    members.is_lost = without({3});
    members[0].change.restore(Rank(1), members.now);
    members.run(milliseconds(95));
    CHECK(members.view(0).number == 2);
    members.run(milliseconds(10));
    CHECK(members.view(0).number == (may_have ? 2 : 3));
    members.run(milliseconds(300));
    CHECK_FALSE(members.view(0).has(Rank(3)));
    CHECK(members.view(0).is_owner(Rank(1)));
    CHECK(members.agree({0, 1, 2}));
  }
}

TEST_CASE("a suspect may have exposed results held from an earlier view") {
  for (const bool holds : {true, false}) {
    Members members(4);
    members[0].held_back = {Seq(5)};
    if (holds) members[3].mine.received = {{Seq(5), 3, 7}};
    members[0].change.suspect(Rank(1), members.now);
    members.pump();
    REQUIRE(members.view(0).number == 2);
    REQUIRE((members.view(0).held_at(Seq(5), 3) != nullptr) == holds);
    members.is_lost = without({3});
    members[0].change.suspect(Rank(3), members.now);
    members.run(milliseconds(90));
    CHECK(members.view(0).number == (holds ? 2 : 3));
  }
}

TEST_CASE("a suspect that alone keeps an awaited result has time to answer") {
  for (const bool waits : {true, false}) {
    Members members(5);
    take_back_0(members, 3);
    if (waits) members[0].mine.open = Seq(5);
    members.is_lost = without({3});
    members[0].change.suspect(Rank(3), members.now);
    members.run(milliseconds(350));
    CHECK(members.view(0).number == (waits ? 2 : 3));
    members.is_lost = nullptr;
    members[0].change.on_message(Rank(3), prepare_of(Rank(3)), members.now).is_ok();
    members.run(milliseconds(600));
    CHECK(members.agree({0, 1, 2, 3, 4}));
  }
}

TEST_CASE("a member that waits in vain is excluded once the others are a majority") {
  for (const bool waits : {true, false}) {
    Members members(4);
    take_back_0(members, 3);
    if (waits) members[0].mine.open = Seq(5);
    for (auto& m : members.all) m->verdict = std::nullopt;  // does not rejoin at once
    members.lose(Rank(3), {0, 1, 2});
    members.run(milliseconds(100));
    CHECK(members.view(1).number == (waits ? 4 : 3));
    CHECK(members.view(1).members ==
          (waits ? set_of(4, {1, 2}) : set_of(4, {0, 1, 2})));
    CHECK(members.agree({1, 2}));
  }
}

TEST_CASE("one silent member is excluded early, but not two") {
  for (const bool are_two : {false, true}) {
    Members members(5);
    members[0].held_back = {Seq(5)};
    members.is_lost = are_two ? without({3, 4}) : without({4});
    members[0].change.suspect(Rank(3), members.now);
    members[0].change.on_silent(Rank(4), members.now);
    members.run(milliseconds(90));
    CHECK(members.view(0).number == (are_two ? 1 : 2));
    members.run(milliseconds(20));
    CHECK_FALSE(members.view(0).has(Rank(4)));
  }
}

TEST_CASE("a member owns shards again when it is restored") {
  Members members(3);
  members[0].change.suspect(Rank(2), members.now);
  members.pump();
  REQUIRE_FALSE(members.view(0).is_owner(Rank(2)));
  members[0].change.restore(Rank(1), members.now);  // owns shards already
  CHECK(members.post.empty());
  members[0].change.restore(Rank(2), members.now);
  members.pump();
  CHECK(members.agree({0, 1, 2}));
  CHECK(members.view(0).number == 3);
  CHECK(members.view(0).is_owner(Rank(2)));
  // The open operation keeps its cut.
  CHECK(members.view(0).cut_of(Seq(5)).owners.size() == 3);
}

TEST_CASE(
    "a result that others skipped through is waited for if too few members are left") {
  Members members(3);
  members[1].mine = report_of(3, 6, 4);
  members[1].mine.open = Seq(5);
  members[1].mine.needed = 1;
  members[2].mine = report_of(3, 6, 6);
  members[2].mine.skipped_from = Seq(5);
  members[2].mine.skipped_through = Seq(6);
  members[2].mine.kept = Seq(7);
  members[0].mine = report_of(3, 6, 6);
  members.is_lost = [&](const Letter& letter) { return letter.from == Rank(0); };
  members[1].change.on_silent(Rank(0), members.now);
  members.run(milliseconds(450));
  CHECK(members.view(1).number == 1);
  members.is_lost = nullptr;
  members.run(milliseconds(2000));
  CHECK(members.agree({0, 1, 2}));
  CHECK(members.view(1).members == RankSet::full(3));
  const Held* held = members.view(1).held_at(Seq(5), 0);
  REQUIRE(held != nullptr);
  CHECK(held->holder == Rank(0));
}

TEST_CASE("an excluded member still answers with its view") {
  // Rank 2 is excluded by the view that it learns of. Rank 1, of 4 members, is not yet
  // in that view.
  Members members(4);
  View next = View::first_of(4);
  next.number = 2;
  next.members = set_of(4, {0, 1, 3});
  next.cuts[0].owners = ranks_of({0, 1, 1, 3});
  ViewMessage message;
  message.step = ViewStep::kView;
  message.view = 2;
  message.proposed = next;
  CHECK(members[2].change.on_message(Rank(3), message, members.now).is_ok());
  members.post.clear();
  ViewMessage prepare;
  prepare.ballot = {1, Rank(1)};
  CHECK(members[2].change.on_message(Rank(1), prepare, members.now).is_ok());
  REQUIRE(members.post.size() == 1);
  CHECK(members.post[0].to == Rank(1));
  CHECK(members.post[0].message.step == ViewStep::kView);
  CHECK(members.post[0].message.proposed == next);
}

TEST_CASE("a member in an older view gets the newest view first") {
  Members members(3);
  members.is_lost = [](const Letter& letter) {
    return letter.to == Rank(2) && letter.message.step == ViewStep::kView;
  };
  members[0].change.suspect(Rank(1), members.now);
  members.pump();
  CHECK(members.view(2).number == 1);
  CHECK(members[2].change.is_promised());
  members.is_lost = nullptr;
  // Rank 2 has promised and learns no outcome. So it asks, and gets an answer.
  members.run(milliseconds(600));
  CHECK(members.agree({0, 1, 2}));
  CHECK(members.view(2).number == 2);
}

TEST_CASE("an attempt with lost messages is repeated, with growing pauses") {
  Members members(3);
  std::vector<TimePoint> starts;
  members.is_lost = [&](const Letter& letter) {
    if (letter.message.step == ViewStep::kPrepare && letter.to == Rank(1))
      starts.push_back(members.now);
    return true;
  };
  members[0].change.suspect(Rank(1), members.now);
  members.run(seconds(16));
  std::vector<int64_t> gaps;
  for (size_t i = 1; i < starts.size(); ++i)
    gaps.push_back((starts[i] - starts[i - 1]) / milliseconds(500));
  CHECK(gaps == std::vector<int64_t>{1, 2, 4, 8, 16});
  members.is_lost = nullptr;
  members.run(seconds(17));
  CHECK(members.agree({0, 1, 2}));
  CHECK(members.view(0).number == 2);
}

TEST_CASE("a report that reaches further than members can be apart is refused") {
  struct Row {
    uint64_t known, acked;
    bool is_right;
  };
  // Operation 5 is known, and operations up to 4 are acknowledged. With 4 members,
  // 65536 operations can be open.
  for (const Row& row : {Row{5, 4, true}, Row{65540, 4, true}, Row{65541, 4, false},
                         Row{4, 65541, false}, Row{kMaxSeq, kMaxSeq, false}}) {
    Members members(4);
    members[0].change.suspect(Rank(1), members.now);
    ViewMessage state;
    state.step = ViewStep::kState;
    state.ballot = {1, Rank(0)};
    state.report = report_of(4, row.known, row.acked);
    const Status status = members[0].change.on_message(Rank(1), state, members.now);
    CHECK(status.is_ok() == row.is_right);
    if (!row.is_right) {
      CHECK(status.code() == Code::kProtocol);
      CHECK(status.message().find("at most 65536 operations can be open") !=
            std::string::npos);
    }
  }
  Members members(4);
  members[0].mine = report_of(4, 70'000, 69'000);
  members[0].change.suspect(Rank(1), members.now);
  ViewMessage state;
  state.step = ViewStep::kState;
  state.ballot = {1, Rank(0)};
  state.report = report_of(4, 100, 90);
  CHECK_FALSE(members[0].change.on_message(Rank(1), state, members.now).is_ok());
}

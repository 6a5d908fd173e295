// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
//
// Votes of reliable members, and agreements on the members (view_change.h).

#include "membership/members.h"

using namespace aikido;
using namespace aikido::membership;
using namespace aikido::membership::testing;
using namespace aikido::testing;
using std::chrono::milliseconds;
using std::chrono::seconds;

namespace {

// A group in which `reliable` ranks are reliable.
Members group_of(int32_t size, std::initializer_list<int32_t> reliable) {
  Members members(size);
  for (auto& m : members.all) m->change.set_roles(set_of(size, reliable));
  return members;
}

// All connections of `lost` break at once.
void lose_all(Members& members, std::initializer_list<int32_t> lost) {
  const RankSet gone = set_of(members.size, lost);
  members.is_lost = without(lost);
  for (const int32_t l : lost)
    for (int32_t r = 0; r < members.size; ++r)
      if (!gone.contains(Rank(r))) members[r].change.on_lost(Rank(l), members.now);
}

std::optional<Agreement> taken(Member& member) {
  return member.change.agreement().take(member.change.view());
}

}  // namespace

TEST_CASE("a table of roles and deaths says if a view can follow") {
  struct Row {
    const char* name;
    int32_t size;
    std::initializer_list<int32_t> reliable, lost, left;
    bool follows;
  };
  const std::initializer_list<int32_t> none = {};
  for (const Row& row : {
           Row{"all have a vote, half die", 4, none, {2, 3}, {0, 1}, false},
           Row{"all transient members vanish",
               8,
               {0, 1},
               {2, 3, 4, 5, 6, 7},
               {0, 1},
               true},
           Row{"the only reliable member is left", 6, {3}, {0, 1, 2, 4, 5}, {3}, true},
           Row{"the only reliable member dies", 6, {3}, {3}, {0, 1, 2, 4, 5}, false},
           Row{"one of two reliable members dies", 5, {0, 1}, {1}, {0, 2, 3, 4}, false},
           Row{"one of three dies, with a transient",
               5,
               {0, 1, 2},
               {0, 3},
               {1, 2, 4},
               true},
           Row{"two of three reliable members die",
               6,
               {0, 1, 2},
               {0, 1},
               {2, 3, 4, 5},
               false},
       }) {
    INFO(row.name);
    Members members = group_of(row.size, row.reliable);
    lose_all(members, row.lost);
    members.run(seconds(1));
    for (const int32_t r : row.left) {
      CHECK(members[r].change.has_majority() == row.follows);
      CHECK(members.view(r).number == (row.follows ? 2 : 1));
      if (row.follows) CHECK(members.view(r).members == set_of(row.size, row.left));
      CHECK(members.view(r).reliable == set_of(row.size, row.reliable));
    }
  }
}

TEST_CASE("two sides of a cut group never both go on, whatever their sizes") {
  // The larger side has no majority of the reliable members.
  Members members = group_of(7, {0, 1, 2});
  members.is_lost = [](const Letter& letter) {
    return (letter.from.value < 2) != (letter.to.value < 2);
  };
  for (int32_t r = 0; r < 7; ++r)
    for (int32_t other = 0; other < 7; ++other)
      if ((r < 2) != (other < 2)) members[r].change.on_silent(Rank(other), members.now);
  members.run(seconds(1));
  for (int32_t r = 0; r < 7; ++r) CHECK(members.view(r).number == (r < 2 ? 2 : 1));
  CHECK(members.view(0).members == set_of(7, {0, 1}));
}

TEST_CASE("transient members that answer are waited for, and stay") {
  Members members = group_of(4, {0});
  members.is_lost = [](const Letter& letter) {
    return letter.message.step == ViewStep::kState && letter.from == Rank(2);
  };
  members[0].change.suspect(Rank(1), members.now);
  members.run(milliseconds(2));
  // The only voter has answered itself, and rank 2 still has time.
  CHECK(members.view(0).number == 1);
  members.run(milliseconds(110));
  // Rank 2 rejoins after that.
  REQUIRE_FALSE(members[0].installed.empty());
  CHECK(members[0].installed.front().members == set_of(4, {0, 1, 3}));
}

TEST_CASE("reliable members coordinate first") {
  Members members = group_of(5, {3, 4});
  Rank first = kNoRank;
  members.is_lost = [&](const Letter& letter) {
    if (letter.message.step == ViewStep::kPrepare && first == kNoRank)
      first = letter.from;
    return without({0})(letter);
  };
  for (int32_t r = 4; r > 0; --r) members[r].change.on_lost(Rank(0), members.now);
  members.run(milliseconds(5));
  CHECK(first == Rank(3));
  CHECK(members.agree({1, 2, 3, 4}));
}

TEST_CASE("a view with other roles is refused, and names the rank") {
  Members members = group_of(3, {0});
  ViewMessage other;
  other.step = ViewStep::kView;
  other.view = 2;
  other.proposed = members.view(0);
  other.proposed->number = 2;
  other.proposed->reliable = set_of(3, {0, 1});
  const Status taken = members[2].change.on_message(Rank(1), other, members.now);
  CHECK(taken.code() == Code::kProtocol);
  CHECK(taken.culprit() == Rank(1));
  CHECK(taken.message() ==
        "rank 1 has a view with 2 reliable ranks of the group, and this rank has 1 "
        "or others; a role never changes during the life of a group");
  CHECK(members.view(2).number == 1);
}

TEST_CASE("a member that does not know the roles yet starts no change, but answers") {
  Members members = group_of(3, {0});
  members[0].change.set_roles(std::nullopt);
  members[0].change.on_lost(Rank(2), members.now);
  members.run(milliseconds(100));
  CHECK(members.view(0).number == 1);
  CHECK(members.count(ViewStep::kPrepare) == 0);
  members.is_lost = without({2});
  members[0].change.set_roles(set_of(3, {0}));
  members.run(milliseconds(5));
  CHECK(members.view(0).members == set_of(3, {0, 1}));
  CHECK(members.agree({0, 1}));
}

TEST_CASE("all survivors get the same agreement, whenever they ask for it") {
  Members members = group_of(8, {0, 1});
  lose_all(members, {2, 3, 4, 5, 6, 7});
  members[0].change.agree(members.now);
  members.run(milliseconds(30));
  const auto first = taken(members[0]);
  REQUIRE(first);
  CHECK(*first == Agreement{1, set_of(8, {0, 1})});
  // Rank 1 asks later and causes no message.
  const int num_asked = members.count(ViewStep::kPrepare);
  members[1].change.agree(members.now);
  CHECK(taken(members[1]) == first);
  CHECK(members.count(ViewStep::kPrepare) == num_asked);
  // Each agreement is returned once. The next one has the next number.
  CHECK_FALSE(taken(members[1]));
  members[1].change.agree(members.now);
  members.run(milliseconds(30));
  CHECK(taken(members[1]) == Agreement{2, set_of(8, {0, 1})});
  CHECK(taken(members[0]) == Agreement{2, set_of(8, {0, 1})});
}

TEST_CASE("an agreement waits until no more members are lost") {
  Members members = group_of(6, {0, 1});
  members[0].change.agree(members.now);
  members.run(milliseconds(10));
  lose_all(members, {4, 5});
  members.run(milliseconds(10));
  lose_all(members, {2, 3, 4, 5});
  members.run(milliseconds(15));
  CHECK_FALSE(taken(members[0]));
  members.run(milliseconds(10));
  CHECK(taken(members[0]) == Agreement{1, set_of(6, {0, 1})});
  CHECK(members.view(1).agreed == Agreement{1, set_of(6, {0, 1})});
}

TEST_CASE("a later view keeps the agreement, and a change of another member makes it") {
  Members members = group_of(4, {0, 1, 2});
  members[1].change.agree(members.now);
  members[0].change.suspect(Rank(3), members.now);
  members.run(milliseconds(60));
  CHECK(taken(members[1]) == Agreement{1, RankSet::full(4)});
  lose_all(members, {3});
  members.run(milliseconds(10));
  CHECK(members.view(0).members == set_of(4, {0, 1, 2}));
  CHECK(taken(members[0]) == Agreement{1, RankSet::full(4)});
}

TEST_CASE("without a majority there is no agreement, and giving up ends the wait") {
  Members members = group_of(5, {0, 1, 2});
  lose_all(members, {0, 1});
  members[2].change.agree(members.now);
  members.run(seconds(2));
  CHECK_FALSE(taken(members[2]));
  CHECK_FALSE(members[2].change.has_majority());
  CHECK(members[2].change.agreement().is_wanted());
  members[2].change.agreement().give_up();
  CHECK_FALSE(members[2].change.agreement().is_wanted());
}

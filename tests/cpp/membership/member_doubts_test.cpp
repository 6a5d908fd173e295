// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "membership/member_doubts.h"

#include "harness/catch.h"
#include "harness/views.h"

using namespace aikido;
using namespace aikido::membership;
using aikido::testing::set_of;
using std::chrono::milliseconds;
using std::chrono::seconds;

namespace {

constexpr TimePoint kStart{seconds(100)};

View without(const View& view, Rank rank) {
  View next = view;
  next.members.erase(rank);
  ++next.number;
  return next;
}

}  // namespace

TEST_CASE("a doubt is news once, and makes a change of the view necessary") {
  const View view = View::first_of(4);
  MemberDoubts doubts(4);
  CHECK_FALSE(doubts.has_any_in(view));
  CHECK(doubts.suspect(Rank(1)));
  CHECK_FALSE(doubts.suspect(Rank(1)));
  CHECK(doubts.is_moved(Rank(1)));
  CHECK(doubts.has_any_in(view));
  // A doubt about a member that is not in the view changes nothing.
  CHECK_FALSE(doubts.has_any_in(without(view, Rank(1))));
  CHECK(doubts.note_lost(Rank(2)));
  CHECK_FALSE(doubts.note_lost(Rank(2)));
  CHECK(doubts.restore(Rank(3)));
  CHECK_FALSE(doubts.restore(Rank(3)));
  // A suspect owns no shards again.
  CHECK(doubts.suspect(Rank(3)));
  CHECK(doubts.restored().count() == 0);
}

TEST_CASE("one member at a time can be excluded without an answer") {
  MemberDoubts doubts(4);
  CHECK(doubts.to_exclude() == kNoRank);
  CHECK(doubts.exclude(Rank(2)));
  CHECK_FALSE(doubts.exclude(Rank(1)));
  CHECK(doubts.take_to_exclude() == Rank(2));
  CHECK(doubts.exclude(Rank(1)));
}

TEST_CASE("a member to be excluded is asked if the others are no majority") {
  const View view = View::first_of(4);
  MemberDoubts doubts(4);
  REQUIRE(doubts.exclude(Rank(3)));
  CHECK_FALSE(doubts.is_asked(view, Rank(3)));
  doubts.note_silent(Rank(2), kStart);
  CHECK(doubts.live(view, Rank(3)) == set_of(4, {0, 1}));
  CHECK(doubts.is_asked(view, Rank(3)));
  // Silent members are asked, too; lost ones are not.
  CHECK(doubts.is_asked(view, Rank(2)));
  doubts.note_lost(Rank(2));
  CHECK_FALSE(doubts.is_asked(view, Rank(2)));
}

TEST_CASE("half of the members are no majority") {
  const View view = View::first_of(4);
  CHECK_FALSE(is_majority(view, set_of(4, {0, 3})));
  CHECK(is_majority(view, set_of(4, {0, 1, 3})));
  MemberDoubts doubts(4);
  doubts.note_lost(Rank(0));
  CHECK(doubts.reachable(view).count() == 3);
  CHECK_FALSE(doubts.reachable(view).contains(Rank(0)));
  CHECK(doubts.leaves_majority(view));
  doubts.note_lost(Rank(1));
  CHECK_FALSE(doubts.leaves_majority(view));
}

TEST_CASE("healthy members become coordinator first, lost ones never") {
  const View view = View::first_of(5);
  MemberDoubts doubts(5);
  CHECK(doubts.num_before(view, Rank(3)) == 3);
  doubts.suspect(Rank(0));
  CHECK(doubts.num_before(view, Rank(3)) == 2);
  CHECK(doubts.num_before(view, Rank(0)) == 4);
  doubts.note_lost(Rank(1));
  CHECK(doubts.num_before(view, Rank(3)) == 1);
  doubts.exclude(Rank(2));
  CHECK(doubts.num_before(view, Rank(3)) == 0);
}

TEST_CASE("a silent member that stays is spared, and longer each time") {
  const View view = View::first_of(3);
  MemberDoubts doubts(3);
  const auto silent_at = [&](TimePoint now) {
    return doubts.note_silent(Rank(1), now);
  };
  CHECK(silent_at(kStart));
  CHECK(doubts.is_moved(Rank(1)));
  doubts.on_view(view, view, Rank(0), kStart);
  CHECK_FALSE(doubts.is_silent(Rank(1)));
  CHECK_FALSE(silent_at(kStart + milliseconds(99)));
  CHECK(silent_at(kStart + milliseconds(100)));
  const TimePoint again = kStart + milliseconds(100);
  doubts.on_view(view, view, Rank(0), again);
  CHECK_FALSE(silent_at(again + milliseconds(199)));
  CHECK(silent_at(again + milliseconds(200)));
  // After a long time without silence it begins anew.
  const TimePoint later = again + seconds(60);
  doubts.on_view(view, view, Rank(0), later);
  CHECK(silent_at(later + milliseconds(100)));
}

TEST_CASE("a view ends the doubts that it has dealt with") {
  const View view = View::first_of(3);
  MemberDoubts doubts(3);
  doubts.suspect(Rank(1));
  doubts.suspect(Rank(2));
  doubts.exclude(Rank(2));
  // 1 still owns shards, and 0 can take them over.
  doubts.on_view(view, without(view, Rank(2)), Rank(0), kStart);
  CHECK(doubts.is_moved(Rank(1)));
  CHECK_FALSE(doubts.is_moved(Rank(2)));
  CHECK(doubts.to_exclude() == kNoRank);
}

TEST_CASE("a member owns shards if some cut of the view says so") {
  View view = View::first_of(2);
  CHECK(owns_shards(view, Rank(0)));
  CHECK(owns_shards(view, Rank(1)));
  Cut next = view.cuts.back();
  next.first = Seq(7);
  next.owners = {Rank(0), Rank(0)};
  view.cuts.push_back(next);
  CHECK(owns_shards(view, Rank(1)));  // of operations before 7
  view.cuts.erase(view.cuts.begin());
  CHECK_FALSE(owns_shards(view, Rank(1)));
}

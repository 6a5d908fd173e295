// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "engine/shard_owners.h"

#include "harness/group_parts.h"

using namespace aikido;

namespace {

struct Case : testing::GroupParts {
  // The next view, in which `without` owns nothing.
  void move_shards_from(Rank without) {
    install([&](membership::View& view) {
      membership::Cut cut = view.cuts.back();
      cut.first = Seq(2);
      for (Rank& owner : cut.owners)
        if (owner == without) owner = Rank(0);
      view.cuts.push_back(cut);
    });
    REQUIRE_FALSE(change.view().is_owner(without));
    owners->on_view(change.view());
  }
};

}  // namespace

TEST_CASE("half of the members keep their shards, however many are suspected") {
  Case c;
  CHECK(c.owners->suspect(Rank(1)));
  CHECK(c.change.doubts().is_moved(Rank(1)));
  CHECK(c.owners->suspect(Rank(2)));
  CHECK_FALSE(c.owners->suspect(Rank(3)));
  CHECK_FALSE(c.change.doubts().is_moved(Rank(3)));
}

TEST_CASE("advice moves the shards of a slow link at the next opportunity") {
  Case c;
  c.owners->advise(Rank(2), straggler::Advice::kCaller);
  CHECK_FALSE(c.owners->is_due());
  c.owners->advise(Rank(2), straggler::Advice::kLink);
  CHECK(c.owners->is_due());
  CHECK_FALSE(c.change.doubts().is_moved(Rank(2)));
  c.owners->change_if_due();
  CHECK(c.change.doubts().is_moved(Rank(2)));
  CHECK_FALSE(c.owners->is_due());
}

TEST_CASE("a full sum leads to a change only before the next call") {
  Case c;
  c.owners->advise(Rank(2), straggler::Advice::kLink);
  c.owners->on_result(true);
  c.owners->change_before_call();
  CHECK(c.change.doubts().is_moved(Rank(2)));
  c.owners->on_result(true);
  CHECK_FALSE(c.owners->is_due());
}

TEST_CASE("members without shards that have called get shards back for a late owner") {
  for (const bool has_called : {false, true}) {
    CAPTURE(has_called);
    Case c;
    c.move_shards_from(Rank(3));
    c.marks.acked = 4;
    (*c.peers)[Rank(3)].note_called(has_called ? 5 : 4);
    c.owners->restore_for(Rank(1));
    CHECK(c.host.sent.empty() == !has_called);  // requests of a view change
  }
}

TEST_CASE("the measurements of a member end when its shards move") {
  Case c;
  constexpr uint64_t kBytes = straggler::ContributionShare::kMostBytes;
  for (int i = 0; i < 4; ++i)
    (*c.peers)[Rank(3)].share.on_close(kBytes, kBytes, c.clock.now());
  REQUIRE((*c.peers)[Rank(3)].share.suits(c.clock.now()) == straggler::Suits::kYes);
  c.move_shards_from(Rank(3));
  CHECK((*c.peers)[Rank(3)].share.suits(c.clock.now()) == straggler::Suits::kUnknown);
}

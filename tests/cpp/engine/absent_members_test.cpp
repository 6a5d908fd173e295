// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "engine/absent_members.h"

#include "harness/group_parts.h"

using namespace aikido;
using namespace aikido::testing;
using engine::AbsentMembers;
using std::chrono::seconds;

namespace {

constexpr int32_t kSize = GroupParts::kSize;
constexpr Duration kTimeout = seconds(5);

struct Case : GroupParts {
  Case() : GroupParts({seconds(1), kTimeout}) {}

  // The next view has these members. Returns those that are back after the time-out.
  RankSet install(std::initializer_list<int32_t> members, uint64_t received_by_all) {
    GroupParts::install(
        [&](membership::View& view) { view.members = set_of(kSize, members); });
    return absent.on_view(change.view(), received_by_all, clock.now());
  }
  RankSet expected() { return absent.expected_back(change, *peers, clock.now()); }
};

}  // namespace

TEST_CASE("an excluded member is expected back until the time-out") {
  Case c;
  CHECK(c.expected().count() == 0);
  c.install({0, 1, 2}, 7);
  CHECK(c.expected() == set_of(kSize, {3}));
  CHECK(c.absent.return_floor(Rank(3)) == 7);
  CHECK(c.absent.return_floor(Rank(2)) == 0);
  c.clock.advance(kTimeout - seconds(1));
  CHECK(c.expected().count() == 1);
  c.clock.advance(seconds(1));
  CHECK(c.expected().count() == 0);
}

TEST_CASE(
    "a member that is back is no longer expected, and back late if it took long") {
  for (const bool is_late : {false, true}) {
    CAPTURE(is_late);
    Case c;
    c.install({0, 1, 2}, 7);
    c.clock.advance(is_late ? kTimeout : kTimeout - seconds(1));
    CHECK(c.install({0, 1, 2, 3}, 9) ==
          (is_late ? set_of(kSize, {3}) : RankSet(kSize)));
    CHECK(c.expected().count() == 0);
    CHECK(c.absent.return_floor(Rank(3)) == 7);
  }
}

TEST_CASE("a later view does not restart the time of an excluded member") {
  Case c;
  c.install({0, 1, 2}, 7);
  c.clock.advance(kTimeout - seconds(1));
  c.install({0, 1}, 9);
  CHECK(c.expected() == set_of(kSize, {2, 3}));
  CHECK(c.absent.return_floor(Rank(3)) == 7);
  CHECK(c.absent.return_floor(Rank(2)) == 9);
  c.clock.advance(seconds(1));
  CHECK(c.expected() == set_of(kSize, {2}));
}

TEST_CASE("members that cannot be reached are not expected back") {
  Case c;
  c.install({0, 1}, 7);
  CHECK(c.expected() == set_of(kSize, {2, 3}));
  c.peers->on_lost(Rank(3), Status(Code::kPeerLost, "reset"));
  CHECK(c.expected() == set_of(kSize, {2}));
  (*c.peers)[Rank(2)].end.has_left = true;
  CHECK(c.expected().count() == 0);
}

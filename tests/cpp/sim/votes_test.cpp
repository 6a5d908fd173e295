// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "sim/votes.h"

#include "harness/catch.h"
#include "harness/views.h"

using namespace aikido;
using namespace aikido::sim;
using aikido::testing::set_of;

namespace {

bool says(const Agreements& agreements, const std::string& part) {
  return agreements.violation().find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("only reliable members of a script have votes") {
  Script script;
  script.members = 4;
  CHECK(voters_of(script, 0b1110) == 0b1110);
  CHECK_FALSE(has_majority(script, 0b0011, 0b1111));
  script.reliable = {0, 1};
  CHECK(voters_of(script, 0b1110) == 0b0010);
  CHECK(has_majority(script, 0b0011, 0b1111));
  CHECK_FALSE(has_majority(script, 0b1101, 0b1111));
}

TEST_CASE("a member may be cut off from some voters or from all of them") {
  Script script;
  script.members = 4;
  script.reliable = {0, 1};
  const std::set<uint64_t> one = {0b1001};
  CHECK(reaches_voter(script, 3, 0b1111, 0, one));
  CHECK_FALSE(reaches_voter(script, 3, 0b1111, 0b0010, one));
  CHECK_FALSE(reaches_voter(script, 3, 0b1101, 0, one));
  const std::set<uint64_t> both = {0b1001, 0b1010};
  CHECK_FALSE(reaches_voter(script, 3, 0b1111, 0, both));
  CHECK(reaches_voter(script, 2, 0b1111, 0, both));
  CHECK(reaches_voter(script, 0, 0b1111, 0b0010, both));
}

TEST_CASE("different ranks in one agreement are noticed") {
  Script script;
  script.members = 3;
  Agreements agreements(script);
  agreements.on_agreed(0, {1, set_of(3, {0, 1})});
  agreements.on_agreed(1, {1, set_of(3, {0, 1})});
  CHECK(agreements.violation().empty());
  agreements.on_agreed(2, {1, RankSet::full(3)});
  CHECK(
      says(agreements, "agreement 1 has ranks {0 1 2} on rank 2 and {0 1} elsewhere"));
}

TEST_CASE("a number that comes again, and a rank that is not in its agreement") {
  Script script;
  script.members = 3;
  Agreements again(script);
  again.on_agreed(0, {2, RankSet::full(3)});
  again.on_agreed(0, {2, RankSet::full(3)});
  CHECK(says(again, "rank 0 gets agreement 2 after 2"));
  Agreements without(script);
  without.on_agreed(0, {1, set_of(3, {1, 2})});
  CHECK(says(without, "rank 0 is not in its agreement {1 2}"));
}

TEST_CASE("a missing agreement counts if only deaths happen and a majority lives") {
  Script script;
  script.members = 3;
  script.reliable = {0};
  Agreements majority(script);
  majority.on_none(1, 0b111, 0b110, "lost");
  CHECK(majority.violation().empty());
  majority.on_none(0, 0b111, 0b001, "lost");
  CHECK(says(majority, "rank 0 of {0} gets no agreement: lost"));
  script.events.emplace_back().kind = EventKind::kStop;
  Agreements stopped(script);
  stopped.on_none(0, 0b111, 0b001, "lost");
  CHECK(stopped.violation().empty());
}

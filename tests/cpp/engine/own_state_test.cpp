// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "engine/own_state.h"

#include "harness/catch.h"

using namespace aikido;
using engine::MemberState;
using engine::OwnState;

TEST_CASE("the published state says what an excluded member may do") {
  OwnState state(Rank(1));
  CHECK(state.member_state() == MemberState::kMember);
  state.publish(true);
  CHECK(state.member_state() == MemberState::kReturning);
  state.refuse(Status(Code::kPeerLost, "its results differ", Rank(1)));
  CHECK(state.member_state() == MemberState::kReturning);  // not published yet
  state.publish(true);
  CHECK(state.member_state() == MemberState::kRefused);
  state.forgive();
  state.publish(true);
  CHECK(state.member_state() == MemberState::kReturning);
  state.publish(false);
  CHECK(state.member_state() == MemberState::kMember);
}

TEST_CASE("a refusal for another member ends the membership for good") {
  OwnState state(Rank(1));
  state.refuse(Status(Code::kPeerLost, "rank 2 is lost", Rank(2)));
  state.publish(true);
  CHECK(state.member_state() == MemberState::kEnded);
}

TEST_CASE("the highest call of another member is kept") {
  OwnState state(Rank(1));
  state.publish_called_elsewhere(5);
  state.publish_called_elsewhere(3);
  CHECK(state.called_elsewhere() == 5);
  state.publish_known(4);
  CHECK(state.known_up_to() == 4);
}

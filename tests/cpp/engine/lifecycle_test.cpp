// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "engine/lifecycle.h"

#include "harness/catch.h"

using namespace aikido;
using engine::Lifecycle;
using engine::Phase;

namespace {

// A group in that phase; its reason is "first" if it has one.
Lifecycle in(Phase phase) {
  Lifecycle life;
  if (phase == Phase::kEnded || phase == Phase::kLeft)
    life.end(Status(Code::kAborted, "first"));
  if (phase == Phase::kLeaving || phase == Phase::kLeft) life.begin_leaving();
  REQUIRE(life.phase() == phase);
  return life;
}

struct Row {
  Phase from, after_end, after_leaving;
};
constexpr Row kTable[] = {
    {Phase::kOpen, Phase::kEnded, Phase::kLeaving},
    {Phase::kEnded, Phase::kEnded, Phase::kLeft},
    {Phase::kLeaving, Phase::kLeft, Phase::kLeaving},
    {Phase::kLeft, Phase::kLeft, Phase::kLeft},
};

}  // namespace

TEST_CASE("the phases of a group follow each other as in their table") {
  for (const Row& row : kTable) {
    CAPTURE(static_cast<int>(row.from));
    Lifecycle ended = in(row.from);
    CHECK(ended.end(Status(Code::kAborted, "second")) == (row.after_end != row.from));
    CHECK(ended.phase() == row.after_end);
    CHECK(ended.has_ended());
    CHECK(ended.is_leaving() == in(row.from).is_leaving());
    Lifecycle leaving = in(row.from);
    CHECK(leaving.begin_leaving() == (row.after_leaving != row.from));
    CHECK(leaving.phase() == row.after_leaving);
    CHECK(leaving.is_leaving());
    CHECK(leaving.has_ended() == in(row.from).has_ended());
  }
}

TEST_CASE("the first reason for the end of a group stays") {
  Lifecycle life;
  CHECK(life.failure().is_ok());
  life.end(Status(Code::kAborted, "first"));
  life.end(Status(Code::kAborted, "second"));
  life.begin_leaving();
  CHECK(life.reason().message() == "first");
  CHECK(life.failure().message() == "first");
}

TEST_CASE("notices of members that give the group up are taken once, in order") {
  Lifecycle life;
  CHECK_FALSE(life.has_notices());
  life.note({Status(Code::kAborted, "one"), 3});
  life.note({Status(Code::kAborted, "two"), 4});
  CHECK(life.has_notices());
  const auto notices = life.take_notices();
  REQUIRE(notices.size() == 2);
  CHECK(notices[0].why.message() == "one");
  CHECK(notices[1].spared == 4);
  CHECK_FALSE(life.has_notices());
  CHECK(life.phase() == Phase::kOpen);
}

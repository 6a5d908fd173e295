// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "engine/link_board.h"

#include <thread>

#include "harness/catch.h"

using namespace aikido;
using engine::LinkBoard;
using std::chrono::hours;

namespace {
const Status kRefusal(Code::kInvalidArgument, "an option differs", Rank(2));
Status is_well() {
  return Status::ok();
}
}  // namespace

TEST_CASE("the own member is connected, and the others are missing") {
  LinkBoard board(Rank(1), 3);
  CHECK(board.is_linked(Rank(1)));
  CHECK(board.missing() == std::vector<Rank>{Rank(0), Rank(2)});
  board.note_linked(Rank(2));
  CHECK(board.missing() == std::vector<Rank>{Rank(0)});
}

TEST_CASE("a wait ends when all are connected") {
  const SystemClock clock;
  LinkBoard board(Rank(0), 2);
  std::thread other([&] { board.note_linked(Rank(1)); });
  CHECK(board.await_all(clock, clock.now() + hours(1), is_well).is_ok());
  CHECK(board.missing().empty());
  other.join();
}

TEST_CASE("a wait ends with the first refusal, with a failure, or at its deadline") {
  const SystemClock clock;
  LinkBoard board(Rank(0), 2);
  const Status failed = board.await_all(clock, clock.now() + hours(1), [] {
    return Status(Code::kAborted, "the group has ended");
  });
  CHECK(failed.code() == Code::kAborted);
  CHECK(board.await_all(clock, clock.now(), is_well).is_ok());
  CHECK_FALSE(board.missing().empty());
  CHECK_FALSE(board.refusal());
  board.refuse(kRefusal);
  board.refuse(Status(Code::kTimedOut, "later"));
  REQUIRE(board.refusal());
  CHECK(board.refusal()->culprit() == Rank(2));
  CHECK(board.await_all(clock, clock.now() + hours(1), is_well).code() ==
        Code::kInvalidArgument);
}

TEST_CASE("reasons for a report are kept") {
  LinkBoard board(Rank(0), 2);
  CHECK(board.turned_away().empty());
  board.note_turned_away("another version");
  CHECK(board.turned_away() == "another version");
  board.note_sharing_failure("no room");
  CHECK(board.sharing_failure() == "no room");
}

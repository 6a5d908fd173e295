// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "membership/view_attempt.h"

#include "harness/catch.h"

using namespace aikido;
using namespace aikido::membership;

namespace {

AcceptedView accepted(uint32_t counter, Rank rank, int32_t size) {
  AcceptedView found;
  found.ballot.counter = counter;
  found.ballot.rank = rank;
  found.view = View::first_of(size);
  found.view.number = counter;
  return found;
}

Report up_to(uint64_t known, uint64_t acked) {
  Report report;
  report.known = Seq(known);
  report.acked = Seq(acked);
  report.lost = RankSet(3);
  return report;
}

}  // namespace

TEST_CASE("the view of the highest ballot is proposed again") {
  ViewAttempt attempt;
  CHECK(attempt.accepted_before() == nullptr);
  attempt.answers[Rank(0)].accepted = accepted(4, Rank(2), 3);
  attempt.answers[Rank(1)];
  attempt.answers[Rank(2)].accepted = accepted(5, Rank(0), 3);
  REQUIRE(attempt.accepted_before() != nullptr);
  CHECK(attempt.accepted_before()->view.number == 5);
}

TEST_CASE("a suspect is spared if all operations are complete without it") {
  const View view = View::first_of(3);
  ViewAttempt attempt;
  attempt.answers[Rank(0)].report = up_to(7, 7);
  attempt.answers[Rank(1)].report = up_to(7, 7);
  CHECK(attempt.can_spare(view, Rank(2), {}));
  // 2 may have exposed its shard of operation 8, unless that was held back here.
  attempt.answers[Rank(1)].report = up_to(8, 7);
  CHECK_FALSE(attempt.can_spare(view, Rank(2), {}));
  CHECK(attempt.can_spare(view, Rank(2), {Seq(8)}));
}

TEST_CASE("a member that is not to be excluded is not lacked") {
  const View view = View::first_of(3);
  MemberDoubts doubts(3);
  ViewAttempt attempt;
  attempt.answers[Rank(0)].report = up_to(7, 7);
  attempt.answers[Rank(1)].report = up_to(7, 7);
  CHECK_FALSE(attempt.lacks_excluded(view, doubts));
  REQUIRE(doubts.exclude(Rank(2)));
  CHECK_FALSE(attempt.lacks_excluded(view, doubts));
  // 1 has an open call that needs three members.
  Report open = up_to(8, 7);
  open.open = Seq(8);
  open.needed = 3;
  attempt.answers[Rank(1)].report = open;
  CHECK(attempt.lacks_excluded(view, doubts));
  attempt.answers[Rank(2)].report = up_to(7, 7);
  CHECK_FALSE(attempt.lacks_excluded(view, doubts));
}

TEST_CASE("reports of members that are too far apart are refused") {
  CHECK(check_reach(Rank(1), up_to(1030, 10), Rank(0), up_to(6, 6), 300'000).is_ok());
  const Status ahead =
      check_reach(Rank(1), up_to(1031, 10), Rank(0), up_to(6, 6), 300'000);
  CHECK(ahead.code() == Code::kProtocol);
  CHECK(ahead.culprit() == Rank(1));
  const Status behind =
      check_reach(Rank(1), up_to(6, 6), Rank(0), up_to(1031, 9), 300'000);
  CHECK(behind.code() == Code::kProtocol);
}

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "reassign/reassigner.h"

#include "reassign/rank_zero.h"

using namespace aikido;
using namespace aikido::reassign;
using Kind = Claim::Kind;

TEST_CASE("a step without moves: own items in order, and the last one is known") {
  RankZero zero;
  zero.begin(1, 3);
  CHECK(zero.sent() == "1:progress 2:progress");
  for (uint32_t i = 0; i < 3; ++i) {
    const Claim claim = i == 0 ? zero.claim() : zero.finish_and_claim();
    CHECK(claim.kind == Kind::kItem);
    CHECK(claim.id == ItemId{1, Rank(0), i});
    CHECK(claim.spec.label == 100 + i);
    CHECK(claim.is_last == (i == 2));
  }
  CHECK(zero.reassigner.phase() == StepPhase::kOver);
  // The second pair: the speed is known after the first item.
  CHECK(zero.sent() == "1:progress 2:progress 1:step_end 2:step_end");
  CHECK(zero.finish_and_claim().kind == Kind::kStepOver);
  CHECK(zero.sent().empty());
  CHECK(zero.reassigner.report().num_messages == 6);
}

TEST_CASE("the training thread may claim at the table without the lock") {
  RankZero zero;
  zero.begin(1, 2);
  const auto first = zero.reassigner.table()->claim();
  CHECK(first->index == 0);
  CHECK_FALSE(zero.reassigner.on_claimed(*first, zero.now()));
  const auto last = zero.reassigner.table()->claim();
  CHECK(last->num_left == 0);
  CHECK(zero.reassigner.on_claimed(*last, zero.now()));
  CHECK(zero.claim().kind == Kind::kStepOver);
}

TEST_CASE("a rank without items is over at once if nobody needs help") {
  RankZero zero;
  zero.begin(1, 0);
  CHECK(zero.claim().kind == Kind::kStepOver);
}

TEST_CASE("a rank waits for owners that have not begun the step, for a bounded time") {
  ReassignOptions options = RankZero::fast_options();
  options.absent_patience = 0.5;  // of 20 ms
  RankZero zero(options);
  zero.learn(2);
  CHECK(zero.receive(RankZero::kOne, MessageKind::kStepEnd, 0, 0, 0).is_ok());
  zero.claim();
  zero.ms -= 5;  // both items take 2.5 ms instead of 10 ms
  CHECK_FALSE(zero.finish_and_claim().is_last);
  zero.ms -= 9;
  const Claim wait = zero.finish_and_claim();
  CHECK(wait.kind == Kind::kWait);
  CHECK(wait.until == TimePoint(std::chrono::milliseconds(20)));
  zero.ms = 20;
  CHECK(zero.claim().kind == Kind::kStepOver);
}

TEST_CASE("a rank that leaves hands back its own items, and those of others") {
  RankZero zero;
  zero.learn(3);
  zero.claim();
  CHECK(zero.grant(RankZero::kOne, 1, 5, 2).is_ok());
  zero.sent();
  const std::vector<ItemId> all = {{2, Rank(0), 0}, {2, Rank(0), 1}, {2, Rank(0), 2}};
  CHECK(zero.reassigner.leave(zero.now()) == all);
  CHECK(zero.sent() == "1:grant(5,2) 1:step_end 2:step_end");
  CHECK(zero.claim().kind == Kind::kStepOver);
  CHECK(zero.reassigner.leave(zero.now()).empty());
}

TEST_CASE("a rank that leaves within a taken item gives it back, too") {
  RankZero zero;
  zero.learn(2);
  zero.claim();
  CHECK(zero.grant(RankZero::kOne, 1, 5, 2).is_ok());
  CHECK(zero.finish_and_claim().id == ItemId{2, Rank(1), 5});
  CHECK(zero.reassigner.report().taken.size() == 1);
  zero.sent();
  const std::vector<ItemId> own = {{2, Rank(0), 1}};
  CHECK(zero.reassigner.leave(zero.now()) == own);
  CHECK(zero.reassigner.report().taken.empty());
  CHECK(zero.sent() == "1:grant(6,1) 1:grant(5,1) 1:step_end 2:step_end");
}

TEST_CASE("an item that takes much longer than expected is told at the next look") {
  RankZero zero;
  zero.learn(4);
  zero.claim();
  CHECK(zero.reassigner.next_look() == TimePoint(std::chrono::milliseconds(30)));
  zero.ms = 25;
  zero.reassigner.on_time(zero.now());
  CHECK(zero.sent().empty());
  zero.ms = 50;
  zero.reassigner.on_time(zero.now());
  CHECK(zero.sent() == "1:progress 2:progress");
  CHECK(zero.last.news.ns_per_cost == 4e7);
  CHECK(zero.reassigner.next_look() == TimePoint(std::chrono::milliseconds(90)));
}

TEST_CASE("options out of their range are refused by name") {
  ReassignOptions options;
  CHECK(check(options).is_ok());
  options.behind = -0.1;
  CHECK(check(options).message().find("behind is -0.1") == 0);
  options = {};
  options.answer_timeout = Duration(0);
  CHECK(check(options).message().find("answer_timeout is 0") == 0);
  options = {};
  options.absent_patience = 11;
  CHECK(check(options).message().find("absent_patience is 11") == 0);
  options = {};
  options.grant.first_block = 2;
  CHECK(check(options).message().find("first_block is 2") == 0);
}

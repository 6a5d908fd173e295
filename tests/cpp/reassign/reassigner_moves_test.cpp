// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "reassign/rank_zero.h"

using namespace aikido;
using namespace aikido::reassign;
using Kind = Claim::Kind;

namespace {

constexpr Rank kOne = RankZero::kOne, kTwo = RankZero::kTwo;

// Rank 0 in its last of `num_items` items, when rank 1 has 100 ms to do.
struct Late : RankZero {
  explicit Late(const ReassignOptions& options = fast_options()) : RankZero(options) {
    learn(1);
    CHECK_FALSE(claim_late());
  }
  bool claim_late() {
    CHECK(receive(kOne, MessageKind::kProgress, 0, 100, 8).is_ok());
    return claim().is_last;
  }
};

}  // namespace

TEST_CASE("a rank asks when it begins its last item, and not before") {
  ReassignOptions options = RankZero::fast_options();
  options.behind = 100;
  RankZero zero(options);
  zero.learn(2);
  CHECK(zero.receive(kOne, MessageKind::kProgress, 0, 100, 8).is_ok());
  zero.claim();
  CHECK(zero.sent().empty());
  CHECK_FALSE(zero.finish_and_claim().is_last);
  CHECK(zero.sent() == "1:request");
  CHECK(zero.last.news.remaining == std::chrono::milliseconds(10));
  CHECK(zero.receive(kOne, MessageKind::kProgress, 0, 100, 8).is_ok());
  CHECK(zero.sent().empty());  // one request at a time
}

TEST_CASE("a rank asks early if an owner is far behind") {
  RankZero zero;
  zero.learn(10);
  zero.claim();
  zero.finish_and_claim();
  CHECK(zero.receive(kOne, MessageKind::kProgress, 0, 109, 8).is_ok());
  CHECK(zero.sent().empty());
  CHECK(zero.receive(kTwo, MessageKind::kProgress, 0, 111, 8).is_ok());
  CHECK(zero.sent() == "2:request");
}

TEST_CASE("a rank asks early only after it has finished an item in the step") {
  RankZero zero;
  zero.learn(10);
  CHECK(zero.receive(kTwo, MessageKind::kProgress, 0, 500, 40).is_ok());
  zero.claim();
  CHECK(zero.sent().empty());
  zero.finish_and_claim();
  CHECK(zero.sent() == "2:request");
}

TEST_CASE("a rank asks the owner that will be the last") {
  RankZero zero;
  zero.learn(1);
  CHECK(zero.receive(kTwo, MessageKind::kProgress, 0, 90, 9).is_ok());
  zero.claim();
  CHECK(zero.sent() == "2:request");
  CHECK(zero.receive(kTwo, MessageKind::kDecline, 1, 90, 9).is_ok());
  CHECK(zero.receive(kTwo, MessageKind::kProgress, 0, 190, 9).is_ok());
  CHECK(zero.receive(kOne, MessageKind::kProgress, 0, 100, 9).is_ok());
  CHECK(zero.sent() == "2:request");
}

TEST_CASE("a rank that computes as fast as all others asks nobody") {
  RankZero zero;
  zero.learn(1);
  CHECK(zero.receive(kOne, MessageKind::kProgress, 0, 20, 1).is_ok());
  CHECK(zero.claim().is_last);
  CHECK(zero.sent() == "1:step_end 2:step_end");
}

TEST_CASE("granted items follow the running item, and each is told when it is done") {
  Late zero;
  zero.sent();
  CHECK(zero.grant(kOne, 1, 6, 2).is_ok());
  CHECK(zero.sent() == "1:confirm");
  const Claim taken = zero.finish_and_claim();
  CHECK(taken.id == ItemId{2, kOne, 6});
  CHECK(taken.spec.label == 906);
  // The own end has moved: the others learn that.
  CHECK(zero.sent() == "1:progress 2:progress");
  CHECK(zero.finish_and_claim().id == ItemId{2, kOne, 7});
  CHECK(zero.sent().find("1:done") == 0);
  CHECK(zero.reassigner.report().taken.size() == 2);
}

TEST_CASE("a rank that was declined does not ask again without news") {
  Late zero;
  zero.sent();
  CHECK(zero.receive(kOne, MessageKind::kDecline, 1, 100, 8).is_ok());
  CHECK(zero.sent().empty());
  CHECK(zero.finish_and_claim().kind == Kind::kStepOver);
}

TEST_CASE(
    "a request without an answer ends at its deadline, and a late grant is refused") {
  Late zero;
  zero.sent();
  const Claim wait = zero.finish_and_claim();
  CHECK(wait.kind == Kind::kWait);
  CHECK(wait.until == TimePoint(std::chrono::milliseconds(60)));
  CHECK(zero.reassigner.next_look() == wait.until);
  zero.ms = 60;
  CHECK(zero.claim().kind == Kind::kStepOver);
  CHECK(zero.sent() == "1:step_end 2:step_end");
  CHECK(zero.grant(kOne, 1, 6, 2).is_ok());
  CHECK(zero.sent() == "1:refuse");
  CHECK(zero.claim().kind == Kind::kStepOver);
}

TEST_CASE("a grant that is late but within the step is taken") {
  Late zero;
  zero.ms = 70;
  zero.reassigner.on_time(zero.now());
  zero.sent();
  CHECK(zero.grant(kOne, 1, 6, 2).is_ok());
  CHECK(zero.sent() == "1:confirm");
}

TEST_CASE("a request to a lost rank ends at once") {
  Late zero;
  zero.reassigner.on_peer_lost(kOne, zero.now());
  CHECK(zero.finish_and_claim().kind == Kind::kStepOver);
}

TEST_CASE("an owner grants from the tail so that both come to an end together") {
  RankZero zero;
  zero.learn(8);
  CHECK(zero.receive(kTwo, MessageKind::kStepEnd, 0, 0, 0).is_ok());
  zero.claim();
  zero.sent();
  CHECK(zero.receive(kOne, MessageKind::kRequest, 4, 10, 0).is_ok());
  // The own end has moved: the others learn that.
  CHECK(zero.sent() == "1:grant(5,3) 1:progress 2:progress");
  CHECK(zero.reassigner.table()->unclaimed() == ItemRange{1, 4});
  CHECK(zero.reassigner.report().num_given == 3);
}

TEST_CASE("an owner declines if it is not in the step, or a move is no gain") {
  RankZero zero;
  zero.learn(2);
  zero.claim();
  CHECK(zero.receive(kOne, MessageKind::kRequest, 1, 10, 0).is_ok());
  CHECK(zero.sent() == "1:decline");
  Message later;
  later.step = 3;
  CHECK(zero.receive(kOne, MessageKind::kRequest, 2, 0, 0, later).is_ok());
  CHECK(zero.sent() == "1:decline");
  CHECK(zero.last.step == 3);
}

TEST_CASE("an owner computes refused items itself, and waits for answers") {
  RankZero zero;
  zero.learn(3);
  zero.claim();
  CHECK(zero.receive(kTwo, MessageKind::kStepEnd, 0, 0, 0).is_ok());
  CHECK(zero.receive(kOne, MessageKind::kRequest, 1, 0, 0).is_ok());
  CHECK(zero.sent() == "1:grant(2,1) 1:progress 2:progress");
  CHECK_FALSE(zero.finish_and_claim().is_last);
  CHECK(zero.finish_and_claim().kind == Kind::kWait);
  CHECK(zero.receive(kOne, MessageKind::kRefuse, 1, 0, 0).is_ok());
  CHECK(zero.claim().id == ItemId{2, Rank(0), 2});
  CHECK(zero.reassigner.report().num_given == 0);
}

TEST_CASE("an owner that is idle cancels items that its helper has not begun") {
  RankZero zero;
  zero.learn(8);
  CHECK(zero.receive(kTwo, MessageKind::kStepEnd, 0, 0, 0).is_ok());
  zero.claim();
  CHECK(zero.receive(kOne, MessageKind::kRequest, 1, 10, 0).is_ok());
  CHECK(zero.sent().find("1:grant(5,3)") == 0);
  CHECK(zero.receive(kOne, MessageKind::kConfirm, 1, 40, 0).is_ok());
  for (int i = 0; i < 3; ++i) zero.finish_and_claim();
  zero.ns_per_cost = 1e8;  // the helper has become slow
  CHECK(zero.receive(kOne, MessageKind::kProgress, 0, 300, 0).is_ok());
  zero.sent();
  CHECK_FALSE(zero.finish_and_claim().is_last);
  CHECK(zero.sent() == "1:cancel");
  CHECK(zero.grant(kOne, 1, 6, 2, Rank(0)).is_ok());
  CHECK(zero.finish_and_claim().id == ItemId{2, Rank(0), 6});
  CHECK(zero.reassigner.report().num_given == 1);
}

TEST_CASE("a helper gives back the tail of the items that it has not begun") {
  Late zero;
  CHECK(zero.grant(kOne, 1, 4, 4).is_ok());
  zero.sent();
  CHECK(zero.receive(kOne, MessageKind::kCancel, 3, 0, 0).is_ok());
  CHECK(zero.sent() == "1:grant(6,2)");
  CHECK(zero.last.owner == kOne);
  CHECK(zero.finish_and_claim().id.index == 4);
  CHECK(zero.finish_and_claim().id.index == 5);
  zero.sent();
  CHECK(zero.receive(kOne, MessageKind::kCancel, 4, 0, 0).is_ok());
  CHECK(zero.sent() == "1:decline");
}

TEST_CASE("items of a skipped helper are reported") {
  RankZero zero;
  zero.learn(8);
  zero.claim();
  CHECK(zero.receive(kOne, MessageKind::kRequest, 1, 10, 0).is_ok());
  CHECK(zero.receive(kOne, MessageKind::kConfirm, 1, 40, 0).is_ok());
  RankSet contributors(3);
  contributors.insert(Rank(0));
  zero.reassigner.on_outcome(2, contributors);
  const auto losses = zero.reassigner.take_losses();
  REQUIRE_FALSE(losses.empty());
  CHECK(losses[0].helper == kOne);
  CHECK(losses[0].spec.label == 100 + losses[0].id.index);
}

TEST_CASE("nonsense from a peer is refused with a sentence") {
  RankZero zero;
  zero.learn(2);
  CHECK(
      zero.receive(Rank(7), MessageKind::kProgress, 0, 0, 0).message() ==
      "rank 7 sends a message about moved work to rank 0, and is not in its helper "
      "group; check that all ranks have the same number of helpers and the same hosts");
  CHECK(zero.grant(kOne, 1, 0, 1, kTwo).message() ==
        "rank 1 grants items of rank 2; only an owner grants its items");
  CHECK(zero.grant(kOne, 1, 0, 1, Rank(0)).code() == Code::kProtocol);
  const std::vector<std::byte> bytes(3);
  CHECK(
      zero.reassigner.on_message(kOne, bytes, zero.now()).message().find("rank 1: ") ==
      0);
}

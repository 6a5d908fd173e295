// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "engine/shard_owners.h"

#include "harness/catch.h"
#include "harness/manual_clock.h"

using namespace aikido;
using engine::ShardOwners;
using membership::View;
using membership::ViewMessage;
using membership::ViewStep;

namespace {

constexpr int32_t kSize = 4;

struct Host final : membership::ViewChangeHost {
  void send_view(Rank, const ViewMessage& message) override { sent.push_back(message); }
  membership::Report report() const override {
    membership::Report report;
    report.lost = RankSet(kSize);
    return report;
  }
  void on_promise() override {}
  void on_install(const View&) override {}
  std::optional<Status> compare(Rank, const membership::Report&) const override {
    return Status::ok();
  }
  void on_refused(const Status&) override {}

  std::vector<ViewMessage> sent;
};

// Rank 0 of four.
struct Case {
  testing::ManualClock clock;
  uint32_t epoch = 1;
  engine::Watermarks marks;
  engine::Peers peers{
      &clock, {"test", Rank(0), kSize, {}, 1 << 10, 1 << 10}, {&epoch, &marks}};
  engine::PolicyTable policies{kSize, 1000};
  engine::MemberEvents events{nullptr, "test", Rank(0), kSize};
  Host host;
  membership::ViewChange change{Rank(0), kSize, &host};
  ShardOwners owners{Rank(0), kSize, {&clock, &peers, &policies, &change, &events}};

  // The next view, in which `without` owns nothing.
  void move_shards_from(Rank without) {
    ViewMessage message;
    message.step = ViewStep::kView;
    message.proposed = change.view();
    message.proposed->number += 1;
    membership::Cut cut = message.proposed->cuts.back();
    cut.first = Seq(2);
    for (Rank& owner : cut.owners)
      if (owner == without) owner = Rank(0);
    message.proposed->cuts.push_back(cut);
    REQUIRE(change.on_message(Rank(1), message, clock.now()).is_ok());
    REQUIRE_FALSE(change.view().is_owner(without));
    owners.on_view(change.view());
    host.sent.clear();
  }
};

}  // namespace

TEST_CASE("half of the members keep their shards, however many are suspected") {
  Case c;
  CHECK(c.owners.suspect(Rank(1)));
  CHECK(c.change.is_suspected(Rank(1)));
  CHECK(c.owners.suspect(Rank(2)));
  CHECK_FALSE(c.owners.suspect(Rank(3)));
  CHECK_FALSE(c.change.is_suspected(Rank(3)));
}

TEST_CASE("advice moves the shards of a slow link at the next opportunity") {
  Case c;
  c.owners.advise(Rank(2), straggler::Advice::kCaller);
  CHECK_FALSE(c.owners.is_due());
  c.owners.advise(Rank(2), straggler::Advice::kLink);
  CHECK(c.owners.is_due());
  CHECK_FALSE(c.change.is_suspected(Rank(2)));
  c.owners.change_if_due();
  CHECK(c.change.is_suspected(Rank(2)));
  CHECK_FALSE(c.owners.is_due());
}

TEST_CASE("a full sum leads to a change only before the next call") {
  Case c;
  c.owners.advise(Rank(2), straggler::Advice::kLink);
  c.owners.on_result(true);
  c.owners.change_before_call();
  CHECK(c.change.is_suspected(Rank(2)));
  c.owners.on_result(true);
  CHECK_FALSE(c.owners.is_due());
}

TEST_CASE("members without shards that have called get shards back for a late owner") {
  for (const bool has_called : {false, true}) {
    CAPTURE(has_called);
    Case c;
    c.move_shards_from(Rank(3));
    c.marks.acked = 4;
    c.peers[Rank(3)].note_called(has_called ? 5 : 4);
    c.owners.restore_for(Rank(1));
    CHECK(c.host.sent.empty() == !has_called);  // requests of a view change
  }
}

TEST_CASE("the measurements of a member end when its shards move") {
  Case c;
  for (int i = 0; i < 4; ++i) c.peers[Rank(3)].share.on_close(2, 2, c.clock.now());
  REQUIRE(c.peers[Rank(3)].share.suits(c.clock.now()) == straggler::Suits::kYes);
  c.move_shards_from(Rank(3));
  CHECK(c.peers[Rank(3)].share.suits(c.clock.now()) == straggler::Suits::kUnknown);
}

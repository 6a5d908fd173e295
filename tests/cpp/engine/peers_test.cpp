// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "engine/peers.h"

#include "harness/catch.h"
#include "harness/manual_clock.h"
#include "harness/spy_link.h"

using namespace aikido;
using engine::Peers;
using std::chrono::seconds;

namespace {

bool has(const Status& status, const std::string& text) {
  return status.message().find(text) != std::string::npos;
}

// Rank 0 of four, connected to the others.
struct Case {
  testing::ManualClock clock;
  uint32_t epoch = 1;
  engine::Watermarks marks;
  Peers peers{&clock,
              {"test", Rank(0), 4, {seconds(1), seconds(3)}, 1 << 10, 1 << 10},
              {&epoch, &marks}};

  std::vector<testing::SpyLink*> links;  // of ranks 1, 2, 3

  Case() {
    for (int32_t r = 1; r < 4; ++r) {
      auto link = std::make_unique<testing::SpyLink>();
      links.push_back(link.get());
      peers.attach(Rank(r), std::move(link));
    }
  }
  // All ranks except `silent` are heard.
  void pass(Duration time, Rank silent = kNoRank) {
    for (Duration t{}; t < time; t += seconds(1)) {
      clock.advance(seconds(1));
      for (int32_t r = 1; r < 4; ++r)
        if (Rank(r) != silent) peers.heartbeats().on_heard(Rank(r));
      peers.heartbeats().on_time(clock.now());
    }
  }
  void leave(Rank rank) {
    peers[rank].end.has_left = true;
    peers.on_lost(rank, Status(Code::kPeerLost, "closed"));
  }
  void die(Rank rank) { peers.on_lost(rank, Status(Code::kPeerLost, "reset")); }
};

}  // namespace

TEST_CASE("members that answer can be reached") {
  Case c;
  c.pass(seconds(10));
  CHECK(c.peers.is_reachable(Rank(1)));
  CHECK(c.peers.is_reachable(kNoRank));
  CHECK(c.peers.silence().is_ok());
  CHECK(c.peers.death().is_ok());
  CHECK_FALSE(c.peers.has_gone(Rank(1)));
  CHECK_FALSE(c.peers.reason_to_leave());
}

TEST_CASE("a broken connection is a death, also for messages to any member") {
  Case c;
  c.die(Rank(2));
  CHECK(c.peers.is_anybody_lost());
  CHECK(c.peers.has_gone(Rank(2)));
  CHECK(has(c.peers.loss(Rank(2)), "reset"));
  CHECK(c.peers.death().culprit() == Rank(2));
  CHECK(c.peers.last_loss()->culprit() == Rank(2));
  CHECK_FALSE(c.peers.is_reachable(Rank(2)));
  CHECK_FALSE(c.peers.is_reachable(kNoRank));
  CHECK(c.peers.is_reachable(Rank(1)));
  c.pass(seconds(10));
  CHECK(c.peers.silence().is_ok());  // a lost member is not silent
}

TEST_CASE("a member that has left is no death") {
  Case c;
  c.leave(Rank(2));
  CHECK(c.peers.has_gone(Rank(2)));
  CHECK(c.peers.death().is_ok());
  CHECK_FALSE(c.peers.last_loss());
  CHECK_FALSE(c.peers.is_reachable(Rank(2)));
  CHECK(c.peers.is_reachable(kNoRank));
}

TEST_CASE("a member that left for a loss passes its reason on") {
  Case c;
  c.peers[Rank(2)].end.reason_to_leave =
      Status(Code::kPeerLost, "rank 3 died", Rank(3));
  c.leave(Rank(2));
  CHECK(c.peers.loss(Rank(2)).culprit() == Rank(3));
}

TEST_CASE("a silent member cannot be reached while nothing comes from it") {
  Case c;
  c.pass(seconds(10), Rank(3));
  CHECK(c.peers.silence().culprit() == Rank(3));
  CHECK(has(c.peers.loss(Rank(3)), "\"test\""));
  CHECK_FALSE(c.peers.is_reachable(Rank(3)));
  CHECK(c.peers.is_reachable(kNoRank));
  CHECK_FALSE(c.peers.has_gone(Rank(3)));
  c.pass(seconds(1));
  CHECK(c.peers.silence().is_ok());
  CHECK(c.peers.is_reachable(Rank(3)));
}

TEST_CASE("the reason to leave is the last loss, or a missed member that is silent") {
  Case c;
  c.peers.note_missed(Rank(3));
  CHECK_FALSE(c.peers.reason_to_leave());
  c.pass(seconds(10), Rank(3));
  CHECK(c.peers.reason_to_leave()->culprit() == Rank(3));
  c.pass(seconds(1));
  CHECK(c.peers.reason_to_leave()->culprit() == Rank(3));  // the answer stays
  c.peers.forgive();
  CHECK_FALSE(c.peers.reason_to_leave());
  c.peers.note_loss(Status(Code::kPeerLost, "rank 1 died", Rank(1)));
  CHECK(c.peers.reason_to_leave()->culprit() == Rank(1));
}

TEST_CASE("the calls of the local member are those of its marks") {
  Case c;
  c.marks.called = 5;
  c.marks.acked = 4;
  c.peers[Rank(1)].note_called(3);
  c.peers[Rank(1)].note_acked(2);
  CHECK(c.peers.called_by(Rank(0)) == 5);
  CHECK(c.peers.acked_by(Rank(0)) == 4);
  CHECK(c.peers.called_by(Rank(1)) == 3);
  CHECK(c.peers.acked_by(Rank(1)) == 2);
}

TEST_CASE("members that have called are no longer awaited") {
  Case c;
  c.peers[Rank(1)].note_called(5);
  c.peers[Rank(2)].note_called(4);
  CHECK(c.peers.not_called({Rank(1), Rank(2), Rank(3)}, 5) ==
        std::vector{Rank(2), Rank(3)});
}

TEST_CASE("an abort goes to all other members") {
  Case c;
  c.peers.send_abort(Seq(5), Status(Code::kTimedOut, "late"));
  for (const auto* link : c.links) {
    REQUIRE(link->sent.size() == 1);
    CHECK(link->sent[0].header.kind == transport::FrameKind::kAbort);
    CHECK(link->sent[0].header.seq == 5);
  }
}

TEST_CASE("a member with too many failed calls ahead of it is given up") {
  Case c;
  c.peers[Rank(1)].note_called(1);
  c.peers.send_abort(Seq(Peers::kMaxFailedAhead + 1), Status(Code::kTimedOut, "late"));
  CHECK(c.links[0]->sent.size() == 1);
  CHECK_FALSE(c.peers[Rank(1)].end.given_up);
  CHECK(c.links[1]->sent.empty());
  REQUIRE(c.peers[Rank(2)].end.given_up);
  CHECK(has(*c.peers[Rank(2)].end.given_up, "has not called for more than 16384"));
}

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "collectives/skippable/incoming_frames.h"

#include "harness/catch.h"
#include "harness/idle_host.h"

using namespace aikido;
using namespace aikido::testing;
using collectives::IncomingFrames;
using transport::FrameKind;

TEST_CASE("a frame belongs to its kind and shard until it ends") {
  IdleHost host(3);
  IncomingFrames frames(&host, Seq(1));
  frames.begin(Rank(1));
  CHECK_FALSE(frames.end(Rank(1), FrameKind::kContrib, 0));
  frames.write(Rank(1), FrameKind::kContrib, 2);
  SECTION("it ends once") {
    CHECK(frames.end(Rank(1), FrameKind::kContrib, 2));
    CHECK_FALSE(frames.end(Rank(1), FrameKind::kContrib, 2));
  }
  SECTION("a frame of another kind, shard or sender is a different frame") {
    CHECK_FALSE(frames.end(Rank(2), FrameKind::kContrib, 2));
    frames.drop(Rank(1), FrameKind::kResult, 2);
    frames.drop(Rank(1), FrameKind::kContrib, 1);
    frames.drop(Rank(2), FrameKind::kContrib, 2);
    CHECK(frames.end(Rank(1), FrameKind::kContrib, 2));
  }
  SECTION("a dropped frame does not end") {
    frames.drop(Rank(1), FrameKind::kContrib, 2);
    CHECK_FALSE(frames.end(Rank(1), FrameKind::kContrib, 2));
  }
  SECTION("the frames of all senders are dropped together") {
    frames.write(Rank(2), FrameKind::kContrib, 2);
    frames.drop_all(FrameKind::kContrib, 2);
    CHECK_FALSE(frames.end(Rank(1), FrameKind::kContrib, 2));
    CHECK_FALSE(frames.end(Rank(2), FrameKind::kContrib, 2));
  }
  SECTION("the next frame of the sender replaces it") {
    frames.begin(Rank(1));
    CHECK_FALSE(frames.end(Rank(1), FrameKind::kContrib, 2));
  }
}

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "engine/early_data.h"

#include "harness/catch.h"

using namespace aikido;
using engine::EarlyData;
using transport::FrameHeader;
using transport::FrameKind;

namespace {

constexpr uint64_t kWindow = 1 << 20, kLog = 1 << 21;
constexpr size_t kUnasked = 1 << 10;

FrameHeader first_frame(FrameKind kind, uint64_t seq, uint64_t bytes) {
  FrameHeader h;
  h.kind = kind;
  h.seq = seq;
  h.total_bytes = bytes;
  h.payload_bytes = 100;
  return h;
}

struct Case {
  uint64_t called = 0;
  EarlyData early{kWindow, kLog, &called};

  bool admits(const FrameHeader& h) { return early.admit(h, kUnasked).is_ok(); }
  // The first of many messages of `bytes` that is refused; each is for a new call.
  int first_refused(FrameKind kind, uint64_t bytes) {
    for (int i = 1; i < 10000; ++i)
      if (!admits(first_frame(kind, static_cast<uint64_t>(i) + 1, bytes))) return i;
    return 0;
  }
};

}  // namespace

TEST_CASE("contributions and results before the call have limits of their own") {
  Case c;
  const int contributions = c.first_refused(FrameKind::kContrib, kWindow / 4);
  const int results = c.first_refused(FrameKind::kResult, kWindow / 4);
  CHECK(contributions > 0);
  CHECK(results > contributions);
}

TEST_CASE("a refused message is named with the calls that it runs ahead of") {
  Case c;
  c.called = 1;
  REQUIRE(c.admits(first_frame(FrameKind::kContrib, 3, 2 * kWindow)));
  const Status refused =
      c.early.admit(first_frame(FrameKind::kContrib, 4, 2 * kWindow), kUnasked);
  CHECK(refused.code() == Code::kProtocol);
  CHECK(refused.message().find("up to number 4, while 1 are called") !=
        std::string::npos);
}

TEST_CASE("of a block only the part that may be sent unasked counts") {
  Case c;
  for (uint64_t seq = 1; seq <= 8; ++seq)
    CHECK(c.admits(first_frame(FrameKind::kData, seq, kWindow)));
}

TEST_CASE("later frames of a message are admitted with the first") {
  Case c;
  REQUIRE(c.admits(first_frame(FrameKind::kContrib, 2, 2 * kWindow)));
  FrameHeader h = first_frame(FrameKind::kContrib, 3, 2 * kWindow);
  CHECK_FALSE(c.admits(h));
  h.offset = 100;
  CHECK(c.admits(h));
}

TEST_CASE("dropped contributions and forgotten results make room") {
  for (const FrameKind kind : {FrameKind::kContrib, FrameKind::kResult}) {
    CAPTURE(static_cast<int>(kind));
    Case c;
    REQUIRE(c.admits(first_frame(kind, 2, 2 * kLog)));
    CHECK_FALSE(c.admits(first_frame(kind, 3, 2 * kLog)));
    for (const uint64_t seq : {2, 3}) c.early.note_dropped(seq);
    CHECK(c.admits(first_frame(kind, 4, 2 * kLog)) == (kind == FrameKind::kContrib));
    for (const uint64_t seq : {2, 3, 4}) c.early.forget_results(seq);
    if (kind == FrameKind::kResult) CHECK(c.admits(first_frame(kind, 5, 2 * kLog)));
  }
}

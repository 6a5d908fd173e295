// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "engine/incoming_texts.h"

#include "harness/catch.h"

using namespace aikido;
using engine::IncomingTexts;
using transport::FrameHeader;
using transport::FrameKind;

TEST_CASE("an abort of the group says which calls it spares") {
  IncomingTexts texts;
  const uint64_t told = 7;
  const auto extension = std::as_bytes(std::span(&told, 1));
  FrameHeader h;
  h.kind = FrameKind::kAbort;
  h.total_bytes = 2000;
  h.payload_bytes = 600;
  REQUIRE(texts.place_abort(h, extension).is_ok());
  CHECK(texts.spared() == 7);
  h.offset = 600;  // only the first frame contains them
  REQUIRE(texts.place_abort(h, {}).is_ok());
  CHECK(texts.spared() == 7);
  h.offset = 0;
  REQUIRE(texts.place_abort(h, {}).is_ok());
  CHECK(texts.spared() == 0);
  CHECK(texts.place_abort(h, extension.first(5)).status().code() == Code::kProtocol);
}

TEST_CASE(
    "a message about the view takes memory as it arrives, and its size is limited") {
  IncomingTexts texts;
  FrameHeader h;
  h.kind = FrameKind::kView;
  h.total_bytes = size_t{64} << 20;
  h.payload_bytes = 100;
  REQUIRE(texts.place_view(h).is_ok());
  CHECK_FALSE(texts.read_view(h));
  h.offset = 100;
  CHECK(texts.place_view(h).is_ok());
  h.offset = 300;  // a gap before it
  auto gap = texts.place_view(h);
  REQUIRE_FALSE(gap.is_ok());
  CHECK(gap.status().message() ==
        "byte 300 of a message about the view after byte 200");
  h.offset = 0;
  CHECK(texts.place_view(h).is_ok());  // a new message
  h.total_bytes += 1;
  auto large = texts.place_view(h);
  REQUIRE_FALSE(large.is_ok());
  CHECK(large.status().code() == Code::kProtocol);
}

TEST_CASE("an abort with an unknown code or culprit is still an abort") {
  IncomingTexts texts;
  FrameHeader h;
  h.kind = FrameKind::kAbort;
  h.shard = 999;
  h.tag = 4;
  REQUIRE(texts.place_abort(h, {}).is_ok());
  const auto why = texts.read_abort(h, 4);
  REQUIRE(why);
  CHECK(why->code() == Code::kAborted);
  CHECK(why->culprit() == kNoRank);
}

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "membership/view_message.h"

#include "harness/catch.h"
#include "harness/hex.h"
#include "harness/views.h"

using namespace aikido;
using namespace aikido::membership;
using namespace aikido::testing;

namespace {

constexpr int32_t kSize = 3;

View next() {
  View view = View::first_of(kSize);
  view.number = 3;
  view.held = {{Seq(4), 1, Rank(2), set_of(kSize, {0})}};
  return view;
}

// One message of each step, from a member in view 2.
std::vector<ViewMessage> samples() {
  std::vector<ViewMessage> all;
  for (auto step = static_cast<uint8_t>(ViewStep::kPrepare);
       step <= static_cast<uint8_t>(ViewStep::kRefuse); ++step) {
    ViewMessage m;
    m.step = static_cast<ViewStep>(step);
    m.view = 2;
    m.ballot = {7, Rank(1)};
    if (m.step == ViewStep::kState || m.step == ViewStep::kJoin) {
      m.report = report_of(kSize, 9, 3, {{Seq(4), 1, 77}, {Seq(5), 0, UINT64_MAX}});
      m.report.closed = {{Seq(5), 1, 78}, {Seq(6), 0, 79}};
      m.report.lost.insert(Rank(2));
      m.report.kept = Seq(2);
      m.report.skipped_from = Seq(1);
      m.report.skipped_through = Seq(3);
      m.report.failed = {Seq(3), Seq(6)};
      m.report.open = Seq(5);
      m.report.needed = 2;
      m.report.divided = {{Seq(2), 0}, {Seq(2), 2}};
    }
    if (m.step == ViewStep::kPropose || m.step == ViewStep::kView) m.proposed = next();
    if (m.step == ViewStep::kView) m.proposed->number = 2;
    if (m.step == ViewStep::kRefuse) m.text = "no: too far behind";
    all.push_back(m);
  }
  all.push_back(all.back());
  all.back().text.clear();
  all.push_back(all[1]);
  all.back().accepted = AcceptedView{{6, Rank(0)}, next()};
  return all;
}

bool is_same(const ViewMessage& a, const ViewMessage& b) {
  return a.step == b.step && a.view == b.view && a.ballot == b.ballot &&
         a.report == b.report && a.accepted == b.accepted && a.proposed == b.proposed &&
         a.text == b.text;
}

bool is_refused(const ViewMessage& message, int32_t size = kSize) {
  auto decoded = decode_view_message(encode(message), size);
  return !decoded && decoded.status().code() == Code::kProtocol &&
         !decoded.status().message().empty();
}

}  // namespace

TEST_CASE("ballots are ordered by counter, then by rank") {
  CHECK(Ballot{1, Rank(2)} < Ballot{2, Rank(0)});
  CHECK(Ballot{2, Rank(0)} < Ballot{2, Rank(1)});
  CHECK(Ballot{2, Rank(1)} == Ballot{2, Rank(1)});
}

TEST_CASE(
    "messages about views survive encoding and decoding, and no part of them decodes") {
  for (const ViewMessage& message : samples()) {
    const auto bytes = encode(message);
    INFO("step " << static_cast<int>(message.step));
    auto decoded = decode_view_message(bytes, kSize);
    REQUIRE(decoded.is_ok());
    CHECK(is_same(*decoded, message));
    for (size_t n = 0; n < bytes.size(); ++n)
      REQUIRE_FALSE(decode_view_message(std::span(bytes).first(n), kSize).is_ok());
    auto longer = bytes;
    longer.push_back({});
    REQUIRE_FALSE(decode_view_message(longer, kSize).is_ok());
  }
}

TEST_CASE("the messages of PROTOCOL.md equal the encoded bytes") {
  ViewMessage m;
  m.view = 2;
  m.ballot = {7, Rank(1)};
  CHECK(to_hex(encode(m)) == "01 00 00 00 02 00 00 00 07 00 00 00 01 00 00 00");
  m.step = ViewStep::kState;
  m.report = report_of(kSize, 9, 3, {{Seq(4), 1, 0x77}});
  m.report.kept = Seq(2);
  m.report.skipped_from = m.report.skipped_through = Seq(1);
  m.report.failed = {Seq(2)};
  m.report.open = Seq(5);
  m.report.needed = 2;
  CHECK(to_hex(encode(m)) ==
        "02 00 00 00 02 00 00 00 07 00 00 00 01 00 00 00\n"
        "09 00 00 00 00 00 00 00 03 00 00 00 00 00 00 00\n"
        "02 00 00 00 00 00 00 00 05 00 00 00 00 00 00 00\n"
        "01 00 00 00 00 00 00 00 01 00 00 00 00 00 00 00\n"
        "02 00 00 00 01 00 00 00 02 00 00 00 00 00 00 00\n"
        "01 00 00 00 04 00 00 00 00 00 00 00 01 00 00 00\n"
        "77 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00\n"
        "00 00 00 00 00 00 00 00");
  m.step = ViewStep::kRefuse;
  m.text = "no";
  CHECK(to_hex(encode(m)) ==
        "07 00 00 00 02 00 00 00 07 00 00 00 01 00 00 00\n02 00 00 00 6e 6f");
  m.text.clear();
  CHECK(to_hex(encode(m)) ==
        "07 00 00 00 02 00 00 00 07 00 00 00 01 00 00 00\n00 00 00 00");
}

TEST_CASE("numbers of shards and parts that no cut has are refused") {
  const ViewMessage state = samples()[1];
  ViewMessage m;
  for (const int32_t number : {-1, kSize * (1 + Division::kMaxParts)}) {
    m = state;
    m.report.received[0].shard = number;
    CHECK(is_refused(m));
    m = state;
    m.report.closed[0].shard = number;
    CHECK(is_refused(m));
  }
  for (const int32_t shard : {-1, kSize}) {
    m = state;
    m.report.divided[0].second = shard;
    CHECK(is_refused(m));
  }
  m = state;
  m.report.divided[1].first = Seq(kMaxSeq + 1);
  CHECK(is_refused(m));
  m = state;
  m.report.divided[1] = m.report.divided[0];
  CHECK(is_refused(m));
}

TEST_CASE("bytes that no member sends are refused") {
  const auto all = samples();
  const ViewMessage& prepare = all[0];
  const ViewMessage& state = all[1];
  const ViewMessage& propose = all[2];
  const ViewMessage& view = all[4];
  // Invalid steps, and bytes that must have a fixed value.
  for (const auto& [at, value] :
       {std::pair(0, 0), {0, 8}, {0, 255}, {1, 1}, {2, 1}, {3, 1}}) {
    auto bytes = encode(prepare);
    bytes[static_cast<size_t>(at)] = static_cast<std::byte>(value);
    CHECK_FALSE(decode_view_message(bytes, kSize).is_ok());
  }
  auto two = encode(all.back());
  two[1] = std::byte{2};
  CHECK_FALSE(decode_view_message(two, kSize).is_ok());
  CHECK_FALSE(decode_view_message({}, kSize).is_ok());
  // A proposed or accepted view is the next view of its sender. An installed view is
  // the view of its sender.
  ViewMessage m = propose;
  m.proposed->number = 2;
  CHECK(is_refused(m));
  m.proposed->number = 4;
  CHECK(is_refused(m));
  m = view;
  m.proposed->number = 3;
  CHECK(is_refused(m));
  m = all.back();
  m.accepted->view.number = 2;
  CHECK(is_refused(m));
  m.accepted->view = View::first_of(kSize);
  m.accepted->view.number = 3;
  m.accepted->view.cuts.clear();
  CHECK(is_refused(m));
  // Reports.
  m = state;
  m.report.known = Seq(kMaxSeq + 1);
  CHECK(is_refused(m));
  m = state;
  m.report.acked = Seq(UINT64_MAX);
  CHECK(is_refused(m));
  m = state;
  m.report.kept = Seq(kMaxSeq + 1);
  CHECK(is_refused(m));
  m = state;
  m.report.open = Seq(kMaxSeq + 1);
  CHECK(is_refused(m));
  m = state;
  m.report.skipped_through = Seq(m.report.acked.value + 1);
  CHECK(is_refused(m));
  m = state;
  m.report.skipped_from = Seq(m.report.skipped_through.value + 1);
  CHECK(is_refused(m));
  m = state;
  m.report.failed[1] = Seq(kMaxSeq + 1);
  CHECK(is_refused(m));
  m = state;
  m.report.failed[1] = m.report.failed[0];
  CHECK(is_refused(m));
  for (const int32_t needed : {-1, kSize + 1}) {
    m = state;
    m.report.needed = needed;
    CHECK(is_refused(m));
  }
  m = state;
  std::swap(m.report.received[0], m.report.received[1]);
  CHECK(is_refused(m));
  m = state;
  m.report.received[1] = m.report.received[0];
  CHECK(is_refused(m));
  m = state;
  m.report.closed[1] = m.report.closed[0];
  CHECK(is_refused(m));
  m = state;
  m.report.received[1].seq = Seq(kMaxSeq + 1);
  CHECK(is_refused(m));
  CHECK(is_refused(state, 2));  // rank 2 is in its set of lost connections
}

TEST_CASE("announced counts take no memory before their bytes arrive") {
  // Counts of failed operations and of received results, in a message of a few bytes.
  for (const size_t at : {size_t{68}, size_t{88}}) {
    auto bytes = encode(samples()[1]);
    const uint32_t many = UINT32_MAX;
    std::memcpy(bytes.data() + at, &many, sizeof many);
    CHECK_FALSE(decode_view_message(bytes, kSize).is_ok());
  }
}

TEST_CASE("a sentence has a limit on the way out and on the way in") {
  ViewMessage m;
  m.step = ViewStep::kRefuse;
  m.text = std::string(5000, 'x');
  auto bytes = encode(m);
  auto decoded = decode_view_message(bytes, kSize);
  REQUIRE(decoded.is_ok());
  CHECK(decoded->text == std::string(1024, 'x'));
  const uint32_t longer = 1025;
  std::memcpy(bytes.data() + 16, &longer, sizeof longer);
  bytes.push_back(std::byte{'x'});
  CHECK_FALSE(decode_view_message(bytes, kSize).is_ok());
}

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "transport/send_trace.h"

#include "harness/catch.h"
#include "harness/manual_clock.h"

using namespace aikido;
using namespace aikido::testing;
using namespace aikido::transport;
using std::chrono::milliseconds;
using trace::SpanKind;

namespace {

OutMessage message(size_t bytes) {
  static const std::byte data{};
  OutMessage m;
  m.header.kind = FrameKind::kContrib;
  m.header.seq = 7;
  m.header.shard = 2;
  m.header.offset = 1000;
  m.data = &data;
  m.bytes = bytes;
  m.priority = 5;
  return m;
}

}  // namespace

TEST_CASE("a message has a span from its queue to the kernel, and each chunk has one") {
  ManualClock clock;
  trace::Recorder recorder(64, &clock);
  recorder.arm();
  SendTrace link(&recorder, Rank(3), 9);
  const auto wait = [&] { clock.advance(milliseconds(1)); };
  const int64_t t = trace::to_ns(clock.now());
  const auto at = [&](int ms) { return t + trace::to_ns(TimePoint(milliseconds(ms))); };
  link.on_queued(1, message(300));
  wait();
  link.on_picked(1, 0, 200);
  wait();
  link.on_picked(1, 200, 100);
  wait();
  link.on_written(1);
  wait();
  link.on_written(1);
  link.on_gone(1, 0);
  const auto spans = recorder.take().spans;
  REQUIRE(spans.size() == 3);
  for (const auto& span : spans) {
    CHECK(span.peer == 3);
    CHECK(span.name == 9);
    CHECK(span.number == 7);
    CHECK(span.shard == 2);
    CHECK(span.priority == 5);
    CHECK(span.detail == static_cast<uint8_t>(FrameKind::kContrib));
  }
  CHECK(spans[0].kind == SpanKind::kSendChunk);
  CHECK(spans[0].begin_ns == at(1));
  CHECK(spans[0].end_ns == at(3));
  CHECK(spans[0].offset == 1000);
  CHECK(spans[1].begin_ns == at(2));
  CHECK(spans[1].end_ns == at(4));
  CHECK(spans[1].offset == 1200);
  CHECK(spans[1].bytes == 100);
  CHECK(spans[2].kind == SpanKind::kSend);
  CHECK(spans[2].begin_ns == at(0));
  CHECK(spans[2].first_ns == at(1));
  CHECK(spans[2].end_ns == at(4));
  CHECK(spans[2].bytes == 300);
  CHECK(spans[2].outcome == trace::SpanOutcome::kComplete);
}

TEST_CASE("a chunk that waits again has one span, from its last pick") {
  ManualClock clock;
  trace::Recorder recorder(64, &clock);
  recorder.arm();
  SendTrace link(&recorder, Rank(3), 0);
  const int64_t t = trace::to_ns(clock.now());
  link.on_queued(1, message(300));
  link.on_picked(1, 0, 200);
  link.on_picked(1, 200, 100);
  for (int i = 0; i < 3; ++i) link.on_put_back(1);  // once more than there are slots
  link.on_put_back(2);
  clock.advance(milliseconds(1));
  link.on_picked(1, 0, 300);
  link.on_written(1);
  link.on_gone(1, 0);
  const auto spans = recorder.take().spans;
  REQUIRE(spans.size() == 2);
  CHECK(spans[0].begin_ns > t);
  CHECK(spans[0].bytes == 300);
  CHECK(spans[1].first_ns == spans[0].begin_ns);
}

TEST_CASE("a cancelled message has this outcome, and its chunks have no spans") {
  ManualClock clock;
  trace::Recorder recorder(64, &clock);
  recorder.arm();
  SendTrace link(&recorder, Rank(3), 0);
  link.on_queued(1, message(300));
  link.on_picked(1, 0, 200);
  link.on_gone(1, 100);
  link.on_written(1);
  const auto spans = recorder.take().spans;
  REQUIRE(spans.size() == 1);
  CHECK(spans[0].outcome == trace::SpanOutcome::kCancelled);
}

TEST_CASE(
    "messages that are not sent completely when the link is lost fail, and others do "
    "not") {
  ManualClock clock;
  trace::Recorder recorder(64, &clock);
  recorder.arm();
  SendTrace link(&recorder, Rank(3), 0);
  for (MessageId id = 1; id <= 3; ++id) link.on_queued(id, message(300));
  link.on_picked(1, 0, 300);
  link.on_written(1);
  link.on_gone(1, 0);
  link.on_picked(2, 0, 200);
  recorder.take();
  clock.advance(milliseconds(4));
  link.on_lost();
  link.on_lost();
  link.on_written(2);
  link.on_gone(2, 100);
  const auto spans = recorder.take().spans;
  REQUIRE(spans.size() == 2);
  for (const auto& span : spans) {
    CHECK(span.kind == SpanKind::kSend);
    CHECK(span.outcome == trace::SpanOutcome::kFailed);
    CHECK(span.end_ns == trace::to_ns(clock.now()));
  }
}

TEST_CASE(
    "messages that were queued without tracing, and control messages, have no span") {
  ManualClock clock;
  trace::Recorder recorder(64, &clock);
  SendTrace link(&recorder, Rank(3), 0), untraced;
  link.on_queued(1, message(300));
  recorder.arm();
  link.on_queued(2, message(0));
  untraced.on_queued(1, message(300));
  for (SendTrace* each : {&link, &untraced}) {
    each->on_picked(1, 0, 300);
    each->on_written(1);
    each->on_gone(1, 0);
    each->on_gone(2, 0);
  }
  CHECK(recorder.take().spans.empty());
}

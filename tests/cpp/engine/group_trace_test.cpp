// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "engine/group_trace.h"

#include <cmath>

#include "harness/catch.h"
#include "harness/cluster.h"

using namespace aikido;
using namespace aikido::testing;
using std::chrono::milliseconds;
using std::chrono::seconds;
using trace::Span;
using trace::SpanKind;
using trace::SpanOutcome;

namespace {

// Clock of one member, with an offset and a drift from the clock of the cluster.
class Skewed final : public Clock {
 public:
  Skewed(const Clock& base, Duration offset, double drift)
      : base_(base), offset_(offset), drift_(drift) {}
  [[nodiscard]] TimePoint now() const override {
    const auto since = static_cast<double>(base_.now().time_since_epoch().count());
    return base_.now() + offset_ + Duration(std::llround(drift_ * since));
  }

 private:
  const Clock& base_;
  Duration offset_;
  double drift_;
};

// A cluster in which the clock of rank r is ahead by r times `offset` and `drift`.
struct Traced {
  std::vector<std::unique_ptr<Skewed>> clocks;
  Cluster cluster;

  explicit Traced(int32_t size, Duration offset = {}, double drift = 0)
      : cluster(options(size, offset, drift)) {}

  ClusterOptions options(int32_t size, Duration offset, double drift) {
    ClusterOptions options;
    options.size = size;
    options.recorder = [this, offset, drift](int32_t rank, const Clock& clock) {
      clocks.push_back(std::make_unique<Skewed>(clock, rank * offset, rank * drift));
      return std::make_unique<trace::Recorder>(1024, clocks.back().get());
    };
    return options;
  }
  trace::Recorder& recorder(int32_t rank) { return cluster.recorder(rank); }
  std::vector<Span> take(int32_t rank, SpanKind kind) {
    auto spans = recorder(rank).take().spans;
    std::erase_if(spans, [kind](const Span& s) { return s.kind != kind; });
    return spans;
  }
  AnswerPtr allreduce(int32_t rank, const Call& call,
                      int32_t data_shard = straggler::kAnyDataShard) {
    return cluster.allreduce(rank, call, Bytes(call.bytes()), seconds(10), true, 0,
                             data_shard, recorder(rank).traced_step());
  }
  AnswerPtr broadcast(int32_t rank, const Call& call) {
    return cluster.broadcast(rank, call, Bytes(call.bytes()), seconds(10),
                             recorder(rank).traced_step());
  }
};

Call floats(uint64_t count) {
  Call call;
  call.dtype = DType::kFloat32;
  call.count = count;
  return call;
}

Call with_root(CallKind kind, uint64_t count) {
  Call call = floats(count);
  call.kind = kind;
  call.root = Rank(0);
  return call;
}

}  // namespace

TEST_CASE(
    "the span of a call has its begin, the last caller with its time, and the end") {
  Traced t(3);
  t.recorder(0).arm();
  t.recorder(0).set_step(41);
  const TimePoint begin = t.cluster.clock.now();
  std::vector<AnswerPtr> answers{t.allreduce(0, floats(512))};
  t.cluster.run_for(milliseconds(5));
  answers.push_back(t.allreduce(2, floats(512)));
  t.cluster.run_for(milliseconds(20));
  answers.push_back(t.allreduce(1, floats(512)));
  REQUIRE(t.cluster.run_until_done(answers, seconds(1)));
  const auto spans = t.take(0, SpanKind::kOperation);
  REQUIRE(spans.size() == 1);
  const Span& span = spans[0];
  CHECK(span.step == 41);
  CHECK(span.number == 1);
  CHECK(span.bytes == 2048);
  CHECK(span.peer == 1);
  CHECK(span.begin_ns == trace::to_ns(begin));
  CHECK(span.first_ns >= trace::to_ns(begin + milliseconds(25)));
  CHECK(span.first_ns < trace::to_ns(begin + milliseconds(27)));
  CHECK(span.end_ns == trace::to_ns(answers[0]->at));
  CHECK(span.detail == static_cast<uint8_t>(CallKind::kAllreduce));
  CHECK(span.outcome == SpanOutcome::kComplete);
  // The other members were not traced.
  CHECK(t.take(1, SpanKind::kOperation).empty());
}

TEST_CASE("a call that may skip has not waited for an excluded member") {
  Traced t(4);
  Call call = floats(512);
  call.policy.kind = straggler::Kind::kSkip;
  call.policy.floor = call.policy.ceiling = milliseconds(20);
  t.cluster.kill(2);
  t.cluster.run_for(milliseconds(1));
  t.recorder(0).arm();
  for (int i = 0; i < 2; ++i) {
    std::vector<AnswerPtr> answers{t.allreduce(0, call), t.allreduce(1, call)};
    t.cluster.run_for(milliseconds(5));
    answers.push_back(t.allreduce(3, call));
    REQUIRE(t.cluster.run_until_done(answers, seconds(1)));
  }
  const auto spans = t.take(0, SpanKind::kOperation);
  REQUIRE(spans.size() == 2);
  CHECK(spans[1].peer == 3);
  CHECK(spans[1].first_ns >= spans[1].begin_ns + 5'000'000);
}

TEST_CASE("the member that calls last has waited for no other member") {
  Traced t(2);
  t.recorder(1).arm();
  std::vector<AnswerPtr> answers{t.allreduce(0, floats(64))};
  t.cluster.run_for(milliseconds(5));
  const TimePoint called = t.cluster.clock.now();
  answers.push_back(t.allreduce(1, floats(64)));
  REQUIRE(t.cluster.run_until_done(answers, seconds(1)));
  const auto spans = t.take(1, SpanKind::kOperation);
  REQUIRE(spans.size() == 1);
  CHECK(spans[0].first_ns == trace::to_ns(called));
  CHECK(spans[0].peer == -1);
}

TEST_CASE("the span of a call that ends without a late member names this member") {
  Traced t(3);
  for (int32_t r = 0; r < 3; ++r) t.recorder(r).arm();
  Call call = floats(512);
  call.policy.kind = straggler::Kind::kSkip;
  call.policy.floor = call.policy.ceiling = milliseconds(20);
  std::vector<AnswerPtr> answers{t.allreduce(0, call)};
  t.cluster.run_for(milliseconds(5));
  answers.push_back(t.allreduce(1, call));  // in time, though after rank 0
  REQUIRE(t.cluster.run_until_done(answers, seconds(1)));
  t.cluster.run_for(milliseconds(50));
  answers.push_back(t.allreduce(2, call));
  REQUIRE(t.cluster.run_until_done(answers, seconds(1)));
  const auto in_time = t.take(0, SpanKind::kOperation);
  const auto late = t.take(2, SpanKind::kOperation);
  REQUIRE(in_time.size() == 1);
  CHECK(in_time[0].outcome == SpanOutcome::kComplete);
  CHECK(in_time[0].first_ns == in_time[0].end_ns);
  CHECK(in_time[0].peer == 2);
  REQUIRE(late.size() == 1);
  CHECK(late[0].outcome == SpanOutcome::kSkipped);
}

TEST_CASE(
    "a missing contribution of a primary is a hole, with the backup that filled it") {
  Traced t(4);
  Call call = skip_sum_call(512);
  call.op = ReduceOp::kAvg;
  call.policy.backups = 1;
  call.policy.floor = milliseconds(10);
  std::vector<AnswerPtr> answers;
  const auto call_all_of = [&](std::initializer_list<int32_t> primaries) {
    for (const int32_t r : primaries) answers.push_back(t.allreduce(r, call));
    answers.push_back(t.allreduce(3, call, 2));
    REQUIRE(t.cluster.run_until_done(answers, seconds(5)));
    t.cluster.run_for(milliseconds(100));
  };
  for (int i = 0; i < 4; ++i) call_all_of({0, 1, 2});  // so that lags are known
  for (int32_t r = 0; r < 4; ++r) t.recorder(r).arm();
  t.recorder(0).set_step(41);
  call_all_of({0, 1, 2});
  call_all_of({0, 1});
  call_all_of({0});
  for (int i = 0; i < 2; ++i) answers.push_back(t.allreduce(2, call));
  answers.push_back(t.allreduce(1, call));
  REQUIRE(t.cluster.run_until_done(answers, seconds(5)));
  for (int32_t r = 0; r < 4; ++r) {
    CAPTURE(r);
    const auto spans = t.recorder(r).take().spans;
    std::vector<Span> calls, holes;
    for (const Span& span : spans) {
      if (span.kind == SpanKind::kOperation) calls.push_back(span);
      if (span.kind != SpanKind::kHole) continue;
      holes.push_back(span);
      CHECK(calls.size() == span.number - 5);  // holes come before their call
    }
    REQUIRE(calls.size() == 3);
    for (const Span& span : calls) CHECK(span.shard == 3);
    REQUIRE(holes.size() == 3);
    for (const Span& hole : holes) {
      const Span& of = calls[hole.number - 5];
      CHECK(hole.begin_ns == of.begin_ns);
      CHECK(hole.first_ns == 0);
      CHECK(hole.end_ns == of.end_ns);
      CHECK(hole.step == of.step);
      CHECK(hole.name == of.name);
      CHECK(hole.bytes == call.bytes());
    }
    CHECK(holes[0].step == (r == 0 ? 41 : 0));
    CHECK(holes[0].number == 6);
    CHECK(holes[0].shard == 2);
    CHECK(holes[0].peer == 3);
    CHECK(holes[0].outcome == SpanOutcome::kComplete);
    CHECK(holes[1].number == 7);
    CHECK(holes[1].shard == 1);
    CHECK(holes[1].peer == -1);
    CHECK(holes[1].outcome == SpanOutcome::kSkipped);
    CHECK(holes[2].number == 7);
    CHECK(holes[2].shard == 2);
    CHECK(holes[2].peer == 3);
    CHECK(holes[2].outcome == SpanOutcome::kComplete);
  }
}

TEST_CASE("a call without backups, or a failed call, has no holes") {
  Traced t(3);
  t.recorder(0).arm();
  Call call = skip_sum_call(64);
  const auto skipped = t.allreduce(0, call);
  REQUIRE(t.cluster.run_until_done({skipped, t.allreduce(1, call)}, seconds(5)));
  REQUIRE(skipped->outcome.skipped.size() == 1);
  call.policy.backups = 1;
  call.op = ReduceOp::kAvg;
  const auto failed = t.allreduce(0, call);
  t.allreduce(1, skip_sum_call(64));
  REQUIRE(t.cluster.run_until_done({failed}, seconds(5)));
  REQUIRE_FALSE(failed->is_ok());
  const auto spans = t.recorder(0).take().spans;
  CHECK(std::none_of(spans.begin(), spans.end(),
                     [](const Span& s) { return s.kind == SpanKind::kHole; }));
  std::vector<int> num_data_shards;
  for (const Span& span : spans)
    if (span.kind == SpanKind::kOperation) num_data_shards.push_back(span.shard);
  CHECK(num_data_shards == std::vector<int>{0, 2});
}

TEST_CASE("a receiver of the root's data has waited for the root alone") {
  Traced t(3);
  for (int32_t r = 0; r < 3; ++r) t.recorder(r).arm();
  const Call call = with_root(CallKind::kBroadcast, 8);
  const TimePoint begin = t.cluster.clock.now();
  std::vector<AnswerPtr> answers{t.broadcast(1, call)};
  t.cluster.run_for(milliseconds(5));
  answers.push_back(t.broadcast(0, call));
  REQUIRE(t.cluster.run_until_done(answers, seconds(1)));
  const int64_t through = trace::to_ns(t.cluster.clock.now());
  t.cluster.run_for(milliseconds(50));
  answers.push_back(t.broadcast(2, call));
  REQUIRE(t.cluster.run_until_done(answers, seconds(1)));
  const auto receiver = t.take(1, SpanKind::kOperation);
  REQUIRE(receiver.size() == 1);
  CHECK(receiver[0].peer == 0);
  CHECK(receiver[0].first_ns >= trace::to_ns(begin + milliseconds(5)));
  CHECK(receiver[0].end_ns <= through);
  const auto root = t.take(0, SpanKind::kOperation);
  REQUIRE(root.size() == 1);
  CHECK(root[0].peer == -1);
  CHECK(root[0].first_ns == root[0].begin_ns);
}

TEST_CASE("a call by the inner backend waits for all members, whichever is the root") {
  Traced t(3);
  t.recorder(1).arm();
  Call call = with_root(CallKind::kBroadcast, 1 << 20);
  call.is_inner = true;
  const std::vector<std::optional<Bytes>> out(3, Bytes());
  const std::vector<std::optional<size_t>> in(3, 0);
  const auto tell = [&](int32_t rank) {
    auto others_out = out;
    auto others_in = in;
    others_out[static_cast<size_t>(rank)].reset();
    others_in[static_cast<size_t>(rank)].reset();
    return t.cluster.exchange(rank, call, others_out, others_in, seconds(10),
                              t.recorder(rank).traced_step());
  };
  std::vector<AnswerPtr> answers{tell(0), tell(1)};
  t.cluster.run_for(milliseconds(20));
  answers.push_back(tell(2));
  REQUIRE(t.cluster.run_until_done(answers, seconds(1)));
  const auto spans = t.take(1, SpanKind::kOperation);
  REQUIRE(spans.size() == 1);
  CHECK(spans[0].bytes == 4 << 20);
  CHECK(spans[0].peer == 2);
}

TEST_CASE("a root whose data is too large to be sent ahead has waited itself") {
  Traced t(3);
  t.recorder(0).arm();
  const Call call = with_root(CallKind::kBroadcast, 512);
  std::vector<AnswerPtr> answers{t.broadcast(0, call), t.broadcast(2, call)};
  t.cluster.run_for(milliseconds(20));
  const TimePoint called = t.cluster.clock.now();
  auto spans = t.take(0, SpanKind::kOperation);
  REQUIRE(spans.size() == 1);
  CHECK(spans[0].outcome == SpanOutcome::kOpen);
  CHECK(spans[0].peer == 1);
  answers.push_back(t.broadcast(1, call));
  REQUIRE(t.cluster.run_until_done(answers, seconds(1)));
  spans = t.take(0, SpanKind::kOperation);
  REQUIRE(spans.size() == 1);
  CHECK(spans[0].peer == 1);
  CHECK(spans[0].first_ns >= trace::to_ns(called));
}

TEST_CASE(
    "a member that gives data to the root has waited for nobody, unless its call "
    "fails") {
  Traced t(3);
  t.recorder(1).arm();
  const Call small = with_root(CallKind::kReduce, 8);
  const auto given = t.allreduce(1, small);
  REQUIRE(t.cluster.run_until_done({given}, seconds(1)));
  REQUIRE(given->is_ok());
  auto spans = t.take(1, SpanKind::kOperation);
  REQUIRE(spans.size() == 1);
  CHECK(spans[0].peer == -1);
  CHECK(spans[0].first_ns == spans[0].begin_ns);
  // Rank 0 does not call the broadcast.
  const auto alone = t.broadcast(1, with_root(CallKind::kBroadcast, 8));
  REQUIRE(t.cluster.run_until_done({alone}, seconds(30)));
  REQUIRE_FALSE(alone->is_ok());
  spans = t.take(1, SpanKind::kOperation);
  REQUIRE(spans.size() == 1);
  CHECK(spans[0].peer == 0);
  CHECK(spans[0].first_ns == spans[0].end_ns);
}

TEST_CASE(
    "a call under way has a span with the awaited member, and another one at its end") {
  Traced t(3);
  t.recorder(0).arm();
  std::vector<AnswerPtr> answers{t.allreduce(0, floats(64)),
                                 t.allreduce(1, floats(64))};
  t.cluster.run_for(milliseconds(5));
  auto spans = t.take(0, SpanKind::kOperation);
  REQUIRE(spans.size() == 1);
  CHECK(spans[0].outcome == SpanOutcome::kOpen);
  CHECK(spans[0].peer == 2);
  CHECK(spans[0].end_ns == trace::to_ns(t.cluster.clock.now()));
  CHECK(spans[0].first_ns == spans[0].end_ns);
  answers.push_back(t.allreduce(2, floats(64)));
  REQUIRE(t.cluster.run_until_done(answers, seconds(1)));
  spans = t.take(0, SpanKind::kOperation);
  REQUIRE(spans.size() == 1);
  CHECK(spans[0].outcome == SpanOutcome::kComplete);
  CHECK(spans[0].peer == 2);
  CHECK(t.take(0, SpanKind::kOperation).empty());
}

TEST_CASE("a group that is gone is not asked for its calls") {
  ManualClock clock;
  trace::Recorder recorder(16, &clock);
  {
    engine::GroupTrace trace(&recorder, "test", Rank(1), 2);
    collectives::LocalCall local;
    local.step = 0;
    trace.on_call(Seq(1), floats(64), local);
    CHECK(recorder.take().spans.size() == 1);
  }
  CHECK(recorder.take().spans.empty());
}

TEST_CASE("a call that fails has a span with this outcome") {
  Traced t(2);
  t.recorder(0).arm();
  const auto answer = t.allreduce(0, floats(64));
  REQUIRE(t.cluster.run_until_done({answer}, seconds(20)));
  REQUIRE_FALSE(answer->is_ok());
  const auto spans = t.take(0, SpanKind::kOperation);
  REQUIRE(spans.size() == 1);
  CHECK(spans[0].outcome == SpanOutcome::kFailed);
}

TEST_CASE("each frame of data that arrives has a span with its bytes and its sender") {
  Traced t(2);
  t.recorder(0).arm();
  std::vector<AnswerPtr> answers{t.allreduce(0, floats(512)),
                                 t.allreduce(1, floats(512))};
  REQUIRE(t.cluster.run_until_done(answers, seconds(1)));
  uint64_t bytes = 0;
  for (const Span& span : t.take(0, SpanKind::kReceiveChunk)) {
    CHECK(span.peer == 1);
    CHECK(span.number == 1);
    CHECK(span.begin_ns > 0);
    CHECK(span.end_ns >= span.begin_ns);
    bytes += span.bytes;
  }
  CHECK(bytes == 2048);  // half in contributions, half in results
}

TEST_CASE("members learn how the clock of rank 0 relates to their own clock") {
  Traced t(3, seconds(5), 50e-6);
  CHECK_FALSE(t.cluster.group(1).trace().clock_of_rank_0());
  t.cluster.run_for(milliseconds(100));
  for (int minute = 0; minute < 3; ++minute) {
    for (int32_t r = 0; r < 3; ++r) {
      const auto line = t.cluster.group(r).trace().clock_of_rank_0();
      REQUIRE(line);
      const TimePoint theirs = line->theirs(t.recorder(r).now());
      CAPTURE(minute, r);
      CHECK(std::abs(to_ms(theirs - t.recorder(0).now())) < 0.5);
    }
    t.cluster.run_for(seconds(60));
  }
}

TEST_CASE("a member that does not answer is not asked a second time") {
  Traced t(2);
  t.cluster.run_for(milliseconds(100));
  t.cluster.stop(0, seconds(30));
  const auto before = t.cluster.group(1).trace().next_look();
  REQUIRE(before);
  t.cluster.run_for(seconds(20));
  CHECK_FALSE(t.cluster.group(1).trace().next_look());
  t.cluster.run_for(seconds(20));
  CHECK(t.cluster.group(1).trace().next_look());
}

TEST_CASE("answers without a question, or with an impossible time, are ignored") {
  ManualClock clock;
  trace::Recorder recorder(16, &clock);
  engine::GroupTrace trace(&recorder, "test", Rank(1), 2);
  transport::FrameHeader answer;
  answer.kind = transport::FrameKind::kHeartbeat;
  answer.shard = 2;
  CHECK_FALSE(trace.on_heartbeat(answer));
  CHECK_FALSE(trace.clock_of_rank_0());
  CHECK_FALSE(trace.question(clock.now()));
  trace.on_link_to_rank_0();
  const auto question = trace.question(clock.now());
  REQUIRE(question);
  CHECK_FALSE(trace.question(clock.now()));
  answer.seq = question->header.seq + 1;
  CHECK_FALSE(trace.on_heartbeat(answer));
  answer.seq = question->header.seq;
  answer.total_bytes = ~uint64_t{0};
  CHECK_FALSE(trace.on_heartbeat(answer));
  CHECK_FALSE(trace.clock_of_rank_0());
  answer.total_bytes = 1000;
  CHECK(trace.on_heartbeat(answer));  // the next question
  CHECK(trace.clock_of_rank_0());
}

TEST_CASE("rank 0 is asked several times at once, and then after pauses") {
  using trace::ClockOffset;
  ManualClock clock;
  trace::Recorder recorder(16, &clock);
  engine::GroupTrace trace(&recorder, "test", Rank(1), 2);
  const auto answer = [&](const transport::OutMessage& question) {
    transport::FrameHeader header;
    header.kind = transport::FrameKind::kHeartbeat;
    header.shard = 2;
    header.seq = question.header.seq;
    header.total_bytes = 1000;
    return trace.on_heartbeat(header);
  };
  trace.on_link_to_rank_0();
  auto question = trace.question(clock.now());
  for (size_t i = 1; i < ClockOffset::kAtOnce; ++i) {
    REQUIRE(question);
    question = answer(*question);
  }
  REQUIRE(question);
  CHECK_FALSE(answer(*question));
  for (size_t n = ClockOffset::kAtOnce; n < 100; ++n) {
    const auto due = trace.next_look();
    REQUIRE(due);
    if (n > ClockOffset::kAtOnce)
      CHECK(*due - clock.now() == ClockOffset::pause_after(n));
    clock.advance(std::max(Duration(0), *due - clock.now()));
    question = trace.question(clock.now());
    REQUIRE(question);
    CHECK_FALSE(answer(*question));
  }
}

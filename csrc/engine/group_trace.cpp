// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "engine/group_trace.h"

#include <limits>
#include <utility>

#include "collectives/skippable_operation.h"

namespace aikido::engine {

using trace::Span;
using trace::SpanKind;
using trace::SpanOutcome;
using transport::FrameHeader;
using transport::FrameKind;

namespace {

// Values of the shard field of a heartbeat: question and answer about the clock
// (PROTOCOL.md).
constexpr uint16_t kQuestion = 1;
constexpr uint16_t kAnswer = 2;

// Limit of a received time in nanoseconds: a third of the range, so that differences
// fit.
constexpr uint64_t kLatest = std::numeric_limits<int64_t>::max() / 3;

uint64_t to_wire(TimePoint at) {
  return static_cast<uint64_t>(trace::to_ns(at));
}
TimePoint from_wire(uint64_t ns) {
  return TimePoint(Duration(static_cast<int64_t>(ns)));
}

bool is_data(const FrameHeader& header) {
  return header.payload_bytes > 0 && lane_of(header.kind) == transport::Lane::kBulk &&
         header.kind != FrameKind::kViewFirst && header.kind != FrameKind::kAbortFirst;
}

}  // namespace

GroupTrace::GroupTrace(trace::Recorder* recorder, const std::string& group, Rank self,
                       int32_t size)
    : recorder_(recorder),
      self_(self),
      member_events_(recorder == nullptr ? nullptr : &recorder->event_log(), group,
                     self, size),
      called_(static_cast<size_t>(size)),
      members_(RankSet::full(size)),
      begun_(static_cast<size_t>(size)) {
  if (recorder_ == nullptr) return;
  name_ = recorder_->name(group);
  recorder_->add(this);
}

GroupTrace::~GroupTrace() {
  if (recorder_ != nullptr) recorder_->remove(this);
}

void GroupTrace::on_call(Seq seq, const collectives::Call& call,
                         const collectives::LocalCall& local) {
  if (recorder_ == nullptr || local.step == trace::Recorder::kNotTraced) return;
  Open open;
  open.may_skip = call.is_partial();
  if (collectives::has_root(call.kind) && !call.is_inner) {
    const bool is_root = call.root == self_;
    if (!is_root) open.only = call.root;
    const bool root_gives = call.kind == collectives::CallKind::kBroadcast ||
                            call.kind == collectives::CallKind::kScatter;
    open.gives = is_root == root_gives;
  }
  Span& span = open.span;
  span.kind = SpanKind::kOperation;
  span.begin_ns = trace::to_ns(local.traced_at);
  span.first_ns = span.begin_ns;
  span.bytes = call.bytes();
  span.number = seq.value;
  span.step = local.step;
  span.priority = local.priority;
  span.name = name_;
  span.detail = static_cast<uint8_t>(call.kind);
  if (call.policy.has_stand_ins()) {
    const auto size = static_cast<int32_t>(called_.size());
    span.shard = static_cast<uint16_t>(straggler::num_data_shards(call.policy, size));
  }
  const std::lock_guard lock(mutex_);
  open_.insert_or_assign(seq.value, open);
}

bool GroupTrace::has_to_do(const Open& open, Rank rank) const {
  if (open.may_skip && !members_.contains(rank)) return false;
  return rank != self_ && (open.only == kNoRank || open.only == rank);
}

void GroupTrace::on_view(const membership::View& view) {
  member_events_.on_view(view);
  const std::lock_guard lock(mutex_);
  members_ = view.members;
}

void GroupTrace::on_peer_called(Rank from, uint64_t called) {
  if (open_.empty()) {
    called_[index(from)] = called;
    return;
  }
  const int64_t now = trace::to_ns(recorder_->now());
  const std::lock_guard lock(mutex_);
  const uint64_t before = std::exchange(called_[index(from)], called);
  const auto end = open_.upper_bound(called);
  for (auto it = open_.upper_bound(before); it != end; ++it) {
    if (!has_to_do(it->second, from)) continue;
    it->second.span.first_ns = now;
    it->second.span.peer = from.value;
  }
}

// Span of a call that ends now. `is_through`: with a result.
Span GroupTrace::ended(const Open& open, int64_t now_ns, bool is_through) const {
  Span span = open.span;
  span.end_ns = now_ns;
  if (open.gives && is_through) return span;
  for (int32_t r = 0; r < static_cast<int32_t>(called_.size()); ++r) {
    if (!has_to_do(open, Rank(r)) || called_[index(Rank(r))] >= span.number) continue;
    // The call has waited for this member until its end.
    span.first_ns = now_ns;
    span.peer = r;
    break;
  }
  return span;
}

void GroupTrace::on_over(const collectives::Operation& operation) {
  if (open_.empty()) return;
  Span span;
  {
    const std::lock_guard lock(mutex_);
    const auto found = open_.extract(operation.seq().value);
    if (found.empty()) return;
    span =
        ended(found.mapped(), trace::to_ns(recorder_->now()), !operation.has_failed());
  }
  const auto* skippable = operation.skippable();
  if (operation.has_failed()) {
    span.outcome = SpanOutcome::kFailed;
  } else if (skippable != nullptr && skippable->was_skipped()) {
    span.outcome = SpanOutcome::kSkipped;
  }
  // Before the span of the call, so that a call found in a full ring has all its holes.
  if (skippable != nullptr && !operation.has_failed())
    record_holes(span, skippable->holes());
  recorder_->record(span);
}

void GroupTrace::record_holes(const Span& call,
                              const std::vector<collectives::Hole>& holes) {
  for (const collectives::Hole& hole : holes) {
    Span span = call;
    span.kind = SpanKind::kHole;
    span.first_ns = 0;
    span.bytes = hole.bytes;
    span.peer = hole.backup.value;
    span.shard = static_cast<uint16_t>(hole.data_shard.value);
    span.outcome =
        hole.backup == kNoRank ? SpanOutcome::kSkipped : SpanOutcome::kComplete;
    recorder_->record(span);
  }
}

void GroupTrace::add_open(int64_t now_ns, std::vector<Span>& spans) const {
  const std::lock_guard lock(mutex_);
  for (const auto& [number, open] : open_) {
    spans.push_back(ended(open, now_ns, false));
    spans.back().outcome = SpanOutcome::kOpen;
  }
}

void GroupTrace::begin_chunk(Rank from, const FrameHeader& header) {
  if (is_data(header)) begun_[index(from)] = trace::to_ns(recorder_->now());
}

void GroupTrace::end_chunk(Rank from, const FrameHeader& header) {
  if (!is_data(header)) return;
  Span span;
  span.kind = SpanKind::kReceiveChunk;
  span.begin_ns = std::exchange(begun_[index(from)], 0);
  span.end_ns = trace::to_ns(recorder_->now());
  span.bytes = header.payload_bytes;
  span.number = header.seq;
  span.offset = header.offset;
  span.peer = from.value;
  span.name = name_;
  span.shard = header.shard;
  span.detail = static_cast<uint8_t>(header.kind);
  recorder_->record(span);
}

// ---- the clock of rank 0 ----

std::optional<transport::OutMessage> GroupTrace::question(TimePoint now) {
  const auto due = next_look();
  if (!due || now < *due) return std::nullopt;
  // After the answer to this question.
  ask_at_ = now + trace::ClockOffset::pause_after(num_answers_ + 1);
  return ask();
}

std::optional<TimePoint> GroupTrace::next_look() const {
  if (!can_ask_ || asked_) return std::nullopt;
  return ask_at_;
}

transport::OutMessage GroupTrace::ask() {
  asked_ = recorder_->now();
  transport::OutMessage m;
  m.header.kind = FrameKind::kHeartbeat;
  m.header.shard = kQuestion;
  m.header.seq = to_wire(*asked_);
  m.priority = transport::kControlPriority;
  return m;
}

std::optional<transport::OutMessage> GroupTrace::on_heartbeat(
    const FrameHeader& header) {
  if (recorder_ == nullptr) return std::nullopt;
  if (header.shard == kQuestion) {
    transport::OutMessage m;
    m.header.kind = FrameKind::kHeartbeat;
    m.header.shard = kAnswer;
    m.header.seq = header.seq;
    m.header.total_bytes = to_wire(recorder_->now());
    m.priority = transport::kControlPriority;
    return m;
  }
  if (header.shard != kAnswer || !asked_ || header.seq != to_wire(*asked_) ||
      header.total_bytes > kLatest)
    return std::nullopt;
  const TimePoint now = recorder_->now();
  offset_.add(
      {*std::exchange(asked_, std::nullopt), from_wire(header.total_bytes), now});
  if (++num_answers_ < trace::ClockOffset::kAtOnce) return ask();
  return std::nullopt;
}

std::optional<trace::ClockLine> GroupTrace::clock_of_rank_0() const {
  if (recorder_ == nullptr) return std::nullopt;
  if (self_ == Rank(0)) return trace::ClockLine{recorder_->now()};
  return offset_.line();
}

}  // namespace aikido::engine

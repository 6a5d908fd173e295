// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "transport/send_trace.h"

namespace aikido::transport {

using trace::Span;
using trace::SpanKind;

void SendTrace::begin(MessageId id, const OutMessage& message) {
  Span span;
  span.kind = SpanKind::kSend;
  span.begin_ns = trace::to_ns(recorder_->now());
  span.bytes = message.bytes;
  span.number = message.header.seq;
  span.offset = message.header.offset;
  span.shard = message.header.shard;
  span.detail = static_cast<uint8_t>(message.header.kind);
  span.peer = peer_.value;
  span.priority = message.priority;
  span.name = group_;
  open_.insert_or_assign(id, Open{span, {}});
}

void SendTrace::pick(MessageId id, uint64_t offset, size_t bytes) {
  const auto it = open_.find(id);
  if (it == open_.end()) return;
  Span& message = it->second.message;
  Span chunk = message;
  chunk.kind = SpanKind::kSendChunk;
  chunk.begin_ns = trace::to_ns(recorder_->now());
  chunk.offset = message.offset + offset;
  chunk.bytes = bytes;
  // The first chunk marks the end of the time in the queue.
  if (message.first_ns == 0) message.first_ns = chunk.begin_ns;
  it->second.picked.push_back(chunk);
}

void SendTrace::put_back(MessageId id) {
  const auto it = open_.find(id);
  if (it == open_.end() || it->second.picked.empty()) return;
  Span& message = it->second.message;
  if (message.first_ns == it->second.picked.back().begin_ns) message.first_ns = 0;
  it->second.picked.pop_back();
}

void SendTrace::write(MessageId id) {
  const auto it = open_.find(id);
  if (it == open_.end() || it->second.picked.empty()) return;
  auto& picked = it->second.picked;
  // Chunks are written in the order in which they were chosen, so this is the oldest.
  picked.front().end_ns = trace::to_ns(recorder_->now());
  recorder_->record(picked.front());
  picked.erase(picked.begin());
}

void SendTrace::end(MessageId id, size_t dropped) {
  const auto it = open_.find(id);
  if (it == open_.end()) return;
  Span& message = it->second.message;
  message.end_ns = trace::to_ns(recorder_->now());
  if (dropped > 0) message.outcome = trace::SpanOutcome::kCancelled;
  recorder_->record(message);
  open_.erase(it);
}

void SendTrace::fail_all() {
  const int64_t now = trace::to_ns(recorder_->now());
  for (auto& [id, open] : open_) {
    open.message.end_ns = now;
    open.message.outcome = trace::SpanOutcome::kFailed;
    recorder_->record(open.message);
  }
  open_.clear();
}

}  // namespace aikido::transport

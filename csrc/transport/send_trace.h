// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Trace of the messages that a link sends, while the recorder is armed: one span from
// the queue to the kernel, and one for each chunk. Progress thread.

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "trace/recorder.h"
#include "transport/link.h"
#include "transport/schedule/scheduler.h"

namespace aikido::transport {

class SendTrace {
 public:
  // Records nothing.
  SendTrace() = default;
  // `recorder` must outlive this object. `group`: Recorder::name of the link's group.
  SendTrace(trace::Recorder* recorder, Rank peer, uint16_t group)
      : recorder_(recorder), peer_(peer), group_(group) {}

  // A message is queued. Messages without data are not traced.
  void on_queued(MessageId id, const OutMessage& message) {
    if (recorder_ != nullptr && message.bytes > 0 && recorder_->is_armed())
      begin(id, message);
  }
  // A chunk of the message was chosen. Chunks of all messages are written in this
  // order.
  void on_picked(MessageId id, uint64_t offset, size_t bytes) {
    if (!open_.empty()) pick(id, offset, bytes);
  }
  // The last chosen chunk of the message waits again.
  void on_put_back(MessageId id) {
    if (!open_.empty()) put_back(id);
  }
  // The kernel has the oldest chosen chunk of the message.
  void on_written(MessageId id) {
    if (!open_.empty()) write(id);
  }
  // The message is sent, or `dropped` bytes of it never will be.
  void on_gone(MessageId id, size_t dropped) {
    if (!open_.empty()) end(id, dropped);
  }
  // The link is lost: unsent messages fail.
  void on_lost() {
    if (!open_.empty()) fail_all();
  }

 private:
  struct Open {
    trace::Span message;
    std::vector<trace::Span> picked;  // few: chunks of one turn of writes
  };
  void begin(MessageId id, const OutMessage& message);
  void pick(MessageId id, uint64_t offset, size_t bytes);
  void put_back(MessageId id);
  void write(MessageId id);
  void end(MessageId id, size_t dropped);
  void fail_all();

  trace::Recorder* recorder_ = nullptr;
  Rank peer_ = kNoRank;
  uint16_t group_ = 0;
  std::unordered_map<MessageId, Open> open_;
};

}  // namespace aikido::transport

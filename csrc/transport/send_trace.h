// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Records what becomes of the messages that a link sends, while the recorder is armed:
// a span from the queue to the kernel, and one for each of their chunks. Progress
// thread.

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "trace/recorder.h"
#include "transport/link.h"
#include "transport/scheduler.h"

namespace aikido::transport {

class SendTrace {
 public:
  // Records nothing.
  SendTrace() = default;
  // `recorder` must outlive it. `group`: Recorder::name of the link's group.
  SendTrace(trace::Recorder* recorder, Rank peer, uint16_t group)
      : recorder_(recorder), peer_(peer), group_(group) {}

  // A message waits for its turn. Those without data are left out.
  void on_queued(MessageId id, const OutMessage& message) {
    if (recorder_ != nullptr && message.bytes > 0 && recorder_->is_armed())
      begin(id, message);
  }
  // A chunk of it is picked; chunks of all messages are written in this order.
  void on_picked(MessageId id, uint64_t offset, size_t bytes) {
    if (!open_.empty()) pick(id, offset, bytes);
  }
  // The chunk of it that was picked last waits again.
  void on_put_back(MessageId id) {
    if (!open_.empty()) put_back(id);
  }
  // The oldest chunk of it that was picked is with the kernel.
  void on_written(MessageId id) {
    if (!open_.empty()) write(id);
  }
  // It is through, or `dropped` bytes of it never will be.
  void on_gone(MessageId id, size_t dropped) {
    if (!open_.empty()) end(id, dropped);
  }
  // What is not through goes nowhere.
  void on_lost() {
    if (!open_.empty()) fail_all();
  }

 private:
  struct Open {
    trace::Span message;
    std::vector<trace::Span> picked;  // few: those of one turn of writes
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

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Decides which chunk goes next on one link. PURE: no sockets, no memory of its own
// besides the queue. Higher priority first, in the order of arrival within a priority;
// a message is cut into chunks, so a more urgent one waits for one chunk at most and
// the paused one goes on at its offset. One thread.

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>

#include "base/types.h"

namespace aikido::transport {

// Names a message inside one scheduler; never reused.
using MessageId = uint64_t;

struct Chunk {
  MessageId message = 0;
  size_t offset = 0;  // in the message, bytes
  size_t bytes = 0;
  bool is_last = false;
};

class Scheduler {
 public:
  // `chunk_bytes` >= 1: the longest chunk.
  explicit Scheduler(size_t chunk_bytes) : chunk_bytes_(chunk_bytes) {}

  // Queues a message; one of 0 bytes still makes one chunk of 0 bytes. The id must be
  // new.
  void push(MessageId id, Priority priority, size_t bytes) {
    push(id, priority, bytes, chunk_bytes_);
  }
  // In chunks of `most` bytes if that is less; 0: no less.
  void push(MessageId id, Priority priority, size_t bytes, size_t most);

  // Takes the next chunk; empty when nothing waits.
  std::optional<Chunk> pop();

  // Forgets what was not popped of a message. Returns the bytes cancelled; empty when
  // the message is not queued (unknown, or already popped to its end).
  std::optional<size_t> cancel(MessageId id, Priority priority);

  bool is_empty() const { return queue_.empty(); }
  size_t queued_bytes() const { return queued_bytes_; }

 private:
  struct Key {
    Priority priority;
    MessageId id;
    bool operator<(const Key& other) const {
      return priority != other.priority ? priority > other.priority : id < other.id;
    }
  };
  struct Progress {
    size_t bytes;
    size_t offset;
    size_t chunk_bytes;
  };

  size_t chunk_bytes_;
  size_t queued_bytes_ = 0;
  std::map<Key, Progress> queue_;
};

}  // namespace aikido::transport

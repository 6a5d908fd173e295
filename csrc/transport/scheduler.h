// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Decides which chunk goes next on one link. PURE: no sockets, no memory of its own
// besides the queue, no clock. Each priority is a class. The highest class that has
// something goes first, and within a class one message after the other, by their turns
// and then their ids; a message is cut into chunks, so one that goes ahead waits for
// one chunk at most and the paused one goes on at its offset.
//
// The turn is the number of a strict collective: what is queued later for an earlier
// one, as its result is, goes ahead. Else all that are under way would end at about the
// same time, that of the last. All else has the turn that was the highest when it came.
//
// No class starves, which says nothing of what is inside it: one that others have been
// let past for kMostPassed since it got its last chunk, or since it has something to
// send, is overdue and gets one chunk, the longest passed first. So of c classes each
// has its next chunk among the first c that start kMostPassed after its last one, and
// the classes above lose c - 1 chunks in kMostPassed to it at most. Only what is to be
// behind all the rest is never overdue, and nothing goes ahead of kControlPriority: a
// new view leaves before what is sent in it, however long the link stood still. One
// thread.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/recycler.h"
#include "base/types.h"
#include "transport/message_id.h"
#include "transport/send_counters.h"

namespace aikido::transport {

struct Chunk {
  MessageId message = 0;
  size_t offset = 0;  // in the message, bytes
  size_t bytes = 0;
  bool is_last = false;
};

// The chunk that pop() would take.
struct NextChunk {
  Priority priority = 0;
  bool is_overdue = false;
  TimePoint passed_since{};  // of its class
};

// Of two that could start, on whatever links: overdue ones, the longest passed first,
// then the higher class.
bool goes_before(const NextChunk& a, const NextChunk& b);

class Scheduler {
 public:
  static constexpr Duration kMostPassed = std::chrono::milliseconds(100);
  // Chunks that pop() cuts shorter are multiples of this: of every element's size.
  static constexpr size_t kGrain = 64;

  // `chunk_bytes` >= 1: the longest chunk. `counters`, if any, outlive the scheduler.
  explicit Scheduler(size_t chunk_bytes, SendCounters* counters = nullptr)
      : chunk_bytes_(chunk_bytes), counters_(counters) {}

  // The turn of a message that wants this one; 0: behind all that have one by now.
  uint64_t turn_of(uint64_t wanted) {
    last_turn_ = std::max(last_turn_, wanted);
    return wanted == 0 ? last_turn_ : wanted;
  }

  // Queues a message. One of 0 bytes still makes one chunk of 0 bytes. The id must be
  // new. `now` never goes backwards, here and below.
  void push(const Waiting& message, TimePoint now);

  // The longest chunk of a message with that `most`.
  size_t chunk_bytes(size_t most) const {
    return most == 0 ? chunk_bytes_ : std::min(most, chunk_bytes_);
  }
  // A message of one chunk that went without being queued counts as sent.
  void count_passed() {
    if (counters_ != nullptr) SendCounters::add(counters_->chunks, 1);
  }

  // Takes the next chunk, of `most` bytes at most; kGrain where that is less. Empty
  // when nothing waits.
  std::optional<Chunk> pop(TimePoint now,
                           size_t most = std::numeric_limits<size_t>::max());
  // What pop() would take; empty when nothing waits.
  std::optional<NextChunk> next(TimePoint now) const;

  // A chunk that was popped has not begun after all: it is the next of its message. The
  // last popped first, where there are several.
  void put_back(const Chunk& chunk, const Waiting& message, TimePoint now);

  // What was not popped of a message gets the priority `to`, at the place that it would
  // have had with this priority from the beginning. Nothing for a message that is not
  // queued.
  void move(const Waiting& message, Priority to, TimePoint now);

  // Forgets what was not popped of a message. Returns the bytes cancelled; empty when
  // the message is not queued (unknown, or already popped to its end).
  std::optional<size_t> cancel(const Waiting& message);

  // Forgets everything.
  void clear();

  bool is_empty() const { return classes_.empty(); }
  size_t num_classes() const { return classes_.size(); }
  // Of the highest class. Requires: something waits.
  Priority highest() const { return classes_.front().priority; }
  size_t queued_bytes() const { return queued_bytes_; }

 private:
  struct Progress {
    size_t bytes;
    size_t offset;
    size_t chunk_bytes;
    TimePoint since;                  // queued, then first chunk
    std::optional<TimePoint> paused;  // others go, since then
    Duration pauses{};
  };
  using Place = std::pair<uint64_t, MessageId>;  // turn first
  struct Class {
    Priority priority;
    RecycledMap<Place, Progress> messages;
    TimePoint passed_since;
  };
  using Classes = std::vector<Class>;
  // Of the memory of messages that were queued.
  static constexpr size_t kMaxIdleBytes = 4 << 10;

  Classes::iterator choose(TimePoint now);
  bool is_overdue(const Class& found, TimePoint now) const;
  Classes::iterator find(Priority priority);
  Class& of(Priority priority, TimePoint now);
  void count_start(Priority priority, const Place& place, Progress& p, bool is_overdue,
                   TimePoint now);
  void count_end(Priority priority, const Progress& p, TimePoint now);

  size_t chunk_bytes_;
  SendCounters* counters_;
  size_t queued_bytes_ = 0;
  uint64_t last_turn_ = 0;
  Recycler recycler_{kMaxIdleBytes};
  Classes classes_;  // with messages, the highest first; few
  // The message of the chunk that was popped last, if it has more.
  std::optional<std::pair<Priority, Place>> current_;
};

}  // namespace aikido::transport

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Scheduler of the chunks on one link. Pure: no sockets, no clock, and no memory
// besides the queue. One thread.
//
// Each priority is a class. The highest class with messages goes first. Within a class
// messages go one after the other, by their turns and then by their ids. A message is
// cut into chunks. So an urgent message waits for at most one chunk, and the paused
// message continues at its offset.
//
// The turn is the number of a strict collective. A later message of an earlier
// collective, such as its result, goes ahead. Otherwise all collectives in progress
// would end at about the time of the last. A message of no collective gets the highest
// turn so far.
//
// No class starves; single messages inside a class may. A class is overdue if others
// have gone ahead of it for kMostPassed, since its last chunk or since it has something
// to send. An overdue class gets one chunk, and the class that has waited longest goes
// first. So with c classes, each class has its next chunk among the first c that start
// kMostPassed after its last. The classes above lose at most c - 1 chunks to it in
// kMostPassed.
//
// Exceptions: kLastPriority is never overdue, because it must stay behind everything
// else. Nothing goes ahead of kControlPriority. So a new view leaves before the data
// that is sent in it, however long the link stood still.

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
#include "transport/schedule/message_id.h"
#include "transport/schedule/send_counters.h"

namespace aikido::transport {

struct Chunk {
  MessageId message = 0;
  size_t offset = 0;  // in the message, bytes
  size_t bytes = 0;
  bool is_last = false;
};

// Chunk that pop() would take.
struct NextChunk {
  Priority priority = 0;
  bool is_overdue = false;
  TimePoint passed_since{};  // of its class
};

// Order of two chunks that could start, on any links: overdue chunks first, the longest
// passed first among these, then the higher class.
bool goes_before(const NextChunk& a, const NextChunk& b);

class Scheduler {
 public:
  static constexpr Duration kMostPassed = std::chrono::milliseconds(100);
  // Shorter chunks of pop() are multiples of this, and so of each element size.
  static constexpr size_t kGrain = 64;

  // `chunk_bytes` >= 1: the longest chunk. `counters` may be null, and must outlive the
  // scheduler.
  explicit Scheduler(size_t chunk_bytes, SendCounters* counters = nullptr)
      : chunk_bytes_(chunk_bytes), counters_(counters) {}

  // Turn of a message that wants this turn; 0: behind all that have a turn by now.
  uint64_t turn_of(uint64_t wanted) {
    last_turn_ = std::max(last_turn_, wanted);
    return wanted == 0 ? last_turn_ : wanted;
  }

  // Queues a message. A message of 0 bytes makes one chunk of 0 bytes. The id must be
  // new. `now` never goes backwards, here and below.
  void push(const Waiting& message, TimePoint now);

  // Longest chunk of a message with that `most`.
  size_t chunk_bytes(size_t most) const {
    return most == 0 ? chunk_bytes_ : std::min(most, chunk_bytes_);
  }
  // Counts a message of one chunk that was sent without being queued.
  void count_passed() {
    if (counters_ != nullptr) SendCounters::add(counters_->chunks, 1);
  }

  // Takes the next chunk, of at most `most` bytes, but at least kGrain. Empty if
  // nothing waits.
  std::optional<Chunk> pop(TimePoint now,
                           size_t most = std::numeric_limits<size_t>::max());
  // Chunk that pop() would take. Empty if nothing waits.
  std::optional<NextChunk> next(TimePoint now) const;

  // A popped chunk has not begun after all. It becomes the next chunk of its message.
  // Several chunks are put back in reverse order.
  void put_back(const Chunk& chunk, const Waiting& message, TimePoint now);

  // Gives the rest of a message the priority `to`, at the place that it would have had
  // with this priority from the beginning. Does nothing if the message is not queued.
  void move(const Waiting& message, Priority to, TimePoint now);

  // Forgets the rest of a message. Returns the cancelled bytes; empty if the message is
  // not queued (unknown, or completely popped).
  std::optional<size_t> cancel(const Waiting& message);

  // Forgets everything.
  void clear();

  bool is_empty() const { return classes_.empty(); }
  size_t num_classes() const { return classes_.size(); }
  // Priority of the highest class. Requires: something waits.
  Priority highest() const { return classes_.front().priority; }
  size_t queued_bytes() const { return queued_bytes_; }

 private:
  struct Progress {
    size_t bytes;
    size_t offset;
    size_t chunk_bytes;
    TimePoint since;                  // queued, then first chunk
    std::optional<TimePoint> paused;  // time since which others go ahead
    Duration pauses{};
  };
  using Place = std::pair<uint64_t, MessageId>;  // turn first
  struct Class {
    Priority priority;
    RecycledMap<Place, Progress> messages;
    TimePoint passed_since;
  };
  using Classes = std::vector<Class>;
  // Idle memory of messages that were queued.
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
  Classes classes_;  // with messages, highest first; few
  // Message of the last popped chunk, if it has more chunks.
  std::optional<std::pair<Priority, Place>> current_;
};

}  // namespace aikido::transport

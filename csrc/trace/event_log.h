// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Log of member events of all groups of this process, in order. Events are rare.
// Readers come now and then, and each keeps its own position. The log has a fixed
// length. It belongs to the process, so it outlives its groups. Methods from any
// thread.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <vector>

#include "base/types.h"

namespace aikido::trace {

enum class EventKind : uint8_t {
  kLate,         // a member is suspected: others wait for its work
  kSilent,       // a member is suspected: it sends nothing
  kShardsMoved,  // the shards of a member got other owners
  kShardsBack,   // a member owns shards again
  kStoodIn,      // a backup contributed in place of a member
  kOut,          // a member is excluded: calls that may skip go on without it
  kBack,         // a member takes part in them again
  kTookOver,     // this rank computes micro-batches of a member
  kLost,         // the connection to a member is lost, without a goodbye
};
// Name of the kind in Python.
const char* name_of(EventKind kind);

struct Event {
  uint64_t number = 0;  // 1 for the first event of the process
  EventKind kind = EventKind::kLate;
  std::string group;
  Rank self;    // rank of this process in the group at that time
  Rank member;  // member that the event is about
  // Ranks. kShardsMoved: the present owners; kStoodIn: the backup; kTookOver: self.
  std::vector<int32_t> by;
  std::string text;  // kLost: the error text that callers get
};

class EventLog {
 public:
  static constexpr size_t kRoom = 4096;

  // Adds an event and gives it its number. If the log is full, the oldest event is
  // dropped.
  void add(Event event);
  // Events with a higher number than `number` that are still in the log, ascending.
  [[nodiscard]] std::vector<Event> after(uint64_t number) const;

 private:
  mutable std::mutex mutex_;
  // Guarded by mutex_.
  std::deque<Event> events_;
  uint64_t last_ = 0;
};

}  // namespace aikido::trace

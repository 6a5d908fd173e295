// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// What befell the members of the groups of this process, in order: rare events, for
// readers that come now and then and each keep their own place. Of fixed length. It is
// the process's, so that what befell a group is still there when the group is not.
// Methods from any thread.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <vector>

#include "base/types.h"

namespace aikido::trace {

enum class EventKind : uint8_t {
  kLate,         // a member is suspected: what is for it to do holds up the others
  kSilent,       // a member is suspected: nothing comes from it
  kShardsMoved,  // others own what a member owned
  kShardsBack,   // it owns shards again
  kStoodIn,      // a backup gave in the place of a member
  kOut,          // calls that may skip go on without a member
  kBack,         // it takes part in them again
  kLost,         // the connection to a member is gone, and it has not said goodbye
};
// As Python reads it.
const char* name_of(EventKind kind);

struct Event {
  uint64_t number = 0;  // 1 for the first of the process
  EventKind kind = EventKind::kLate;
  std::string group;
  Rank self;    // in that group, at that time
  Rank member;  // whom it befell
  // Ranks. kShardsMoved: who owns shards now; kStoodIn: the backup.
  std::vector<int32_t> by;
  std::string text;  // kLost: the sentence that callers get
};

class Journal {
 public:
  static constexpr size_t kRoom = 4096;

  // Gives it its number. The oldest goes when there is no room.
  void add(Event event);
  // Those with a higher number than `number` that are still there, ascending.
  [[nodiscard]] std::vector<Event> after(uint64_t number) const;

 private:
  mutable std::mutex mutex_;
  // Guarded by mutex_.
  std::deque<Event> events_;
  uint64_t last_ = 0;
};

}  // namespace aikido::trace

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "trace/event_log.h"

#include <algorithm>
#include <utility>

namespace aikido::trace {

const char* name_of(EventKind kind) {
  constexpr const char* kNames[] = {"late",     "silent", "shards_moved", "shards_back",
                                    "stood_in", "out",    "back",         "took_over",
                                    "lost"};
  return kNames[static_cast<size_t>(kind)];
}

void EventLog::add(Event event) {
  const std::lock_guard lock(mutex_);
  event.number = ++last_;
  events_.push_back(std::move(event));
  if (events_.size() > kRoom) events_.pop_front();
}

std::vector<Event> EventLog::after(uint64_t number) const {
  const std::lock_guard lock(mutex_);
  const auto first =
      std::upper_bound(events_.begin(), events_.end(), number,
                       [](uint64_t n, const Event& event) { return n < event.number; });
  return {first, events_.end()};
}

}  // namespace aikido::trace

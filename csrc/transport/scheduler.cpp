// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "transport/scheduler.h"

#include <algorithm>

#include "base/check.h"

namespace aikido::transport {

void Scheduler::push(MessageId id, Priority priority, size_t bytes, size_t most) {
  const size_t chunk = most == 0 ? chunk_bytes_ : std::min(most, chunk_bytes_);
  const bool is_new =
      queue_.emplace(Key{priority, id}, Progress{bytes, 0, chunk}).second;
  AIKIDO_CHECK(is_new, "message ", id, " is queued twice");
  queued_bytes_ += bytes;
}

std::optional<Chunk> Scheduler::pop() {
  if (queue_.empty()) return std::nullopt;
  const auto head = queue_.begin();
  Progress& p = head->second;
  Chunk chunk{head->first.id, p.offset, std::min(p.chunk_bytes, p.bytes - p.offset),
              false};
  p.offset += chunk.bytes;
  queued_bytes_ -= chunk.bytes;
  chunk.is_last = p.offset == p.bytes;
  if (chunk.is_last) queue_.erase(head);
  return chunk;
}

std::optional<size_t> Scheduler::cancel(MessageId id, Priority priority) {
  const auto it = queue_.find(Key{priority, id});
  if (it == queue_.end()) return std::nullopt;
  const size_t rest = it->second.bytes - it->second.offset;
  queued_bytes_ -= rest;
  queue_.erase(it);
  return rest;
}

}  // namespace aikido::transport

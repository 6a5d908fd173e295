// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// File descriptors that an event loop watches, and the handlers of their events. Thread
// of the turn, unless said otherwise.

#include <sys/epoll.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <unordered_map>

#include "base/fd.h"

namespace aikido::transport {

// Receiver of events of one file descriptor.
class FdHandler {
 public:
  virtual ~FdHandler() = default;
  virtual void on_events(uint32_t epoll_events) = 0;
};

class Descriptors {
 public:
  // Throws std::system_error if the kernel refuses a descriptor.
  Descriptors();

  // Descriptor that is readable while an event waits.
  int fd() const { return epoll_.get(); }

  // `handler` must outlive remove(). Null: take() returns for its events, and nothing
  // else happens.
  void add(int fd, uint32_t events, FdHandler* handler);
  void modify(int fd, uint32_t events);
  // From now on the handler gets no event, not even one that was taken before.
  void remove(int fd);

  // Takes the events that wait, and waits for `ms` if there are none; -1: without
  // limit. Returns their number. One thread at a time, in a turn or not.
  size_t take(int ms);
  // Gives the first `num_events` of the taken events to their handlers.
  void run(size_t num_events);

 private:
  using HandlerId = uint64_t;

  Fd epoll_;
  std::array<epoll_event, 64> events_;  // taken
  HandlerId last_id_ = 0;
  std::unordered_map<HandlerId, FdHandler*> handlers_;
  std::unordered_map<int, HandlerId> ids_;  // by descriptor
};

}  // namespace aikido::transport

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "transport/loop/descriptors.h"

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "base/check.h"

namespace aikido::transport {

Descriptors::Descriptors() : epoll_(::epoll_create1(EPOLL_CLOEXEC)) {
  if (!epoll_.is_open()) throw std::system_error(errno, std::generic_category());
}

// Events carry a number and not the address of the handler, because an earlier event of
// the same turn may destroy the handler.
void Descriptors::add(int fd, uint32_t events, FdHandler* handler) {
  const HandlerId id = ++last_id_;
  epoll_event event{};
  event.events = events;
  event.data.u64 = id;
  AIKIDO_CHECK(::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0,
               describe_errno(errno));
  ids_[fd] = id;
  if (handler != nullptr) handlers_[id] = handler;
}

void Descriptors::modify(int fd, uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = ids_.at(fd);
  AIKIDO_CHECK(::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event) == 0,
               describe_errno(errno));
}

void Descriptors::remove(int fd) {
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
  const auto id = ids_.extract(fd);
  if (!id.empty()) handlers_.erase(id.mapped());
}

size_t Descriptors::take(int ms) {
  const int n =
      ::epoll_wait(epoll_.get(), events_.data(), static_cast<int>(events_.size()), ms);
  AIKIDO_CHECK(n >= 0 || errno == EINTR, describe_errno(errno));
  return static_cast<size_t>(std::max(n, 0));
}

void Descriptors::run(size_t num_events) {
  for (size_t i = 0; i < num_events; ++i) {
    const auto handler = handlers_.find(events_[i].data.u64);
    if (handler != handlers_.end()) handler->second->on_events(events_[i].events);
  }
}

}  // namespace aikido::transport

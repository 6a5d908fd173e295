// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "transport/loop/own_thread_sleep.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <system_error>
#include <utility>

#include "base/check.h"

namespace aikido::transport {
namespace {

timespec to_timespec(Duration d) {
  const Duration second = std::chrono::seconds(1);
  return {.tv_sec = d / second, .tv_nsec = (d % second).count()};
}

}  // namespace

OwnThreadSleep::OwnThreadSleep(int epoll)
    : epoll_(epoll),
      gate_(::epoll_create1(EPOLL_CLOEXEC)),
      alarm_(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK)) {
  if (!gate_.is_open() || !alarm_.is_open())
    throw std::system_error(errno, std::generic_category());
  epoll_event event{};
  event.events = EPOLLIN;
  AIKIDO_CHECK(::epoll_ctl(gate_.get(), EPOLL_CTL_ADD, epoll, &event) == 0,
               describe_errno(errno));
}

void OwnThreadSleep::set_gate(bool is_open) {
  if (std::exchange(is_gate_open_, is_open) == is_open) return;
  epoll_event event{};
  event.events = is_open ? uint32_t{EPOLLIN} : 0u;
  ::epoll_ctl(gate_.get(), EPOLL_CTL_MOD, epoll_, &event);
}

// Does not hold the lock of the turns, so that a caller that returns again and again is
// not delayed.
void OwnThreadSleep::sleep(std::optional<Duration> most,
                           const std::atomic<TimePoint>& awake_until) {
  do {
    const timespec left = to_timespec(most.value_or(Duration::zero()));
    std::array<pollfd, 2> fds{{{gate_.get(), POLLIN, 0}, {alarm_.get(), POLLIN, 0}}};
    const int n = ::ppoll(fds.data(), fds.size(), most ? &left : nullptr, nullptr);
    AIKIDO_CHECK(n >= 0 || errno == EINTR, describe_errno(errno));
    if (n < 0 || fds[0].revents != 0) return;
    if (fds[1].revents != 0) turn_alarm_off();
    most = awake_until.load() - clock_.now();
  } while (*most > Duration::zero());
}

// A direct wake-up would only let the thread compute how long to sleep. That takes a
// core for tens of microseconds, which the callers need.
void OwnThreadSleep::set_alarm(TimePoint due) {
  if (!until_ || due >= *until_) return;
  until_ = due;
  const Duration left = std::max(Duration(1), due - clock_.now());  // 0 disarms
  const itimerspec at{.it_interval = {}, .it_value = to_timespec(left)};
  AIKIDO_CHECK(::timerfd_settime(alarm_.get(), 0, &at, nullptr) == 0,
               describe_errno(errno));
}

// Called by the loop's own thread. The alarm may have been set again meanwhile; a read
// does not undo that.
void OwnThreadSleep::turn_alarm_off() {
  uint64_t times = 0;
  [[maybe_unused]] const auto n = ::read(alarm_.get(), &times, sizeof times);
}

}  // namespace aikido::transport

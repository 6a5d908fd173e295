// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "transport/event_loop.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <iterator>
#include <utility>

#include "base/check.h"

namespace aikido::transport {
namespace {

// Posted work of one turn: behind it come what others sent, heartbeats and time-outs,
// however much is posted.
constexpr size_t kMaxWorkPerTurn = 256;

}  // namespace

EventLoop::EventLoop()
    : now_(clock_.now()),
      epoll_(::epoll_create1(EPOLL_CLOEXEC)),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  AIKIDO_CHECK(epoll_.is_open() && wake_.is_open(), describe_errno(errno),
               "; is the limit of open files (ulimit -n) reached?");
  add(wake_.get(), EPOLLIN, nullptr);
}

EventLoop::~EventLoop() = default;

void EventLoop::add(int fd, uint32_t events, FdHandler* handler) {
  epoll_event event{};
  event.events = events;
  event.data.ptr = handler;
  AIKIDO_CHECK(::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0,
               describe_errno(errno));
}

void EventLoop::modify(int fd, uint32_t events, FdHandler* handler) {
  epoll_event event{};
  event.events = events;
  event.data.ptr = handler;
  AIKIDO_CHECK(::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event) == 0,
               describe_errno(errno));
}

void EventLoop::remove(int fd, FdHandler* handler) {
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
  removed_this_turn_.push_back(handler);
}

void EventLoop::add_polled(Polled* polled) {
  polled_.push_back(polled);
}
void EventLoop::remove_polled(Polled* polled) {
  std::erase(polled_, polled);
}

void EventLoop::add_timed(Timed* timed) {
  timed_.push_back(timed);
}
void EventLoop::remove_timed(Timed* timed) {
  std::erase(timed_, timed);
}

void EventLoop::request_flush(Flushable* flushable) {
  flushes_.push_back(flushable);
}
void EventLoop::forget_flush(Flushable* flushable) {
  std::replace(flushes_.begin(), flushes_.end(), flushable,
               static_cast<Flushable*>(nullptr));
}

void EventLoop::post(std::function<void()> work) {
  bool must_wake = false;
  {
    const std::lock_guard lock(mutex_);
    posted_.push_back(std::move(work));
    must_wake = !std::exchange(wake_pending_, true);
  }
  if (must_wake) {
    const uint64_t one = 1;
    [[maybe_unused]] const auto n = ::write(wake_.get(), &one, sizeof one);
  }
}

void EventLoop::stop() {
  stop_.store(true);
  post([] {});
}

void EventLoop::run() {
  std::array<epoll_event, 64> events;
  while (!stop_.exchange(false)) {
    const int timeout = poll_timeout_ms();
    const int n =
        ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()),
                     timeout != 0 && can_sleep() ? timeout : 0);
    AIKIDO_CHECK(n >= 0 || errno == EINTR, describe_errno(errno));
    now_ = clock_.now();
    removed_this_turn_.clear();
    for (int i = 0; i < n; ++i) {
      const epoll_event& event = events[static_cast<size_t>(i)];
      auto* handler = static_cast<FdHandler*>(event.data.ptr);
      if (handler == nullptr) {
        uint64_t count = 0;
        [[maybe_unused]] const auto got = ::read(wake_.get(), &count, sizeof count);
      } else if (std::find(removed_this_turn_.begin(), removed_this_turn_.end(),
                           handler) == removed_this_turn_.end()) {
        handler->on_events(event.events);
      }
    }
    run_polled();
    run_posted();
    run_timed();
    run_flushes();
  }
  run_posted();
}

// All of them rest, or none needs a descriptor to tell.
bool EventLoop::can_sleep() const {
  return std::all_of(polled_.begin(), polled_.end(),
                     [](Polled* p) { return p->rest(); });
}

void EventLoop::run_polled() {
  // By index: poll may add and remove. One that is passed over has its turn in the
  // next, since it will not rest.
  for (size_t i = 0; i < polled_.size(); ++i) polled_[i]->poll();
}

void EventLoop::run_posted() {
  {
    const std::lock_guard lock(mutex_);
    std::move(posted_.begin(), posted_.end(), std::back_inserter(work_));
    posted_.clear();
    wake_pending_ = false;
  }
  // One by one: what throws must not take the others with it.
  for (size_t i = 0; i < kMaxWorkPerTurn && !work_.empty(); ++i) {
    const auto work = std::move(work_.front());
    work_.pop_front();
    work();
  }
}

void EventLoop::run_timed() {
  // By index: on_time may add and remove.
  for (size_t i = 0; i < timed_.size(); ++i) {
    const auto due = timed_[i]->next_look();
    if (due && *due <= now_) timed_[i]->on_time(now_);
  }
}

void EventLoop::run_flushes() {
  // A flush may finish an operation and so cause more of them in the same turn.
  for (size_t i = 0; i < flushes_.size(); ++i) {
    if (flushes_[i] != nullptr) std::exchange(flushes_[i], nullptr)->flush();
  }
  flushes_.clear();
}

int EventLoop::poll_timeout_ms() {
  // Left over: it was too much for a turn, or one ended with an exception.
  if (!work_.empty() || !flushes_.empty()) return 0;
  {
    // Here too: who posted it may have woken us up for the turn that ended like that.
    const std::lock_guard lock(mutex_);
    if (!posted_.empty()) return 0;
  }
  std::optional<TimePoint> earliest;
  for (const Timed* timed : timed_) {
    const auto due = timed->next_look();
    if (due && (!earliest || *due < *earliest)) earliest = due;
  }
  if (!earliest) return -1;
  const Duration wait = *earliest - clock_.now();
  if (wait <= Duration::zero()) return 0;
  // Rounded up, so that a look is never too early; one minute at most.
  return static_cast<int>(std::min<int64_t>(wait.count() / 1'000'000 + 1, 60'000));
}

}  // namespace aikido::transport

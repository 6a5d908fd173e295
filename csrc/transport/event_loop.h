// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// One turn after another: file descriptors, then what is polled, then work posted by
// other threads (what is too much for one turn is left to the next), then timed work,
// then the writes that all of it caused. `now` stands still during a turn.
// Everything but post() and stop() belongs to the thread that calls run().

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "base/status.h"

namespace aikido::transport {

// Wants to hear of one file descriptor.
class FdHandler {
 public:
  virtual ~FdHandler() = default;
  virtual void on_events(uint32_t epoll_events) = 0;
};

// Has work that no descriptor tells of while the loop is awake.
class Polled {
 public:
  virtual ~Polled() = default;
  // Does what there is; once in each turn.
  virtual void poll() = 0;
  // The loop is about to sleep. True: a descriptor will tell of work; false: there is
  // some already.
  virtual bool rest() = 0;
};

// Has work that is due at some time.
class Timed {
 public:
  virtual ~Timed() = default;
  // Does what is due at `now`.
  virtual void on_time(TimePoint now) = 0;
  // When it wants to be called next. Empty: not before something else happens.
  [[nodiscard]] virtual std::optional<TimePoint> next_look() const = 0;
};

// Collects writes during a turn and performs them at its end.
class Flushable {
 public:
  virtual ~Flushable() = default;
  virtual void flush() = 0;
};

class EventLoop final : public Clock {
 public:
  // Throws InternalError when the kernel refuses an epoll or event descriptor.
  EventLoop();
  ~EventLoop() override;

  // Runs turns until stop(), which may come before. Can be run again.
  void run();
  // Any thread: makes run() return after its turn.
  void stop();
  // Any thread: runs `work` on the loop's thread, in the order of posting.
  void post(std::function<void()> work);

  // The time of this turn.
  [[nodiscard]] TimePoint now() const override { return now_; }

  // `handler` must outlive remove(). Events are EPOLLIN and the like.
  void add(int fd, uint32_t events, FdHandler* handler);
  void modify(int fd, uint32_t events, FdHandler* handler);
  // After this no event of `handler` is delivered any more, not even of this turn.
  void remove(int fd, FdHandler* handler);

  void add_polled(Polled* polled);
  void remove_polled(Polled* polled);

  void add_timed(Timed* timed);
  void remove_timed(Timed* timed);

  // Calls flush() once at the end of this turn.
  void request_flush(Flushable* flushable);
  void forget_flush(Flushable* flushable);

 private:
  void run_polled();
  void run_posted();
  void run_timed();
  void run_flushes();
  int poll_timeout_ms();
  bool can_sleep() const;

  SystemClock clock_;
  TimePoint now_;
  Fd epoll_;
  Fd wake_;
  std::vector<FdHandler*> removed_this_turn_;
  std::vector<Polled*> polled_;
  std::vector<Timed*> timed_;
  std::vector<Flushable*> flushes_;
  std::deque<std::function<void()>> work_;  // taken from posted_, being run

  // Guarded by mutex_.
  std::mutex mutex_;
  std::vector<std::function<void()>> posted_;
  bool wake_pending_ = false;
  std::atomic<bool> stop_{false};
};

}  // namespace aikido::transport

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Event loop. A turn handles, in this order: file descriptors, polled objects, work
// posted by other threads, timed work, and the writes that all of it caused. Work that
// is too much for one turn is left to the next. If no descriptor has events, for
// example in a turn of drive(), posted work comes first. So a call is registered before
// data for it is read. `now` does not change during a turn.
//
// Note [threads that run turns]
// The loop has its own thread, in run(). A thread that submits a call and blocks on it
// would first wake the loop thread and then be woken by it. On some hosts that takes
// longer than a small call. So callers run turns: drive() runs the turn that handles
// posted work, drive_with() a turn with work that need not be posted, and help() runs
// turns until its caller's condition holds.
//   Only one turn runs at a time, so handlers need no locks. At most one thread sleeps
// on the descriptors. The loop's own thread sleeps behind a gate: a second epoll that
// contains only the first. A helper closes the gate before it sleeps, or once it
// receives events. So a helper that finds its data in memory makes no system call for
// the gate. If a helper leaves while work is due before the loop thread's next look, it
// sets an alarm.
//
// Note [returning caller]
// A caller that spins may make its next call within microseconds. If the loop went to
// rest after each call, data of other members would wake the loop thread in between.
// Then the caller would find everything done, or the loop thread in its way. So the
// loop stays awake after a caller that returned in time. Nobody looks, and nobody is
// woken, until a caller returns or the caller's spin time has passed, at most one
// millisecond. Then the loop thread looks.
//
// Functions run on the thread of the turn, unless their comment allows any thread.

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "transport/loop/descriptors.h"
#include "transport/loop/helper_wait.h"
#include "transport/loop/own_thread_sleep.h"
#include "transport/loop/posted_work.h"
#include "transport/loop/timed_work.h"

namespace aikido::transport {

// Object with work that the loop finds only by polling: while the loop is awake, no
// descriptor reports it.
class Polled {
 public:
  virtual ~Polled() = default;
  // Does the available work, once in each turn. Returns true if there was some.
  virtual bool poll() = 0;
  // Prepares for a sleep of the loop. Returns true if a descriptor will report the next
  // work, and false if there is work already.
  virtual bool rest() = 0;
};

// Collects writes during a turn and performs them at its end.
class Flushable {
 public:
  virtual ~Flushable() = default;
  virtual void flush() = 0;
};

class EventLoop final : public Clock {
 public:
  // Largest delay of timed work while turns run; see Note [timed work] in timed_work.h.
  // Sleeps are longer: they take whole milliseconds.
  static constexpr Duration kMostLate = TimedWork::kMostLate;

  // Throws std::system_error if the kernel refuses a descriptor.
  EventLoop();
  ~EventLoop() override;

  // Runs turns until stop(), which may be called before. May run again.
  void run();
  // Any thread: makes run() return after its turn. Requires: no thread is in help().
  void stop();
  // Any thread: runs `work` in a turn, in the order of posting.
  void post(std::function<void()> work);
  // Any thread: as post(), in two steps. The second step may run the turn on the
  // calling thread.
  void enqueue(std::function<void()> work) { posted_.add(std::move(work)); }
  void drive();
  // Any thread: runs `work` in a turn at once, as if posted. Returns false, and does
  // nothing, if another thread is in a turn or other work comes first.
  bool drive_with(const std::function<void()>& work);
  // Any thread that is not in a turn: runs turns until `is_over`, which is checked
  // between turns, or until `deadline`. Does not sleep for `spin` after an event; see
  // Note [two phases] in two_phase_wait.h and Note [returning caller]. Returns false,
  // and does nothing, if another thread helps already. `is_over` must become true in a
  // turn; otherwise it is not checked.
  bool help(const std::function<bool()>& is_over, TimePoint deadline, Duration spin);
  // Any thread that is not in a turn: runs `work` while no thread is in a turn, and
  // then runs a turn.
  void between_turns(const std::function<void()>& work);
  // Any thread: eventfd for other processes. Writing 8 bytes to it causes a turn.
  // Nothing else depends on it, so other processes cannot do harm with it.
  int doorbell() const { return doorbell_.get(); }
  // True if the caller is in a turn of some loop.
  static bool is_in_turn();

  // Time of this turn.
  [[nodiscard]] TimePoint now() const override { return now_; }
  [[nodiscard]] TimePoint latest() const override { return clock_.now(); }
  [[nodiscard]] TimePoint read_before() const override { return read_before_; }

  // `handler` must outlive remove(). Events are EPOLLIN and others.
  void add(int fd, uint32_t events, FdHandler* handler) {
    descriptors_.add(fd, events, handler);
  }
  void modify(int fd, uint32_t events, FdHandler*) { descriptors_.modify(fd, events); }
  // From now on `handler` gets no event, not even of this turn.
  void remove(int fd, FdHandler*) { descriptors_.remove(fd); }

  void add_polled(Polled* polled);
  void remove_polled(Polled* polled);

  void add_timed(Timed* timed) { timed_.add(timed); }
  void remove_timed(Timed* timed) { timed_.remove(timed); }

  // Calls flush() once at the end of this turn.
  void request_flush(Flushable* flushable);
  void forget_flush(Flushable* flushable);

 private:
  using TurnLock = std::unique_lock<std::mutex>;

  void sleep_and_turn(TurnLock& turn);
  bool help_once(TurnLock& turn, TwoPhaseWait::Step step, TimePoint deadline);
  int ms_to_sleep(TimePoint until);
  size_t take_events(int ms);
  // `num_events`: number of events; empty if the loop did not ask for events.
  void run_turn(std::optional<size_t> num_events,
                const std::function<void()>* first = nullptr);
  void end_driving();
  bool run_polled();
  void run_flushes();
  void leave_to_own_thread();
  void wake();
  void post_wake();
  bool has_work() const;
  bool stays_awake() const { return now_ < awake_until_.load(); }
  TimePoint left_until();
  bool can_sleep() const;

  SystemClock clock_;
  TimePoint now_;
  TimePoint read_before_;
  TimePoint asked_at_;  // time before the last take_events(); for its caller only
  Descriptors descriptors_;
  // Held by the thread that runs a turn. It guards all members but posted_, stop_ and
  // helper_wait_.
  std::mutex turn_mutex_;
  OwnThreadSleep own_sleep_;
  Fd wake_;
  Fd doorbell_;
  bool is_helped_ = false;
  HelperWait helper_wait_;      // for the helper only, so no lock guards it
  bool gets_events_ = false;    // the present or last helper
  TimePoint left_at_{};         // by the last helper
  bool did_something_ = false;  // in the last turn
  std::vector<Polled*> polled_;
  TimedWork timed_;
  std::vector<Flushable*> flushes_;
  PostedWork posted_;
  std::atomic<bool> stop_{false};
  // See Note [returning caller]. Only the holder of turn_mutex_ writes it.
  std::atomic<TimePoint> awake_until_{};
};

}  // namespace aikido::transport

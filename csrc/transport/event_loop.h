// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// One turn after another: file descriptors, then what is polled, then work posted by
// other threads (what is too much for one turn is left to the next), then timed work,
// then the writes that all of it caused. Where no descriptor tells of anything, as when
// a caller drives the loop, posted work is first: so a call is there before what has
// come for it. `now` stands still during a turn.
//
// Note [who runs a turn]
// The loop has a thread of its own, in run(). But who makes a call and then waits for
// it would wake that thread up, only to be woken up by it: on a host that takes longer
// than a small call. So callers lend a hand: drive() runs the turn that takes up what
// was posted, drive_with() one with work that need not be posted for it, and help()
// turn after turn until its caller has what it waits for. There is one turn at a time,
// so handlers need no locks. One thread at most sleeps on the descriptors: the loop's
// own thread does so behind a gate, an epoll of its own that knows nothing but the
// other, and a helper shuts the gate before it sleeps, or once it gets events: one that
// finds in memory what it waits for makes no system call for that. Who leaves work that
// is due before the own thread would look sets an alarm.
//
// Note [who comes back]
// A caller that spins may make its next call within microseconds. If it left a loop at
// rest each time, what others send in between would wake up the loop's own thread, only
// for the caller to find everything done, or somebody in its way. So behind one that
// came back in time the loop stays awake: nobody looks, and nobody is rung for, until a
// caller comes back or as long has passed as it spins, a millisecond at most. Then the
// own thread looks.
//
// Note [what is due]
// Who spins runs many turns in the time in which anything becomes due: to ask all that
// is timed would be a good part of a turn that finds nothing. So a turn asks only where
// none has done so for kMostLate, and timed work is as late as that at most, or as long
// as a loop stays awake. Nobody sleeps, or leaves a loop at rest, without having asked
// when to be back; what is due by then is done before.
//
// What is not said to be for any thread is for the one that runs the turn.

#include <sys/epoll.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "base/core.h"
#include "base/fd.h"
#include "base/recycler.h"
#include "base/status.h"
#include "transport/crowded_wait.h"
#include "transport/shared_core.h"
#include "transport/two_phase_wait.h"

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
  // Does what there is; once in each turn. Returns whether there was something.
  virtual bool poll() = 0;
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
  // How late a turn may be for what is due: less than a sleep, of whole milliseconds.
  static constexpr Duration kMostLate = std::chrono::microseconds(50);

  // Throws std::system_error when the kernel refuses a descriptor.
  EventLoop();
  ~EventLoop() override;

  // Runs turns until stop(), which may come before. Can be run again.
  void run();
  // Any thread: makes run() return after its turn. Requires: nobody helps.
  void stop();
  // Any thread: runs `work` in a turn, in the order of posting.
  void post(std::function<void()> work);
  // Any thread: the same in two steps, of which the second may run the turn itself.
  void enqueue(std::function<void()> work);
  void drive();
  // Any thread: runs `work` in a turn at once, as if it had been posted. False, and
  // nothing was done: somebody is in a turn, or other work comes first.
  bool drive_with(const std::function<void()>& work);
  // Any thread but in a turn: runs turns until `is_over`, which is asked between them,
  // or `deadline`; for `spin` after something has happened without sleeping, see also
  // Note [two phases] in two_phase_wait.h and Note [who comes back]. False, and nothing
  // was done: somebody else helps already.
  // `is_over` must come true in a turn, else nobody looks.
  bool help(const std::function<bool()>& is_over, TimePoint deadline, Duration spin);
  // Any thread but in a turn: runs `work` while nobody is in a turn, and then a turn.
  void between_turns(const std::function<void()>& work);
  // Any thread: an eventfd for other processes; 8 bytes written to it make somebody run
  // a turn. Nothing else depends on it, whatever they do with it.
  int doorbell() const { return doorbell_.get(); }
  // Whether the caller is in a turn of some loop.
  static bool is_in_turn();

  // The time of this turn.
  [[nodiscard]] TimePoint now() const override { return now_; }
  [[nodiscard]] TimePoint latest() const override { return clock_.now(); }

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
  using TurnLock = std::unique_lock<std::mutex>;
  using HandlerId = uint64_t;

  void sleep_and_turn(TurnLock& turn);
  bool help_once(TurnLock& turn, TwoPhaseWait::Step step, TimePoint deadline);
  void yield();
  void look_for_core();
  int ms_to_sleep(TimePoint until);
  void sleep_behind_gate(std::optional<Duration> most);
  size_t take_events(int ms);
  void set_gate(bool is_open);
  void run_turn(size_t num_events, const std::function<void()>* first = nullptr);
  void end_driving();
  void run_events(size_t num_events);
  bool run_polled();
  void run_posted();
  void run_timed();
  void run_flushes();
  void leave_to_own_thread();
  void set_alarm(TimePoint due);
  void turn_alarm_off();
  void wake();
  void post_wake();
  bool has_work() const;
  bool stays_awake() const { return now_ < awake_until_.load(); }
  TimePoint left_until();
  bool can_sleep() const;
  TimePoint next_due() const;

  SystemClock clock_;
  TimePoint now_;
  Fd epoll_;
  Fd gate_;
  Fd alarm_;  // of the loop's own thread, see set_alarm()
  Fd wake_;
  Fd doorbell_;

  // Held by whoever runs a turn, and guards all down to mutex_.
  std::mutex turn_mutex_;
  bool is_helped_ = false;
  // Of the helper, who needs no lock for them.
  TwoPhaseWait wait_;
  SharedCore core_{std::random_device{}()};
  CrowdedWait crowded_{std::random_device{}()};
  std::optional<ReadyThreads> ready_;  // of a wait that lasts
  OtherCores other_cores_;
  bool is_gate_open_ = true;
  bool gets_events_ = false;  // the helper that is there, or the last one
  TimePoint left_at_{};       // by the last helper
  // The loop's own thread, in the kernel, or until awake_until_ if that is later;
  // empty: it is awake, and will look.
  std::optional<TimePoint> own_sleeps_until_;
  bool did_something_ = false;  // in the last turn
  // No turn before asks what is due; see Note [what is due].
  TimePoint ask_due_at_ = TimePoint::min();
  std::array<epoll_event, 64> events_;
  HandlerId last_id_ = 0;
  std::unordered_map<HandlerId, FdHandler*> handlers_;
  std::unordered_map<int, HandlerId> ids_;  // by descriptor
  std::vector<Polled*> polled_;
  std::vector<Timed*> timed_;
  std::vector<Flushable*> flushes_;
  Recycler recycler_{4 << 10};
  // Taken from posted_, being run.
  RecycledDeque<std::function<void()>> work_{recycler_};

  // Guarded by mutex_.
  std::mutex mutex_;
  std::vector<std::function<void()>> posted_;
  bool wake_pending_ = false;
  // Whether there is any in posted_; read without the lock. Who posts behind that sees
  // that somebody is in a turn, and wakes up who looks next.
  std::atomic<bool> is_posted_{false};
  std::atomic<bool> stop_{false};
  // See Note [who comes back]; written by who holds turn_mutex_.
  std::atomic<TimePoint> awake_until_{};
};

}  // namespace aikido::transport

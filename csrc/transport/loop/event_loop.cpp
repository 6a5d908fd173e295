// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "transport/loop/event_loop.h"

#include <poll.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <iterator>
#include <system_error>
#include <utility>

#include "base/check.h"
#include "base/core.h"

namespace aikido::transport {
namespace {

// Limit of posted work per turn. Received data, heartbeats and time-outs come after it,
// regardless of how much is posted.
constexpr size_t kMaxWorkPerTurn = 256;
// Turns that a leaving caller runs for others before it leaves the work to the loop's
// own thread.
constexpr int kMaxExtraTurns = 4;
// Longest time that the loop stays awake for a returning caller. Other work waits for
// at most this time if the caller does not return.
constexpr Duration kMostAwake = std::chrono::milliseconds(1);

timespec to_timespec(Duration d) {
  const Duration second = std::chrono::seconds(1);
  return {.tv_sec = d / second, .tv_nsec = (d % second).count()};
}

// True while this thread runs a turn of any loop.
thread_local bool is_turning = false;

struct Turning {
  Turning() { is_turning = true; }
  ~Turning() { is_turning = false; }
};

}  // namespace

EventLoop::EventLoop()
    : now_(clock_.now()),
      read_before_(now_),
      asked_at_(now_),
      epoll_(::epoll_create1(EPOLL_CLOEXEC)),
      gate_(::epoll_create1(EPOLL_CLOEXEC)),
      alarm_(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK)),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      doorbell_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  const bool are_open = epoll_.is_open() && gate_.is_open() && alarm_.is_open() &&
                        wake_.is_open() && doorbell_.is_open();
  if (!are_open) throw std::system_error(errno, std::generic_category());
  epoll_event event{};
  event.events = EPOLLIN;
  AIKIDO_CHECK(::epoll_ctl(gate_.get(), EPOLL_CTL_ADD, epoll_.get(), &event) == 0,
               describe_errno(errno));
  // These eventfds are never read: with EPOLLET each write causes one event.
  add(wake_.get(), EPOLLIN | EPOLLET, nullptr);
  add(doorbell_.get(), EPOLLIN | EPOLLET, nullptr);
}

EventLoop::~EventLoop() = default;

bool EventLoop::is_in_turn() {
  return is_turning;
}

// Events carry a number and not the address of the handler, because an earlier event of
// the same turn may destroy the handler.
void EventLoop::add(int fd, uint32_t events, FdHandler* handler) {
  const HandlerId id = ++last_id_;
  epoll_event event{};
  event.events = events;
  event.data.u64 = id;
  AIKIDO_CHECK(::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0,
               describe_errno(errno));
  ids_[fd] = id;
  if (handler != nullptr) handlers_[id] = handler;
}

void EventLoop::modify(int fd, uint32_t events, FdHandler*) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = ids_.at(fd);
  AIKIDO_CHECK(::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event) == 0,
               describe_errno(errno));
}

void EventLoop::remove(int fd, FdHandler*) {
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
  const auto id = ids_.extract(fd);
  if (!id.empty()) handlers_.erase(id.mapped());
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
  // Not erased: run_flushes() may be iterating over the list.
  std::replace(flushes_.begin(), flushes_.end(), flushable,
               static_cast<Flushable*>(nullptr));
}

// ---- any thread ----

void EventLoop::post(std::function<void()> work) {
  enqueue(std::move(work));
  post_wake();
}

void EventLoop::enqueue(std::function<void()> work) {
  const std::lock_guard lock(mutex_);
  posted_.push_back(std::move(work));
  is_posted_ = true;
}

void EventLoop::post_wake() {
  {
    // One wake-up covers all work that is posted before the next turn takes it.
    const std::lock_guard lock(mutex_);
    if (posted_.empty() || std::exchange(wake_pending_, true)) return;
  }
  wake();
}

void EventLoop::wake() {
  const uint64_t one = 1;
  [[maybe_unused]] const auto n = ::write(wake_.get(), &one, sizeof one);
}

void EventLoop::stop() {
  stop_.store(true);
  wake();
}

void EventLoop::run() {
  TurnLock turn(turn_mutex_);
  while (!stop_.exchange(false)) sleep_and_turn(turn);
  const Turning turning;
  // Work that was posted before stop() still runs.
  run_posted();
}

void EventLoop::drive() {
  // Within a turn, or while another thread is in one, that turn or the next takes the
  // work.
  if (is_turning) return post_wake();
  const TurnLock turn(turn_mutex_, std::try_to_lock);
  if (!turn.owns_lock()) return post_wake();
  run_turn({});
  end_driving();
}

bool EventLoop::drive_with(const std::function<void()>& work) {
  if (is_turning) return false;
  const TurnLock turn(turn_mutex_, std::try_to_lock);
  // Work that was posted before must run before `work`.
  if (!turn.owns_lock() || has_work()) return false;
  run_turn({}, &work);
  end_driving();
  return true;
}

bool EventLoop::help(const std::function<bool()>& is_over, TimePoint deadline,
                     Duration spin) {
  TurnLock turn(turn_mutex_);
  if (is_helped_) return false;
  struct Helper {
    explicit Helper(EventLoop* l) : loop(l) { loop->is_helped_ = true; }
    ~Helper() {
      loop->ready_.reset();
      loop->other_cores_.come_back();
      loop->is_helped_ = false;
      loop->set_gate(true);
    }
    EventLoop* loop;
  };
  {
    const Helper helper(this);
    // If the last helper received events, this one will probably too. Closing the gate
    // now saves the loop thread a wake-up.
    if (std::exchange(gets_events_, false)) set_gate(false);
    now_ = clock_.now();
    const Duration most_awake = std::min(spin, kMostAwake);
    const bool comes_back = now_ - left_at_ < most_awake;
    wait_.begin(spin);
    crowded_.begin(now_);
    bool did = true;  // Not known: so the first step is a look.
    while (!is_over() && now_ < deadline && !stop_)
      did = help_once(turn, wait_.next(now_, did), deadline);
    left_at_ = now_;
    if (comes_back) awake_until_ = now_ + most_awake;
  }
  // The helper object is gone here, so the gate is open again.
  leave_to_own_thread();
  return true;
}

void EventLoop::between_turns(const std::function<void()>& work) {
  {
    const std::lock_guard turn(turn_mutex_);
    const Turning turning;
    work();
  }
  // The loop thread computes its sleeping time again, because `work` may have added
  // timed objects.
  wake();
}

// ---- turns ----

// One step of the loop's own thread: sleeps until there is work, and does it.
void EventLoop::sleep_and_turn(TurnLock& turn) {
  // With an open gate this thread would wake again and again for events that the helper
  // has not taken yet.
  if (is_helped_) set_gate(false);
  std::optional<Duration> most;  // time to sleep; empty: without limit
  const TimePoint awake_until = awake_until_;
  const Duration awake = awake_until - std::min(clock_.now(), awake_until);
  if (awake > Duration::zero()) {
    own_sleeps_until_ = awake_until;
    most = is_helped_ || !has_work() ? awake : Duration::zero();
  } else if (is_helped_) {
    // A helper takes care of all work, and sets the alarm when it leaves.
    own_sleeps_until_ = TimePoint::max();
  } else {
    own_sleeps_until_ = next_due();
    const int ms = ms_to_sleep(TimePoint::max());
    if (ms >= 0) most = std::chrono::milliseconds(ms);
  }
  turn.unlock();
  if (most != Duration::zero()) sleep_behind_gate(most);
  turn.lock();
  own_sleeps_until_.reset();
  if (!is_helped_) run_turn(take_events(0));
}

// Sleeps until an event arrives, or until `most` has passed and no caller is expected
// to return. Does not hold turn_mutex_, so that a caller that returns again and again
// is not delayed.
void EventLoop::sleep_behind_gate(std::optional<Duration> most) {
  do {
    const timespec left = to_timespec(most.value_or(Duration::zero()));
    std::array<pollfd, 2> fds{{{gate_.get(), POLLIN, 0}, {alarm_.get(), POLLIN, 0}}};
    const int n = ::ppoll(fds.data(), fds.size(), most ? &left : nullptr, nullptr);
    AIKIDO_CHECK(n >= 0 || errno == EINTR, describe_errno(errno));
    if (n < 0 || fds[0].revents != 0) return;
    if (fds[1].revents != 0) turn_alarm_off();
    most = awake_until_.load() - clock_.now();
  } while (*most > Duration::zero());
}

// One step of a helper, which ends at `deadline`. Returns true if there was work.
bool EventLoop::help_once(TurnLock& turn, TwoPhaseWait::Step step, TimePoint deadline) {
  const int ms = step == TwoPhaseWait::Step::kSleep ? ms_to_sleep(deadline) : 0;
  if (ms != 0) set_gate(false);
  const bool may_be_crowded =
      step != TwoPhaseWait::Step::kLook && crowded_.is_due(now_);
  // Others may run turns while this thread yields or sleeps.
  turn.unlock();
  if (step == TwoPhaseWait::Step::kYield) yield();
  if (may_be_crowded) look_for_core();
  const size_t num_events = take_events(ms);
  turn.lock();
  if (num_events > 0) {
    gets_events_ = true;
    set_gate(false);
  }
  run_turn(num_events);
  return num_events > 0 || did_something_;
}

// The thread that the helper waits for may have no other core to run on.
void EventLoop::yield() {
  const TimePoint before = clock_.now();
  ::sched_yield();
  const TimePoint after = clock_.now();
  wait_.yielded(after, after - before);
  if (wait_.spins() && core_.yielded(after, after - before)) move_to_another_core();
}

// Called by a helper during a long wait, without turn_mutex_.
void EventLoop::look_for_core() {
  if (!ready_) ready_.emplace();
  const auto waited = ready_->waited();
  if (!waited) return crowded_.give_up();
  if (!crowded_.looked(clock_.now(), *waited)) return;
  const bool is_another_idle = ready_->fit_cores();
  // The core that the thread has left may be the better choice by now.
  if (!is_another_idle) other_cores_.come_back();
  if (crowded_.counts(is_another_idle)) other_cores_.leave();
}

// The order matters: can_sleep() announces the sleep, and has_work() is read
// afterwards. So work that came before is seen, and work that comes later wakes this
// thread.
int EventLoop::ms_to_sleep(TimePoint until) {
  if (!can_sleep() || has_work()) return 0;
  const TimePoint due = std::min(until, next_due());
  if (due == TimePoint::max()) return -1;
  const Duration wait = due - clock_.now();
  if (wait <= Duration::zero()) {
    // Due work must not wait for the interval of Note [timed work].
    ask_due_at_ = TimePoint::min();
    return 0;
  }
  // Rounded up, so that no look is too early. At most one minute.
  return static_cast<int>(std::min<int64_t>(wait.count() / 1'000'000 + 1, 60'000));
}

// Only one thread at a time calls this, because events_ is shared.
size_t EventLoop::take_events(int ms) {
  asked_at_ = clock_.now();
  const int n =
      ::epoll_wait(epoll_.get(), events_.data(), static_cast<int>(events_.size()), ms);
  AIKIDO_CHECK(n >= 0 || errno == EINTR, describe_errno(errno));
  return static_cast<size_t>(std::max(n, 0));
}

void EventLoop::set_gate(bool is_open) {
  if (std::exchange(is_gate_open_, is_open) == is_open) return;
  epoll_event event{};
  event.events = is_open ? uint32_t{EPOLLIN} : 0u;
  ::epoll_ctl(gate_.get(), EPOLL_CTL_MOD, epoll_.get(), &event);
}

// `first` runs in place of the posted work.
void EventLoop::run_turn(std::optional<size_t> num_events,
                         const std::function<void()>* first) {
  const Turning turning;
  now_ = clock_.now();
  // Posted work waits until the events are handled, because the reports of events must
  // not get old. For example, a leaving member gives its reason behind its data, over
  // another lane.
  const bool are_calls_first = num_events.value_or(0) == 0;
  if (first != nullptr) {
    (*first)();
  } else if (are_calls_first) {
    run_posted();
  }
  run_events(num_events.value_or(0));
  did_something_ = run_polled();
  if (num_events) read_before_ = asked_at_;
  if (!are_calls_first) run_posted();
  run_timed();
  run_flushes();
}

void EventLoop::run_events(size_t num_events) {
  for (size_t i = 0; i < num_events; ++i) {
    const auto handler = handlers_.find(events_[i].data.u64);
    if (handler != handlers_.end()) handler->second->on_events(events_[i].events);
  }
}

// Called after a turn of drive(). If there is a helper, it may sleep already, so it is
// woken to see the new work.
void EventLoop::end_driving() {
  if (is_helped_) return wake();
  leave_to_own_thread();
}

// Leaves the loop without a helper. The loop's own thread sleeps on if possible, until
// its alarm. Otherwise it is woken.
void EventLoop::leave_to_own_thread() {
  if (!own_sleeps_until_ && !stop_) return;
  TimePoint until = left_until();
  for (int i = 0; i < kMaxExtraTurns && until <= now_; ++i) {
    run_turn({});
    until = left_until();
  }
  if (stop_ || until <= now_) return wake();
  if (until < *own_sleeps_until_) set_alarm(until);
}

// Sets the alarm for work that is due before the loop thread wakes. A direct wake-up
// would only let that thread compute how long to sleep. That takes a core for tens of
// microseconds, which the callers need.
void EventLoop::set_alarm(TimePoint due) {
  own_sleeps_until_ = due;
  const Duration left = std::max(Duration(1), due - clock_.now());  // 0 disarms
  const itimerspec at{.it_interval = {}, .it_value = to_timespec(left)};
  AIKIDO_CHECK(::timerfd_settime(alarm_.get(), 0, &at, nullptr) == 0,
               describe_errno(errno));
}

// Called by the loop's own thread. The alarm may have been set again meanwhile; a read
// does not undo that.
void EventLoop::turn_alarm_off() {
  uint64_t times = 0;
  [[maybe_unused]] const auto n = ::read(alarm_.get(), &times, sizeof times);
}

// Time of the loop thread's next look after a caller has left. It is now if there is
// work.
TimePoint EventLoop::left_until() {
  if (has_work()) return now_;
  if (stays_awake()) return awake_until_;
  if (!can_sleep()) return now_;
  const TimePoint due = next_due();
  if (due <= now_) ask_due_at_ = TimePoint::min();
  return due;
}

// True if each polled object will be woken through a descriptor for new work.
bool EventLoop::can_sleep() const {
  return std::all_of(polled_.begin(), polled_.end(),
                     [](Polled* p) { return p->rest(); });
}

bool EventLoop::run_polled() {
  bool did_something = false;
  // By index, because poll() may add and remove objects. If a removal makes the loop
  // skip an object, that object is polled in the next turn, because it will not rest.
  for (size_t i = 0; i < polled_.size(); ++i)
    did_something = polled_[i]->poll() || did_something;
  return did_something;
}

void EventLoop::run_posted() {
  if (is_posted_) {
    const std::lock_guard lock(mutex_);
    std::move(posted_.begin(), posted_.end(), std::back_inserter(work_));
    posted_.clear();
    wake_pending_ = false;
    is_posted_ = false;
  }
  // One at a time, so that an exception of one function does not lose the others.
  for (size_t i = 0; i < kMaxWorkPerTurn && !work_.empty(); ++i) {
    const auto work = std::move(work_.front());
    work_.pop_front();
    work();
  }
}

void EventLoop::run_timed() {
  if (now_ < ask_due_at_) return;
  ask_due_at_ = now_ + kMostLate;
  // By index, because on_time() may add and remove objects.
  for (size_t i = 0; i < timed_.size(); ++i) {
    const auto due = timed_[i]->next_look();
    if (due && *due <= now_) timed_[i]->on_time(now_);
  }
}

void EventLoop::run_flushes() {
  // A flush may complete an operation, which may request more flushes in the same turn.
  // So the size is read each time.
  for (size_t i = 0; i < flushes_.size(); ++i) {
    if (flushes_[i] != nullptr) std::exchange(flushes_[i], nullptr)->flush();
  }
  flushes_.clear();
}

// True if work is left from the last turn, because it was too much or an exception
// ended that turn, or if work was posted since.
bool EventLoop::has_work() const {
  return !work_.empty() || !flushes_.empty() || is_posted_;
}

TimePoint EventLoop::next_due() const {
  TimePoint earliest = TimePoint::max();
  for (const Timed* timed : timed_)
    earliest = std::min(earliest, timed->next_look().value_or(earliest));
  return earliest;
}

}  // namespace aikido::transport

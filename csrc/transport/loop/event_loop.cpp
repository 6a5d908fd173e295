// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "transport/loop/event_loop.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

namespace aikido::transport {
namespace {

// Turns that a leaving caller runs for others before it leaves the work to the loop's
// own thread.
constexpr int kMaxExtraTurns = 4;
// Longest time that the loop stays awake for a returning caller. Other work waits for
// at most this time if the caller does not return.
constexpr Duration kMostAwake = std::chrono::milliseconds(1);

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
      own_sleep_(descriptors_.fd()),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      doorbell_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!wake_.is_open() || !doorbell_.is_open())
    throw std::system_error(errno, std::generic_category());
  // These eventfds are never read: with EPOLLET each write causes one event.
  add(wake_.get(), EPOLLIN | EPOLLET, nullptr);
  add(doorbell_.get(), EPOLLIN | EPOLLET, nullptr);
}

EventLoop::~EventLoop() = default;

bool EventLoop::is_in_turn() {
  return is_turning;
}

void EventLoop::add_polled(Polled* polled) {
  polled_.push_back(polled);
}
void EventLoop::remove_polled(Polled* polled) {
  std::erase(polled_, polled);
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

void EventLoop::post_wake() {
  if (posted_.needs_wake_up()) wake();
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
  posted_.run();
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
      loop->helper_wait_.end();
      loop->is_helped_ = false;
      loop->own_sleep_.set_gate(true);
    }
    EventLoop* loop;
  };
  {
    const Helper helper(this);
    // If the last helper received events, this one will probably too. Closing the gate
    // now saves the loop thread a wake-up.
    if (std::exchange(gets_events_, false)) own_sleep_.set_gate(false);
    now_ = clock_.now();
    const Duration most_awake = std::min(spin, kMostAwake);
    const bool comes_back = now_ - left_at_ < most_awake;
    helper_wait_.begin(now_, spin);
    bool did = true;  // Not known: so the first step is a look.
    while (!is_over() && now_ < deadline && !stop_)
      did = help_once(turn, helper_wait_.next(now_, did), deadline);
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
  if (is_helped_) own_sleep_.set_gate(false);
  std::optional<Duration> most;  // time to sleep; empty: without limit
  const TimePoint awake_until = awake_until_;
  const Duration awake = awake_until - std::min(clock_.now(), awake_until);
  if (awake > Duration::zero()) {
    own_sleep_.fall_asleep(awake_until);
    most = is_helped_ || !has_work() ? awake : Duration::zero();
  } else if (is_helped_) {
    // A helper takes care of all work, and sets the alarm when it leaves.
    own_sleep_.fall_asleep(TimePoint::max());
  } else {
    own_sleep_.fall_asleep(timed_.next_due());
    const int ms = ms_to_sleep(TimePoint::max());
    if (ms >= 0) most = std::chrono::milliseconds(ms);
  }
  turn.unlock();
  if (most != Duration::zero()) own_sleep_.sleep(most, awake_until_);
  turn.lock();
  own_sleep_.wake_up();
  if (!is_helped_) run_turn(take_events(0));
}

// One step of a helper, which ends at `deadline`. Returns true if there was work.
bool EventLoop::help_once(TurnLock& turn, TwoPhaseWait::Step step, TimePoint deadline) {
  const int ms = step == TwoPhaseWait::Step::kSleep ? ms_to_sleep(deadline) : 0;
  if (ms != 0) own_sleep_.set_gate(false);
  const bool may_be_crowded = helper_wait_.is_look_due(step, now_);
  // Others may run turns while this thread yields or sleeps.
  turn.unlock();
  if (step == TwoPhaseWait::Step::kYield) helper_wait_.yield();
  if (may_be_crowded) helper_wait_.look_for_core();
  const size_t num_events = take_events(ms);
  turn.lock();
  if (num_events > 0) {
    gets_events_ = true;
    own_sleep_.set_gate(false);
  }
  run_turn(num_events);
  return num_events > 0 || did_something_;
}

// The order matters: can_sleep() announces the sleep, and has_work() is read
// afterwards. So work that came before is seen, and work that comes later wakes this
// thread.
int EventLoop::ms_to_sleep(TimePoint until) {
  if (!can_sleep() || has_work()) return 0;
  const TimePoint due = std::min(until, timed_.next_due());
  if (due == TimePoint::max()) return -1;
  const Duration wait = due - clock_.now();
  if (wait <= Duration::zero()) {
    // Due work must not wait for the interval of Note [timed work].
    timed_.ask_soon();
    return 0;
  }
  // Rounded up, so that no look is too early. At most one minute.
  return static_cast<int>(std::min<int64_t>(wait.count() / 1'000'000 + 1, 60'000));
}

// Only one thread at a time calls this.
size_t EventLoop::take_events(int ms) {
  asked_at_ = clock_.now();
  return descriptors_.take(ms);
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
    posted_.run();
  }
  descriptors_.run(num_events.value_or(0));
  did_something_ = run_polled();
  if (num_events) read_before_ = asked_at_;
  if (!are_calls_first) posted_.run();
  timed_.run(now_);
  run_flushes();
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
  if (!own_sleep_.until() && !stop_) return;
  TimePoint until = left_until();
  for (int i = 0; i < kMaxExtraTurns && until <= now_; ++i) {
    run_turn({});
    until = left_until();
  }
  if (stop_ || until <= now_) return wake();
  own_sleep_.set_alarm(until);
}

// Time of the loop thread's next look after a caller has left. It is now if there is
// work.
TimePoint EventLoop::left_until() {
  if (has_work()) return now_;
  if (stays_awake()) return awake_until_;
  if (!can_sleep()) return now_;
  const TimePoint due = timed_.next_due();
  if (due <= now_) timed_.ask_soon();
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

void EventLoop::run_flushes() {
  // A flush may complete an operation, which may request more flushes in the same turn.
  // So the size is read each time.
  for (size_t i = 0; i < flushes_.size(); ++i) {
    if (flushes_[i] != nullptr) std::exchange(flushes_[i], nullptr)->flush();
  }
  flushes_.clear();
}

// True if work or flushes are left, because it was too much for the last turn or an
// exception ended it, or if work was posted since.
bool EventLoop::has_work() const {
  return !flushes_.empty() || !posted_.is_empty();
}

}  // namespace aikido::transport

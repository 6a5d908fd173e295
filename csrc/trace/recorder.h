// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Recorder of the spans of this process while it is armed: by hand, or for some
// training steps of the user. Each thread writes to its own ring, which is allocated
// with its first span. While disarmed, a check costs one relaxed load. Methods from any
// thread.

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/own_process.h"
#include "trace/event_log.h"
#include "trace/ring.h"
#include "trace/span.h"

namespace aikido::trace {

// Object with calls in progress, for dumps of a job that hangs.
class Unfinished {
 public:
  virtual ~Unfinished() = default;
  // Appends the spans of calls in progress, with the end `now_ns`. Any thread; the lock
  // of the recorder is held.
  virtual void add_open(int64_t now_ns, std::vector<Span>& spans) const = 0;
};

class Recorder {
 public:
  // Limit of recording threads. Spans of further threads are dropped and counted.
  static constexpr size_t kMaxThreads = 64;
  static constexpr size_t kSpansPerThread = 1 << 15;
  static constexpr int64_t kNotTraced = -1;

  // `clock` must outlive the recorder. Null: the system's clock.
  explicit Recorder(size_t spans_per_thread = kSpansPerThread,
                    const Clock* clock = nullptr);
  ~Recorder();
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  bool is_armed() const { return is_armed_.load(std::memory_order_relaxed); }
  // Number of the current step if it is traced, else kNotTraced.
  int64_t traced_step() const {
    return is_armed() ? step_.load(std::memory_order_relaxed) : kNotTraced;
  }
  int64_t step() const { return step_.load(std::memory_order_relaxed); }
  TimePoint now() const { return clock_->now(); }

  // Records from now on until disarm().
  void arm();
  // Records in the steps from `first` to `last`, inclusive.
  void arm_steps(int64_t first, int64_t last);
  void disarm();
  // The user begins step `step`. It is 0 before the first call.
  void set_step(int64_t step);

  // Records a span, armed or not: it may have begun while the recorder was armed.
  void record(const Span& span);
  // Number for a name, for Span::name. Equal texts get equal numbers. After 65535
  // names, all further names get the last number.
  uint16_t name(const std::string& text);

  // take() asks `calls` too, until it is removed.
  void add(const Unfinished* calls);
  void remove(const Unfinished* calls);

  struct Taken {
    // thread by thread, each in order; then calls in progress
    std::vector<Span> spans;
    uint64_t num_dropped = 0;
    std::vector<std::string> names;
  };
  // Removes and returns all recorded spans. Spans of calls in progress are included,
  // and will come again.
  Taken take();

  // Events of members of all groups of the process, recorded whether armed or not.
  EventLog& event_log() { return event_log_; }

 private:
  Ring* ring_of_this_thread();
  void arm_as_due();
  void watch_for_stops();

  const size_t spans_per_thread_;
  const SystemClock system_clock_;
  const Clock* const clock_;
  const uint64_t id_;  // unique, unlike the address
  const OwnProcess own_process_;
  std::atomic<bool> is_armed_{false};
  std::atomic<int64_t> step_{0};
  std::atomic<uint64_t> num_dropped_{0};
  EventLog event_log_;

  std::mutex mutex_;
  // Guarded by mutex_.
  bool is_armed_by_hand_ = false;
  int64_t first_step_ = 0, last_step_ = -1;
  std::map<std::thread::id, std::unique_ptr<Ring>> rings_;
  std::vector<std::string> names_;
  std::vector<const Unfinished*> unfinished_;
  bool is_ending_ = false;
  std::condition_variable watch_;
  std::thread watcher_;  // started when the recorder is first armed
};

}  // namespace aikido::trace

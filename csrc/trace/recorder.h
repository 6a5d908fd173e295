// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Records spans of this process while it is armed: by hand, or for some steps of the
// user's training. Each thread writes to a ring of its own, whose memory is taken when
// it first records. Disarmed it costs one relaxed load. Methods from any thread.

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
#include "trace/journal.h"
#include "trace/ring.h"
#include "trace/span.h"

namespace aikido::trace {

// Somebody with calls that are under way, for dumps of a job that hangs.
class Unfinished {
 public:
  virtual ~Unfinished() = default;
  // Adds their spans to `spans`, with that end. Any thread; under the lock of the
  // recorder.
  virtual void add_open(int64_t now_ns, std::vector<Span>& spans) const = 0;
};

class Recorder {
 public:
  // Threads that can record; spans of further ones are dropped and counted.
  static constexpr size_t kMaxThreads = 64;
  static constexpr size_t kSpansPerThread = 1 << 15;
  static constexpr int64_t kNotTraced = -1;

  // `clock` must outlive it; null: the system's.
  explicit Recorder(size_t spans_per_thread = kSpansPerThread,
                    const Clock* clock = nullptr);
  ~Recorder();
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  bool is_armed() const { return is_armed_.load(std::memory_order_relaxed); }
  // The step that is under way if it is traced, else kNotTraced.
  int64_t traced_step() const {
    return is_armed() ? step_.load(std::memory_order_relaxed) : kNotTraced;
  }
  int64_t step() const { return step_.load(std::memory_order_relaxed); }
  TimePoint now() const { return clock_->now(); }

  // From now on until disarm().
  void arm();
  // In the steps from `first` to `last`, both included.
  void arm_steps(int64_t first, int64_t last);
  void disarm();
  // The user begins step `step`; 0 before the first call.
  void set_step(int64_t step);

  // Armed or not: what began while it was armed may end later.
  void record(const Span& span);
  // The number of a name, for Span::name; the same for the same text. Names are few:
  // after 65535 of them all further ones are the last.
  uint16_t name(const std::string& text);

  // take() asks `calls` as well, until it is removed.
  void add(const Unfinished* calls);
  void remove(const Unfinished* calls);

  struct Taken {
    // Of one thread after the other, each in its order; then what is under way.
    std::vector<Span> spans;
    uint64_t num_dropped = 0;
    std::vector<std::string> names;
  };
  // Takes out all that was recorded. What is under way is there, and comes again.
  Taken take();

  // Of the members of all groups of the process; armed or not.
  Journal& journal() { return journal_; }

 private:
  Ring* ring_of_this_thread();
  void arm_as_due();
  void watch_for_stops();

  const size_t spans_per_thread_;
  const SystemClock system_clock_;
  const Clock* const clock_;
  const uint64_t id_;  // never used again, unlike its address
  const OwnProcess own_process_;
  std::atomic<bool> is_armed_{false};
  std::atomic<int64_t> step_{0};
  std::atomic<uint64_t> num_dropped_{0};
  Journal journal_;

  std::mutex mutex_;
  // Guarded by mutex_.
  bool is_armed_by_hand_ = false;
  int64_t first_step_ = 0, last_step_ = -1;
  std::map<std::thread::id, std::unique_ptr<Ring>> rings_;
  std::vector<std::string> names_;
  std::vector<const Unfinished*> unfinished_;
  bool is_ending_ = false;
  std::condition_variable watch_;
  std::thread watcher_;  // started when it is armed for the first time
};

}  // namespace aikido::trace

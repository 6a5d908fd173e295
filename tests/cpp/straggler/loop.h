// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Simulator of a training loop under a skipping policy, without threads and sockets.
// Each rank computes a step, calls the operation of this step and goes on when the
// result is there. A rank that calls an operation which was closed without this rank
// replays all closed operations at once and computes the next open one, as
// ddp.Handle.catch_up does. One owner decides for all. A trace gives the time that each
// rank computes in each step; the same trace under WaitAll takes a time in closed form.

#include <functional>
#include <map>
#include <memory>
#include <queue>
#include <string>
#include <tuple>
#include <vector>

#include "straggler/play.h"

namespace aikido::straggler::testing {

// Times in milliseconds: the time that `rank` computes in `step`, and the time of its
// contribution to the owner. `now` is the start of the computation or of the transfer,
// since 0.
struct Trace {
  int32_t n = 4;
  int num_steps = 200;
  double result_ms = 2;  // from the close to the start of the next step
  std::function<double(int step, int32_t rank, double now_ms)> work_ms;
  std::function<double(int step, int32_t rank, double now_ms)> send_ms =
      [](int, int32_t, double) { return 1.0; };
};

struct LoopResult {
  double time_ms = 0;                    // until the last operation is closed
  int64_t contributions = 0;             // contributions in the sums
  std::vector<int64_t> missed;           // by rank
  std::vector<int64_t> longest_absence;  // by rank, in operations
  std::vector<double> closed_ms;         // by step
  std::vector<std::string> notes;        // by step, explanation of the decision
  // Contributions per millisecond.
  double progress() const { return static_cast<double>(contributions) / time_ms; }
};

// Every step waits for all ranks.
inline LoopResult run_wait_all(const Trace& trace) {
  LoopResult result;
  double now = 0;
  for (int step = 0; step < trace.num_steps; ++step) {
    double last = now;
    for (int32_t r = 0; r < trace.n; ++r) {
      const double called = now + trace.work_ms(step, r, now);
      last = std::max(last, called + trace.send_ms(step, r, called));
    }
    result.closed_ms.push_back(last);
    result.time_ms = last;
    now = last + trace.result_ms;
  }
  result.contributions = int64_t{trace.n} * trace.num_steps;
  return result;
}

class Loop {
 public:
  Loop(const Trace& trace, const PolicyOptions& options)
      : trace_(trace),
        group_(options, log_of(trace.n, UINT64_MAX)),
        steps_(static_cast<size_t>(trace.n), 0),
        absence_(static_cast<size_t>(trace.n), 0) {
    result_.missed.assign(static_cast<size_t>(trace.n), 0);
    result_.longest_absence = result_.missed;
  }

  LoopResult run() {
    for (int32_t r = 0; r < trace_.n; ++r) compute(r, 0, 0);
    while (closed_ < trace_.num_steps) {
      const auto look = policy_ ? policy_->next_look() : std::nullopt;
      AIKIDO_CHECK(look || !events_.empty(), "the loop hangs");
      if (look && (events_.empty() || *look < at(events_.top().now_ms))) {
        now_ = std::max(now_, *look);
      } else {
        const Event event = events_.top();
        events_.pop();
        now_ = std::max(now_, at(event.now_ms));
        on_event(event);
      }
      while (policy_ && closed_ < trace_.num_steps && policy_->decide(now_).closes())
        close();
    }
    return result_;
  }

 private:
  struct Event {
    double now_ms;
    int32_t rank;
    int step;
    bool is_call;  // otherwise an arrival
    bool operator<(const Event& o) const {
      return std::tie(now_ms, rank, step) > std::tie(o.now_ms, o.rank, o.step);
    }
  };

  static TimePoint at(double now_ms) { return TimePoint{} + ms(now_ms); }
  double now_ms() const { return to_ms(now_ - TimePoint{}); }
  static Seq seq_of(int step) { return Seq(static_cast<uint64_t>(step) + 1); }

  void compute(int32_t rank, int step, double from_ms) {
    steps_[static_cast<size_t>(rank)] = step;
    if (step >= trace_.num_steps) return;
    events_.push({from_ms + trace_.work_ms(step, rank, from_ms), rank, step, true});
  }

  void on_event(const Event& event) {
    if (event.is_call) return on_call(event.rank, event.step);
    if (event.step != closed_) return;  // it was cancelled
    policy_->on_arrival(Rank(event.rank), now_);
  }

  void on_call(int32_t rank, int step) {
    if (step < closed_) {
      for (int s = step; s < closed_; ++s)
        group_.history().on_called(Rank(rank), seq_of(s), now_);
      return compute(rank, closed_,
                     std::max(now_ms(), result_.closed_ms.back() + trace_.result_ms));
    }
    group_.history().on_called(Rank(rank), seq_of(step), now_);
    if (!policy_) policy_ = group_.start(seq_of(closed_), kBytes);
    policy_->on_called(Rank(rank), now_);
    waiting_.emplace_back(rank, now_ms());
    events_.push({now_ms() + trace_.send_ms(step, rank, now_ms()), rank, step, false});
  }

  void close() {
    const RankSet mask = policy_->arrived();
    result_.notes.push_back(explain(policy_->decide(now_)));
    Policy::Progress here(static_cast<size_t>(trace_.n), uint64_t{0});
    for (const auto& [rank, called_ms] : waiting_) {
      const double send = trace_.send_ms(closed_, rank, called_ms);
      here[static_cast<size_t>(rank)] = static_cast<uint64_t>(
          std::min(1.0, (now_ms() - called_ms) / send) * static_cast<double>(kBytes));
    }
    policy_->on_close(here, kBytes, now_);
    policy_.reset();
    group_.history().on_committed(seq_of(closed_), mask, kBytes);
    result_.time_ms = now_ms();
    result_.closed_ms.push_back(now_ms());
    result_.contributions += mask.count();
    for (int32_t r = 0; r < trace_.n; ++r) {
      const auto i = static_cast<size_t>(r);
      absence_[i] = mask.contains(Rank(r)) ? 0 : absence_[i] + 1;
      result_.missed[i] += absence_[i] > 0;
      result_.longest_absence[i] = std::max(result_.longest_absence[i], absence_[i]);
    }
    ++closed_;
    for (const auto& [rank, called_ms] : std::exchange(waiting_, {}))
      compute(rank, closed_, now_ms() + trace_.result_ms);
  }

  Trace trace_;
  GroupPolicy group_;
  std::unique_ptr<Policy>
      policy_;  // policy of the open operation, once a rank has called
  std::priority_queue<Event> events_;
  std::vector<int> steps_;
  std::vector<std::pair<int32_t, double>> waiting_;  // rank and time of the call
  std::vector<int64_t> absence_;
  TimePoint now_{};
  int closed_ = 0;
  LoopResult result_;
};

inline LoopResult run_loop(const Trace& trace, const PolicyOptions& options) {
  return Loop(trace, options).run();
}

}  // namespace aikido::straggler::testing

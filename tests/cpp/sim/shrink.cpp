// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "sim/shrink.h"

#include <algorithm>
#include <utility>

namespace aikido::sim {

namespace {

std::string promise_of(const std::string& violation) {
  return violation.substr(0, violation.find(':'));
}

class Shrinker {
 public:
  Shrinker(const Script& script, const Options& options, int max_runs)
      : smallest_(script), options_(options), runs_left_(max_runs) {
    options_.log = nullptr;
    promise_ = promise_of(run(smallest_, options_).violation);
  }

  Script shrink() {
    // Repeats while a pass removes something.
    for (bool did = true; std::exchange(did, false) && runs_left_ > 0;) {
      for (uint64_t op = smallest_.ops.size(); op > 0; --op)
        if (smallest_.ops.size() > 1 && keeps(without_op(op))) did = true;
      if (drop_events()) did = true;
      if (simplify_calls()) did = true;
    }
    return std::move(smallest_);
  }

 private:
  // Keeps the candidate if it still breaks the same guarantee.
  bool keeps(Script candidate) {
    if (runs_left_-- <= 0) return false;
    const std::string violation = run(candidate, options_).violation;
    if (violation.empty() || promise_of(violation) != promise_) return false;
    smallest_ = std::move(candidate);
    return true;
  }

  Script without_op(uint64_t op) const {
    Script script = smallest_;
    script.ops.erase(script.ops.begin() + static_cast<ptrdiff_t>(op) - 1);
    std::erase_if(script.events, [&](const Event& e) { return e.op == op; });
    for (Event& e : script.events)
      if (e.op > op) --e.op;
    std::erase_if(script.holds, [&](const Hold& h) { return h.op == op; });
    for (Hold& h : script.holds)
      if (h.op && *h.op > op) --*h.op;
    return script;
  }

  bool drop_events() {
    bool did = false;
    // Drops halves first, then single events.
    for (size_t size = std::max<size_t>(1, smallest_.events.size() / 2);; size /= 2) {
      for (size_t end = smallest_.events.size(); end > 0;) {
        const size_t begin = end > size ? end - size : 0;
        Script script = smallest_;
        size_t i = 0;
        const size_t num = script.events.size();
        std::erase_if(script.events, [&](const Event& e) {
          const size_t at = i++;
          return at >= begin && at < end && e.kind != EventKind::kCall;
        });
        if (script.events.size() < num && keeps(std::move(script))) did = true;
        end = std::min(begin, smallest_.events.size());
      }
      if (size <= 1) return did;
    }
  }

  bool simplify_calls() {
    bool did = false;
    for (size_t i = 0; i < smallest_.events.size(); ++i) {
      const Event& e = smallest_.events[i];
      if (e.kind != EventKind::kCall || (e.in_place && e.priority == 0 && !e.waits))
        continue;
      Script script = smallest_;
      script.events[i].in_place = true;
      script.events[i].waits = false;
      script.events[i].priority = 0;
      if (keeps(std::move(script))) did = true;
    }
    return did;
  }

  Script smallest_;
  Options options_;
  int runs_left_;
  std::string promise_;
};

}  // namespace

Script shrink(const Script& script, const Options& options, int max_runs) {
  return Shrinker(script, options, max_runs).shrink();
}

}  // namespace aikido::sim

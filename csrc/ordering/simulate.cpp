// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "ordering/simulate.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <set>
#include <utility>

#include "base/text.h"

namespace aikido::ordering {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

constexpr std::array kLinkRules = {std::pair("fifo", LinkRule::kFifo),
                                   std::pair("in_order", LinkRule::kInOrder),
                                   std::pair("priority", LinkRule::kPriority),
                                   std::pair("preemptive", LinkRule::kPreemptive)};
constexpr std::array kComputeRules = {std::pair("when_ready", ComputeRule::kWhenReady),
                                      std::pair("program", ComputeRule::kProgram)};

template <class Rules>
auto named(const Rules& rules, const char* what, std::string_view name)
    -> Result<typename Rules::value_type::second_type> {
  std::string known;
  for (const auto& [known_name, rule] : rules) {
    if (name == known_name) return rule;
    known += concat(known.empty() ? "" : ", ", known_name);
  }
  return invalid(concat("the rule of the ", what, " is \"", printable(name),
                        "\"; it takes ", known));
}

Status check(const Graph& graph, const SimulateOptions& options) {
  AIKIDO_TRY(validate(graph));
  if (options.link != LinkRule::kFifo) AIKIDO_TRY(check_order(graph, options.order));
  if (!std::isfinite(options.chunk_bytes) || options.chunk_bytes < 0)
    return invalid(concat("a chunk has ", options.chunk_bytes,
                          " bytes; it takes a finite number from 0 up, and 0 is whole "
                          "transfers"));
  if (options.processors < 1)
    return invalid(concat("there are ", options.processors,
                          " processors; it takes a number from 1 up"));
  return Status::ok();
}

class Simulator {
 public:
  Simulator(const Graph& graph, const SimulateOptions& options)
      : graph_(graph),
        options_(options),
        neighbours_(neighbours_of(graph)),
        place_(graph.ops.size()),
        missing_(graph.ops.size()),
        left_s_(graph.ops.size()),
        processors_(static_cast<size_t>(options.processors)) {
    for (const size_t op : program_order(graph)) {
      if (is_transfer(op)) continue;
      place_[op] = static_cast<double>(program_.size());
      program_.push_back(op);
    }
    for (size_t i = 0; i < options.order.size(); ++i)
      place_[options.order[i]] = static_cast<double>(i);
    result_.done_s.assign(graph.ops.size(), kNever);
  }

  Result<Timeline> run() {
    for (size_t op = 0; op < graph_.ops.size(); ++op) {
      missing_[op] = neighbours_.before[op].size();
      if (missing_[op] == 0) make_ready(op);
    }
    while (num_done_ < graph_.ops.size()) {
      start_computing();
      start_sending();
      const double next = next_end();
      if (next == kNever) return stuck();
      now_ = next;
      end_what_ends();
    }
    result_.makespan_s = now_;
    std::stable_sort(result_.spans.begin(), result_.spans.end(),
                     [](const TimedOp& a, const TimedOp& b) {
                       return std::pair(a.begin_s, a.processor) <
                              std::pair(b.begin_s, b.processor);
                     });
    return std::move(result_);
  }

 private:
  struct Running {
    size_t op = 0;
    double begin_s = 0, end_s = 0;
    bool is_whole = true;  // false: the op continues later
  };

  bool is_transfer(size_t op) const { return graph_.ops[op].kind == OpKind::kTransfer; }

  void make_ready(size_t op) {
    left_s_[op] = graph_.ops[op].time_s;
    if (is_transfer(op) && options_.link == LinkRule::kFifo) place_[op] = now_;
    (is_transfer(op) ? to_send_ : to_compute_).insert({place_[op], op});
  }

  void start_computing() {
    for (auto& processor : processors_) {
      if (processor || to_compute_.empty()) continue;
      const size_t op = to_compute_.begin()->second;
      if (options_.compute == ComputeRule::kProgram && program_[num_begun_] != op)
        return;
      to_compute_.erase(to_compute_.begin());
      ++num_begun_;
      processor = {op, now_, now_ + graph_.ops[op].time_s};
    }
  }

  void start_sending() {
    if (to_send_.empty()) return;
    const auto [place, op] = *to_send_.begin();
    if (link_ && options_.link == LinkRule::kPreemptive && place < place_[link_->op])
      leave_link();
    if (link_) return;
    if (options_.link == LinkRule::kInOrder && options_.order[num_sent_] != op) return;
    to_send_.erase({place, op});
    if (paused_ && *paused_ != op) ++result_.pauses;
    paused_.reset();
    const double chunk_s = chunk_of(op);
    link_ = {op, now_, now_ + chunk_s, chunk_s == left_s_[op]};
  }

  // Time or bytes until the link chooses again.
  double chunk_of(size_t op) const {
    const Op& it = graph_.ops[op];
    if (options_.link != LinkRule::kPriority || options_.chunk_bytes == 0 ||
        it.bytes <= options_.chunk_bytes)
      return left_s_[op];
    return std::min(left_s_[op], it.time_s * options_.chunk_bytes / it.bytes);
  }

  double next_end() const {
    double next = link_ ? link_->end_s : kNever;
    for (const auto& processor : processors_)
      if (processor) next = std::min(next, processor->end_s);
    return next;
  }

  void end_what_ends() {
    for (size_t i = 0; i < processors_.size(); ++i) {
      if (!processors_[i] || processors_[i]->end_s > now_) continue;
      const Running was = *processors_[i];
      processors_[i].reset();
      add_span(was, static_cast<int>(i));
      finish(was.op);
    }
    if (link_ && link_->end_s <= now_) leave_link();
  }

  // The transfer is done, or its rest waits with the others.
  void leave_link() {
    const Running was = *link_;
    link_.reset();
    add_span(was, -1);
    if (was.is_whole && was.end_s <= now_) {
      ++num_sent_;
      finish(was.op);
      return;
    }
    left_s_[was.op] -= now_ - was.begin_s;
    to_send_.insert({place_[was.op], was.op});
    if (now_ > was.begin_s) paused_ = was.op;
  }

  void add_span(const Running& of, int processor) {
    if (now_ == of.begin_s) return;
    if (processor < 0 && last_sent_) {
      TimedOp& last = result_.spans[*last_sent_];
      if (last.op == of.op && last.end_s == of.begin_s) {
        last.end_s = now_;
        return;
      }
    }
    if (processor < 0) last_sent_ = result_.spans.size();
    result_.spans.push_back({of.op, processor, of.begin_s, now_});
  }

  void finish(size_t op) {
    result_.done_s[op] = now_;
    ++num_done_;
    for (const size_t next : neighbours_.after[op])
      if (--missing_[next] == 0) make_ready(next);
  }

  // Only an order can block: its next transfer needs a later one.
  Status stuck() const {
    const size_t next = options_.order[num_sent_];
    std::vector<size_t> open{next};
    std::set<size_t> seen{next};
    for (size_t i = 0; i < open.size(); ++i) {
      if (open[i] != next && is_transfer(open[i]))
        return invalid(
            concat("the order cannot be kept: \"", printable(graph_.ops[next].name),
                   "\" is next on the link and waits for \"",
                   printable(graph_.ops[open[i]].name), "\", which comes later"));
      std::vector<size_t> needed = neighbours_.before[open[i]];
      if (options_.compute == ComputeRule::kProgram && !is_transfer(open[i]))
        needed.push_back(program_[num_begun_]);
      for (const size_t op : needed)
        if (result_.done_s[op] == kNever && seen.insert(op).second) open.push_back(op);
    }
    AIKIDO_CHECK(false, "op ", next, " waits for nothing");
    return Status::ok();
  }

  const Graph& graph_;
  const SimulateOptions& options_;
  const Neighbours neighbours_;
  std::vector<size_t> program_;  // computing, in the program order
  std::vector<double> place_;    // by op: the smaller value goes first on its resource
  std::vector<size_t> missing_;  // by op: number of needed ops that are not done
  std::vector<double> left_s_;   // by op that is ready
  std::set<std::pair<double, size_t>> to_compute_, to_send_;  // ready, by place
  std::vector<std::optional<Running>> processors_;
  std::optional<Running> link_;
  std::optional<size_t> paused_;     // transfer that was paused and not continued
  std::optional<size_t> last_sent_;  // span of the link
  size_t num_begun_ = 0, num_sent_ = 0, num_done_ = 0;
  double now_ = 0;
  Timeline result_;
};

}  // namespace

Result<LinkRule> link_rule_named(std::string_view name) {
  return named(kLinkRules, "link", name);
}

Result<ComputeRule> compute_rule_named(std::string_view name) {
  return named(kComputeRules, "computing", name);
}

Result<Timeline> simulate(const Graph& graph, const SimulateOptions& options) {
  AIKIDO_TRY(check(graph, options));
  return Simulator(graph, options).run();
}

}  // namespace aikido::ordering

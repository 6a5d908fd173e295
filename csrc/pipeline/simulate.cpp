// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "pipeline/simulate.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <utility>

#include "pipeline/index.h"
#include "pipeline/validate.h"

namespace aikido::pipeline {
namespace {

Status check_time(double time, const char* what, size_t number) {
  if (std::isfinite(time) && time >= 0) return Status::ok();
  return invalid(concat("the time of ", what, ' ', number, " is ", time,
                        "; it takes a finite number from 0 up"));
}

Status check(const Schedule& schedule, const Timing& timing) {
  const size_t stages = schedule.stages.size();
  if (timing.stages.size() != stages)
    return invalid(concat("there are times of ", timing.stages.size(),
                          " stages, and the schedule has ", stages));
  if (!timing.links.empty() && timing.links.size() != stages - 1)
    return invalid(concat("there are times of ", timing.links.size(), " links, and ",
                          stages, " stages have ", stages - 1, " between them"));
  if (!timing.slowdown.empty() && timing.slowdown.size() != schedule.ranks.size())
    return invalid(concat("there are slow-downs of ", timing.slowdown.size(),
                          " ranks, and the schedule has ", schedule.ranks.size()));
  for (size_t s = 0; s < stages; ++s) {
    const StageTimes& of = timing.stages[s];
    for (const double time : {of.forward, of.backward, of.input_gradient,
                              of.weight_gradient, of.recompute, of.reduce, of.step})
      AIKIDO_TRY(check_time(time, "stage", s));
  }
  for (size_t i = 0; i < timing.links.size(); ++i)
    AIKIDO_TRY(check_time(timing.links[i], "link", i));
  for (size_t rank = 0; rank < timing.slowdown.size(); ++rank)
    if (!std::isfinite(timing.slowdown[rank]) || timing.slowdown[rank] <= 0)
      return invalid(concat("the slow-down of rank ", rank, " is ",
                            timing.slowdown[rank],
                            "; it takes a finite number above 0, and 1 is as fast as "
                            "the others"));
  return Status::ok();
}

double time_of(Opcode kind, const StageTimes& times) {
  switch (kind) {
    case Opcode::kForward:
      return times.forward;
    case Opcode::kRecompute:
      return times.recompute;
    case Opcode::kBackward:
      return times.backward;
    case Opcode::kInputGradient:
      return times.input_gradient;
    case Opcode::kWeightGradient:
      return times.weight_gradient;
    case Opcode::kStep:
      return times.step;
    default:
      return 0;
  }
}

class Simulator {
 public:
  Simulator(const Schedule& schedule, const Timing& timing)
      : schedule_(schedule),
        timing_(timing),
        next_(schedule.ranks.size()),
        clock_(schedule.ranks.size()),
        input_at_(num_batches(), -1),
        gradient_at_(num_batches(), -1),
        homes_(num_batches(), -1) {
    result_.busy.resize(schedule.ranks.size());
    for (int rank = 0; rank < schedule.num_ranks(); ++rank)
      for (const Instruction& it : schedule.ranks[index(rank)])
        if (it.kind == Opcode::kForward) homes_[batch(it.stage, it.micro_batch)] = rank;
  }

  Simulation run(const Validation& validation) {
    std::vector<int> ready;
    for (int rank = schedule_.num_ranks(); rank-- > 0;) ready.push_back(rank);
    while (!ready.empty()) {
      const int rank = ready.back();
      ready.pop_back();
      woken_.clear();
      while (advance(rank)) {
      }
      ready.insert(ready.end(), woken_.begin(), woken_.end());
    }
    result_.makespan = *std::max_element(clock_.begin(), clock_.end());
    for (const double busy : result_.busy)
      result_.bubbles.push_back(result_.makespan > 0 ? 1 - busy / result_.makespan : 0);
    std::stable_sort(
        result_.spans.begin(), result_.spans.end(),
        [](const BusySpan& a, const BusySpan& b) { return a.rank < b.rank; });
    if (schedule_.weights != WeightPolicy::kFlush) result_.period = period(validation);
    return std::move(result_);
  }

 private:
  size_t num_batches() const {
    return index(schedule_.num_stages()) * index(schedule_.num_micro_batches);
  }
  size_t batch(int stage, int micro_batch) const {
    return index(stage) * index(schedule_.num_micro_batches) + index(micro_batch);
  }
  bool is_last(int stage) const { return stage + 1 == schedule_.num_stages(); }

  // Time when the inputs of an instruction are available; negative: unknown yet.
  double needed_at(const Instruction& it) const {
    switch (it.kind) {
      case Opcode::kForward:
        return it.stage == 0 ? 0 : input_at_[batch(it.stage, it.micro_batch)];
      case Opcode::kBackward:
      case Opcode::kInputGradient:
        return is_last(it.stage) ? 0 : gradient_at_[batch(it.stage, it.micro_batch)];
      case Opcode::kStep:
        return reduced_at(it);
      default:
        return 0;
    }
  }
  double reduced_at(const Instruction& step) const {
    const size_t replicas = schedule_.stages[index(step.stage)].size();
    if (replicas == 1) return 0;
    const auto found = reduces_.find({step.stage, step.version});
    if (found == reduces_.end() || found->second.count < replicas) return -1;
    return found->second.last + timing_.stages[index(step.stage)].reduce;
  }

  // Executes the next instruction of a rank, unless its time is unknown.
  bool advance(int rank) {
    const auto& program = schedule_.ranks[index(rank)];
    size_t& next = next_[index(rank)];
    if (next == program.size()) return false;
    const Instruction& it = program[next];
    const double needed = needed_at(it);
    if (needed < 0) return false;
    double& clock = clock_[index(rank)];
    if (is_compute(it.kind) || it.kind == Opcode::kStep) {
      const double begin = std::max(clock, needed);
      double time = time_of(it.kind, timing_.stages[index(it.stage)]);
      if (!timing_.slowdown.empty()) time *= timing_.slowdown[index(rank)];
      clock = begin + time;
      result_.busy[index(rank)] += time;
      result_.spans.push_back({rank, next, begin, clock});
    }
    hand_on(it, rank, clock);
    ++next;
    return true;
  }

  void hand_on(const Instruction& it, int rank, double now) {
    const bool is_gradient =
        it.kind == Opcode::kBackward || it.kind == Opcode::kInputGradient;
    if (it.kind == Opcode::kForward && !is_last(it.stage)) {
      hand_over(input_at_, it.stage + 1, it.micro_batch, rank, now);
    } else if (is_gradient && it.stage > 0) {
      hand_over(gradient_at_, it.stage - 1, it.micro_batch, rank, now);
    } else if (it.kind == Opcode::kSendActivation) {
      const double at = transfer(rank, it.peer, it.stage, now);
      input_at_[batch(it.stage + 1, it.micro_batch)] = at;
      woken_.push_back(it.peer);
    } else if (it.kind == Opcode::kSendGradient) {
      const double at = transfer(rank, it.peer, it.stage - 1, now);
      gradient_at_[batch(it.stage - 1, it.micro_batch)] = at;
      woken_.push_back(it.peer);
    } else if (it.kind == Opcode::kReduce) {
      auto& reduce = reduces_[{it.stage, it.version}];
      ++reduce.count;
      reduce.last = std::max(reduce.last, now);
      const auto& replicas = schedule_.stages[index(it.stage)];
      if (reduce.count == replicas.size())
        woken_.insert(woken_.end(), replicas.begin(), replicas.end());
    }
    if (is_gradient && it.stage == 0) completed_.push_back(now);
  }

  // To another stage of the same rank. Otherwise a message determines the time.
  void hand_over(std::vector<double>& at, int stage, int micro_batch, int rank,
                 double now) const {
    if (homes_[batch(stage, micro_batch)] == rank) at[batch(stage, micro_batch)] = now;
  }

  double transfer(int from, int to, int link, double now) {
    double& free_at = links_[{from, to}];
    const double time = timing_.links.empty() ? 0 : timing_.links[index(link)];
    free_at = std::max(free_at, now) + time;
    return free_at;
  }

  // Time between micro-batches that return to the first stage, over the second half of
  // the steady phase, in whole turns of all replicas.
  std::optional<double> period(const Validation& validation) {
    std::sort(completed_.begin(), completed_.end());
    size_t turn = 1, in_flight = 0;
    for (const auto& replicas : schedule_.stages) {
      turn = std::lcm(turn, replicas.size());
      if (turn > completed_.size()) return std::nullopt;
    }
    for (const int rank : schedule_.stages[0]) {
      const RankMemory& held = validation.ranks[index(rank)];
      in_flight += index(held.activations + held.inputs);
    }
    if (completed_.size() <= in_flight) return std::nullopt;
    const size_t end = completed_.size() - in_flight;
    const size_t count = (end / 2) / turn * turn;
    if (count == 0 || end / 2 < in_flight) return std::nullopt;
    return (completed_[end - 1] - completed_[end - 1 - count]) /
           static_cast<double>(count);
  }

  struct Reduce {
    size_t count = 0;
    double last = 0;
  };

  const Schedule& schedule_;
  const Timing& timing_;
  std::vector<size_t> next_;                    // by rank
  std::vector<double> clock_;                   // by rank
  std::vector<double> input_at_, gradient_at_;  // by stage and micro-batch; -1: unknown
  std::vector<int> homes_;                      // by stage and micro-batch: its rank
  std::map<std::pair<int, int>, double>
      links_;  // by ranks: time until which the link is busy
  std::map<std::pair<int, int>, Reduce> reduces_;  // by stage and version
  std::vector<double> completed_;                  // at the first stage
  std::vector<int> woken_;
  Simulation result_;
};

}  // namespace

Result<Simulation> simulate(const Schedule& schedule, const Timing& timing) {
  auto validation = validate(schedule, {});
  if (!validation) return validation.status();
  AIKIDO_TRY(check(schedule, timing));
  return Simulator(schedule, timing).run(*validation);
}

}  // namespace aikido::pipeline

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Executor of schedules with symbolic values. Weights are the list of updates that made
// them, and an update is the set of its micro-batches. Messages have two ends that wait
// for each other, and ranks take turns at random. At the end it checks the computed
// values. It shares no code with the checks of the core.

#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "pipeline/schedule.h"

namespace aikido::pipeline::testing {

class Executor {
 public:
  // Requires: numbers of the schedule are in range.
  explicit Executor(const Schedule& schedule)
      : schedule_(schedule), ranks_(schedule.ranks.size()) {
    for (size_t s = 0; s < schedule.stages.size(); ++s)
      for (const int rank : schedule.stages[s])
        ranks_[static_cast<size_t>(rank)].stages[static_cast<int>(s)];
  }

  // Runs the schedule. Returns the first error; empty: none.
  std::string run(std::mt19937& dice) {
    while (trouble_.empty()) {
      std::vector<size_t> able;
      bool is_over = true;
      for (size_t r = 0; r < ranks_.size(); ++r) {
        if (ranks_[r].at == schedule_.ranks[r].size()) continue;
        is_over = false;
        if (is_able(r)) able.push_back(r);
      }
      if (is_over) return look_back();
      if (able.empty()) return "deadlock";
      turn(able[dice() % able.size()]);
    }
    return trouble_;
  }
  int most_activations(size_t rank) const { return ranks_[rank].most; }

 private:
  using Update = std::set<int>;
  using Weights = std::vector<Update>;
  struct Forward {
    Weights weights;
    int label;
    bool again = false, half = false, whole = false;
  };
  struct Stage {
    Weights newest;
    std::map<size_t, Weights> copies;  // by number of updates
    Update gradients;
    size_t num_reduced = 0;
    std::map<int, Forward> forwards;
    std::set<int> inputs, outputs, gradients_in, gradients_out, sent_a, sent_g;
  };
  struct RankState {
    size_t at = 0;
    std::map<int, Stage> stages;
    int held = 0, most = 0;
  };

  const Instruction& head(size_t r) const { return schedule_.ranks[r][ranks_[r].at]; }
  size_t num_replicas(int stage) const {
    return schedule_.stages[static_cast<size_t>(stage)].size();
  }

  bool meets(size_t r) const {
    const Instruction& a = head(r);
    const auto p = static_cast<size_t>(a.peer);
    if (ranks_[p].at == schedule_.ranks[p].size()) return false;
    const Instruction& b = head(p);
    if (static_cast<size_t>(b.peer) != r || a.micro_batch != b.micro_batch)
      return false;
    const auto pair = [&](Opcode send, Opcode receive, int up) {
      return (a.kind == send && b.kind == receive && b.stage == a.stage + up) ||
             (b.kind == send && a.kind == receive && a.stage == b.stage + up);
    };
    return pair(Opcode::kSendActivation, Opcode::kReceiveActivation, 1) ||
           pair(Opcode::kSendGradient, Opcode::kReceiveGradient, -1);
  }
  bool is_able(size_t r) const {
    const Instruction& it = head(r);
    if (it.peer >= 0) return meets(r);
    if (it.kind != Opcode::kStep || num_replicas(it.stage) == 1 ||
        !ranks_[r].stages.contains(it.stage))
      return true;
    const size_t number = ranks_[r].stages.at(it.stage).newest.size() + 1;
    const auto found = sums_.find({it.stage, number});
    return found != sums_.end() && found->second.size() == num_replicas(it.stage);
  }

  void turn(size_t r) {
    const Instruction& it = head(r);
    if (it.peer >= 0) {
      const auto p = static_cast<size_t>(it.peer);
      send_or_receive(r, it);
      send_or_receive(p, head(p));
      ++ranks_[p].at;
    } else if (!ranks_[r].stages.contains(it.stage)) {
      trouble_ = "not its stage";
    } else {
      act(r, it, ranks_[r].stages[it.stage]);
    }
    ++ranks_[r].at;
  }

  void need(bool condition, const char* what) {
    if (!condition && trouble_.empty()) trouble_ = what;
  }

  void send_or_receive(size_t r, const Instruction& it) {
    need(ranks_[r].stages.contains(it.stage), "not its stage");
    if (!trouble_.empty()) return;
    Stage& stage = ranks_[r].stages[it.stage];
    const int b = it.micro_batch;
    switch (it.kind) {
      case Opcode::kSendActivation:
        need(stage.outputs.contains(b), "no output to send");
        return need(stage.sent_a.insert(b).second, "output sent twice");
      case Opcode::kSendGradient:
        need(stage.gradients_out.contains(b), "no gradient to send");
        return need(stage.sent_g.insert(b).second, "gradient sent twice");
      case Opcode::kReceiveActivation:
        return need(stage.inputs.insert(b).second, "input received twice");
      default:
        return need(stage.gradients_in.insert(b).second, "gradient received twice");
    }
  }

  void act(size_t r, const Instruction& it, Stage& stage) {
    const int b = it.micro_batch;
    switch (it.kind) {
      case Opcode::kForward:
        return forward(r, it, stage);
      case Opcode::kRecompute:
      case Opcode::kBackward:
      case Opcode::kInputGradient:
      case Opcode::kWeightGradient:
        if (!stage.forwards.contains(b)) return need(false, "no forward");
        return backward(r, it, stage, stage.forwards.at(b));
      case Opcode::kReduce: {
        need(num_replicas(it.stage) > 1, "reduce alone");
        need(stage.num_reduced == stage.newest.size(), "reduce before a step");
        ++stage.num_reduced;
        need(static_cast<size_t>(it.version) == stage.num_reduced, "label of reduce");
        sums_[{it.stage, stage.num_reduced}][r] = std::exchange(stage.gradients, {});
        return;
      }
      case Opcode::kStep:
        return step(it, stage);
      case Opcode::kPush:
        need(schedule_.weights != WeightPolicy::kFlush, "push with flush");
        need(static_cast<size_t>(it.version) == stage.newest.size(), "push of old");
        return need(stage.copies.emplace(stage.newest.size(), stage.newest).second,
                    "pushed twice");
      default:
        return need(stage.copies.erase(static_cast<size_t>(it.version)) == 1,
                    "pop of nothing");
    }
  }

  std::optional<Weights> weights(const Stage& stage, int label) const {
    const auto version = static_cast<size_t>(label);
    if (version == stage.newest.size()) return stage.newest;
    const auto copy = stage.copies.find(version);
    return copy == stage.copies.end() ? std::nullopt : std::optional(copy->second);
  }

  void forward(size_t r, const Instruction& it, Stage& stage) {
    const int b = it.micro_batch;
    need(done_.emplace(it.stage, b).second, "forward twice");
    auto& stages = ranks_[r].stages;
    const auto before = stages.find(it.stage - 1);
    need(it.stage == 0 || stage.inputs.contains(b) ||
             (before != stages.end() && before->second.outputs.contains(b)),
         "no input");
    const auto used = weights(stage, it.version);
    need(used.has_value(), "no such weights for a forward");
    if (!trouble_.empty()) return;
    const bool newest = used->size() == stage.newest.size();
    if (schedule_.weights == WeightPolicy::kStash) need(newest, "not the newest");
    if (schedule_.weights == WeightPolicy::kVerticalSync && it.stage == 0)
      need(newest, "not the newest on the first stage");
    versions_[{it.stage, b}] = used->size();
    stage.outputs.insert(b);
    stage.forwards[b] = {*used, it.version};
    if (!is_recomputed(it)) hold(r);
  }
  bool is_recomputed(const Instruction& it) const {
    for (const auto& program : schedule_.ranks)
      for (const Instruction& other : program)
        if (other.kind == Opcode::kRecompute && other.stage == it.stage &&
            other.micro_batch == it.micro_batch)
          return true;
    return false;
  }
  void hold(size_t r) { ranks_[r].most = std::max(ranks_[r].most, ++ranks_[r].held); }

  void backward(size_t r, const Instruction& it, Stage& stage, Forward& forward) {
    const int b = it.micro_batch;
    const auto used = weights(stage, it.version);
    need(used.has_value(), "no such weights for a backward");
    need(used == forward.weights, "other weights than in the forward");
    if (it.kind == Opcode::kRecompute) {
      need(!forward.again, "recomputed twice");
      need(!forward.half, "recomputed after the backward");
      forward.again = true;
      return hold(r);
    }
    if (it.kind != Opcode::kWeightGradient) {
      need(!forward.half, "backward twice");
      need(forward.again || !is_recomputed(it), "not yet recomputed");
      auto& stages = ranks_[r].stages;
      const auto after = stages.find(it.stage + 1);
      need(it.stage + 1 == schedule_.num_stages() || stage.gradients_in.contains(b) ||
               (after != stages.end() && after->second.gradients_out.contains(b)),
           "no gradient");
      forward.half = true;
      stage.gradients_out.insert(b);
    }
    if (it.kind == Opcode::kInputGradient) return;
    need(forward.half && !forward.whole, "weight gradient without or twice");
    forward.whole = true;
    stage.gradients.insert(b);
    --ranks_[r].held;
  }

  void step(const Instruction& it, Stage& stage) {
    Update update;
    const size_t number = stage.newest.size() + 1;
    if (num_replicas(it.stage) == 1) {
      update = std::exchange(stage.gradients, {});
    } else {
      need(stage.num_reduced == number, "step without its reduce");
      for (const auto& [rank, part] : sums_[{it.stage, number}])
        update.insert(part.begin(), part.end());
    }
    need(!update.empty(), "an update of nothing");
    need(static_cast<size_t>(it.version) == number, "label of step");
    stage.newest.push_back(update);
    std::set<size_t> there = {stage.newest.size()};
    for (const auto& [version, copy] : stage.copies) there.insert(version);
    if (schedule_.weights == WeightPolicy::kTwoVersions)
      need(there.size() <= 2, "more than two versions");
  }

  static size_t update_with(const Weights& weights, int micro_batch) {
    for (size_t i = 0; i < weights.size(); ++i)
      if (weights[i].contains(micro_batch)) return i + 1;
    return 0;
  }

  // Checks after the last instruction: nothing is left over, and the results are as
  // promised.
  std::string look_back() {
    for (const auto& rank : ranks_)
      for (const auto& [number, stage] : rank.stages) {
        need(stage.copies.empty(), "a copy is left");
        need(stage.gradients.empty(), "gradients are left");
        need(num_replicas(number) == 1 || stage.num_reduced == stage.newest.size(),
             "a sum is left");
        for (const auto& [b, forward] : stage.forwards)
          need(forward.whole, "a micro-batch without backward");
        for (const int b : stage.inputs)
          need(stage.forwards.contains(b), "an input is left");
        for (const int b : stage.gradients_in)
          need(stage.forwards.contains(b), "a gradient is left");
      }
    for (int s = 0; s < schedule_.num_stages(); ++s) look_back_at(s);
    return trouble_;
  }

  void look_back_at(int s) {
    const auto& replicas = schedule_.stages[static_cast<size_t>(s)];
    const auto newest = [&](int stage, int rank) -> const Weights& {
      return ranks_[static_cast<size_t>(rank)].stages.at(stage).newest;
    };
    const Weights& weights = newest(s, replicas[0]);
    for (const int rank : replicas) need(newest(s, rank) == weights, "replicas differ");
    if (schedule_.weights != WeightPolicy::kStash)
      need(newest(0, schedule_.stages[0][0]) == weights, "stages differ");
    for (int b = 0; b < schedule_.num_micro_batches; ++b) {
      need(done_.contains({s, b}), "a micro-batch is missing");
      const size_t update = update_with(weights, b);
      need(update > 0, "a gradient is missing");
      if (!trouble_.empty()) return;
      const size_t version = versions_[{s, b}];
      if (schedule_.weights == WeightPolicy::kFlush)
        need(version == update - 1, "weights of flush");
      if (schedule_.weights == WeightPolicy::kVerticalSync)
        need(version == versions_[{0, b}], "weights of vertical sync");
      if (schedule_.weights == WeightPolicy::kTwoVersions)
        need(version == (update > 2 ? update - 2 : 0), "weights of 2bw");
    }
  }

  const Schedule& schedule_;
  std::vector<RankState> ranks_;
  std::map<std::pair<int, size_t>, std::map<size_t, Update>> sums_;
  std::set<std::pair<int, int>> done_;
  std::map<std::pair<int, int>, size_t> versions_;
  std::string trouble_;
};

}  // namespace aikido::pipeline::testing

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Random valid schedules, and mutations of schedules. Stages are on any ranks, and
// micro-batches on any replica. Backward passes are whole or halved, recomputed or not.
// Updates have any micro-batches. Each next instruction is any valid one.

#include <algorithm>
#include <random>
#include <utility>
#include <vector>

#include "pipeline/schedule.h"

namespace aikido::pipeline::testing {

class RandomSchedule {
 public:
  explicit RandomSchedule(std::mt19937& dice) : dice_(dice) {
    s_.name = "random";
    s_.weights = static_cast<WeightPolicy>(below(4));
    s_.num_micro_batches = 1 + below(5);
    s_.ranks.resize(static_cast<size_t>(1 + below(4)));
    const int stages = 1 + below(4);
    std::vector<int> all(s_.ranks.size());
    for (size_t r = 0; r < all.size(); ++r) all[r] = static_cast<int>(r);
    for (int s = 0; s < stages; ++s) {
      std::shuffle(all.begin(), all.end(), dice_);
      const int replicas = below(2) == 0 ? 1 : 1 + below(static_cast<int>(all.size()));
      s_.stages.emplace_back(all.begin(), all.begin() + replicas);
    }
    draw_groups();
    for (int s = 0; s < stages; ++s) {
      for (int b = 0; b < s_.num_micro_batches; ++b) draw_batch(s);
      for (size_t i = 0; i < s_.stages[at(s)].size(); ++i)
        replicas_.push_back({s, s_.stages[at(s)][i]});
    }
  }

  Schedule make() {
    for (;;) {
      std::vector<Event> able;
      for (int s = 0; s < s_.num_stages(); ++s)
        for (int b = 0; b < s_.num_micro_batches; ++b) add_of_batch(s, b, able);
      for (Replica& replica : replicas_) add_of_replica(replica, able);
      if (able.empty()) break;
      happen(able[static_cast<size_t>(below(static_cast<int>(able.size())))]);
    }
    for (int r = 0; r < s_.num_ranks(); ++r) keep_versions(r);
    return s_;
  }

 private:
  struct Batch {
    int home, group, version = -1;
    bool is_halved, is_recomputed;
    bool forward = false, again = false, half = false, whole = false;
    bool sent_a = false, sent_g = false, has_a = false, has_g = false;
  };
  struct Replica {
    int stage, rank, reduced = 0, version = 0;
  };
  struct Event {
    Opcode kind;
    int stage, micro_batch;
    Replica* replica;
  };

  int below(int bound) {
    return static_cast<int>(dice_() % static_cast<unsigned>(bound));
  }
  static size_t at(int number) { return static_cast<size_t>(number); }
  Batch& batch(int s, int b) { return batches_[at(s * s_.num_micro_batches + b)]; }
  Replica& replica(int s, int rank) {
    return *std::find_if(replicas_.begin(), replicas_.end(), [&](const Replica& r) {
      return r.stage == s && r.rank == rank;
    });
  }
  bool is_last(int s) const { return s + 1 == s_.num_stages(); }

  // By stage and micro-batch: number of its update, from 1. No update is empty.
  void draw_groups() {
    for (int s = 0; s < s_.num_stages(); ++s) {
      if (s > 0 && s_.weights != WeightPolicy::kStash) {
        groups_.push_back(groups_[0]);
        continue;
      }
      std::vector<int> group;
      const int count = 1 + below(s_.num_micro_batches);
      for (int b = 0; b < s_.num_micro_batches; ++b)
        group.push_back(b < count ? b + 1 : 1 + below(count));
      if (below(2) == 0) std::sort(group.begin(), group.end());
      if (below(4) == 0) std::shuffle(group.begin(), group.end(), dice_);
      groups_.push_back(group);
    }
  }
  void draw_batch(int s) {
    Batch drawn{};
    drawn.version = -1;
    const auto& ranks = s_.stages[at(s)];
    drawn.home = ranks[at(below(static_cast<int>(ranks.size())))];
    drawn.group = groups_[at(s)][batches_.size() % at(s_.num_micro_batches)];
    drawn.is_halved = below(3) == 0;
    drawn.is_recomputed = below(4) == 0;
    batches_.push_back(drawn);
  }

  int version_for(int s, int b) {
    const int newest = replica(s, batch(s, b).home).version;
    switch (s_.weights) {
      case WeightPolicy::kFlush:
        return batch(s, b).group - 1 == newest ? newest : -1;
      case WeightPolicy::kStash:
        return newest;
      case WeightPolicy::kVerticalSync: {
        const int wanted = s == 0 ? newest : batch(0, b).version;
        return wanted <= newest ? wanted : -1;
      }
      default: {
        const int wanted = std::max(0, batch(s, b).group - 2);
        return wanted <= newest ? wanted : -1;
      }
    }
  }

  void add_of_batch(int s, int b, std::vector<Event>& able) {
    Batch& of = batch(s, b);
    const auto add = [&](bool may, Opcode kind) {
      if (may) able.push_back({kind, s, b, nullptr});
    };
    const bool has_input = s == 0 || of.has_a ||
                           (batch(s - 1, b).home == of.home && batch(s - 1, b).forward);
    add(!of.forward && has_input && version_for(s, b) >= 0, Opcode::kForward);
    if (!of.forward) return;
    const bool goes_out = !is_last(s) && batch(s + 1, b).home != of.home;
    add(goes_out && !of.sent_a, Opcode::kSendActivation);
    add(of.is_recomputed && !of.again && !of.half, Opcode::kRecompute);
    const bool has_gradient = is_last(s) || of.has_g ||
                              (batch(s + 1, b).home == of.home && batch(s + 1, b).half);
    const bool is_turn = replica(s, of.home).reduced + 1 == of.group;
    const bool is_ready = !of.half && has_gradient && of.again == of.is_recomputed;
    add(is_ready && of.is_halved, Opcode::kInputGradient);
    add(is_ready && !of.is_halved && is_turn, Opcode::kBackward);
    add(of.half && !of.whole && is_turn, Opcode::kWeightGradient);
    add(of.half && s > 0 && batch(s - 1, b).home != of.home && !of.sent_g,
        Opcode::kSendGradient);
  }

  void add_of_replica(Replica& replica, std::vector<Event>& able) {
    const auto& groups = groups_[at(replica.stage)];
    const int last = *std::max_element(groups.begin(), groups.end());
    const bool is_alone = s_.stages[at(replica.stage)].size() == 1;
    if (replica.reduced == replica.version && replica.reduced < last) {
      for (int b = 0; b < s_.num_micro_batches; ++b) {
        const Batch& of = batch(replica.stage, b);
        if (of.home == replica.rank && of.group == replica.reduced + 1 && !of.whole)
          return;
      }
      able.push_back(
          {is_alone ? Opcode::kStep : Opcode::kReduce, replica.stage, -1, &replica});
    } else if (replica.reduced > replica.version) {
      for (const Replica& other : replicas_)
        if (other.stage == replica.stage && other.reduced < replica.reduced) return;
      able.push_back({Opcode::kStep, replica.stage, -1, &replica});
    }
  }

  void write(int rank, Instruction it) { s_.ranks[at(rank)].push_back(it); }

  void happen(const Event& event) {
    const auto [kind, s, b, replica] = event;
    if (replica != nullptr) {
      if (kind == Opcode::kReduce || s_.stages[at(s)].size() == 1) ++replica->reduced;
      if (kind == Opcode::kStep) ++replica->version;
      const int made = kind == Opcode::kStep ? replica->version : replica->reduced;
      return write(replica->rank, {kind, s, -1, made, -1});
    }
    Batch& of = batch(s, b);
    if (kind == Opcode::kSendActivation || kind == Opcode::kSendGradient) {
      const bool up = kind == Opcode::kSendActivation;
      const int to = up ? s + 1 : s - 1;
      Batch& other = batch(to, b);
      (up ? of.sent_a : of.sent_g) = true;
      (up ? other.has_a : other.has_g) = true;
      write(of.home, {kind, s, b, -1, other.home});
      return write(other.home,
                   {up ? Opcode::kReceiveActivation : Opcode::kReceiveGradient, to, b,
                    -1, of.home});
    }
    if (kind == Opcode::kForward) of.version = version_for(s, b);
    of.forward = true;
    of.again = of.again || kind == Opcode::kRecompute;
    of.half = of.half || kind == Opcode::kInputGradient || kind == Opcode::kBackward;
    of.whole = of.whole || kind == Opcode::kWeightGradient || kind == Opcode::kBackward;
    write(of.home, {kind, s, b, of.version, -1});
  }

  // Inserts pushes and pops of weight versions at random valid places.
  void keep_versions(int rank) {
    auto& program = s_.ranks[at(rank)];
    for (int s = 0; s < s_.num_stages(); ++s)
      for (int v = 0; v < s_.num_micro_batches; ++v) {
        const auto find = [&](const Instruction& it) {
          return std::find(program.begin(), program.end(), it) - program.begin();
        };
        const auto size = static_cast<ptrdiff_t>(program.size());
        const ptrdiff_t step = find({Opcode::kStep, s, -1, v + 1, -1});
        if (step == size) continue;
        ptrdiff_t use = step;
        for (ptrdiff_t i = step; i < size; ++i)
          if (program[static_cast<size_t>(i)].micro_batch >= 0 &&
              program[static_cast<size_t>(i)].stage == s &&
              program[static_cast<size_t>(i)].version == v)
            use = i;
        if (use == step && (s_.weights == WeightPolicy::kFlush || below(8) > 0))
          continue;
        ptrdiff_t end = find({Opcode::kStep, s, -1, v + 2, -1});
        if (s_.weights != WeightPolicy::kTwoVersions) end = size;
        const ptrdiff_t pop = use + 1 + below(static_cast<int>(end - use));
        const ptrdiff_t made = v == 0 ? -1 : find({Opcode::kStep, s, -1, v, -1});
        const ptrdiff_t push = made + 1 + below(static_cast<int>(step - made));
        program.insert(program.begin() + pop, {Opcode::kPop, s, -1, v, -1});
        program.insert(program.begin() + push, {Opcode::kPush, s, -1, v, -1});
      }
  }

  std::mt19937& dice_;
  Schedule s_;
  std::vector<std::vector<int>> groups_;
  std::vector<Batch> batches_;
  std::vector<Replica> replicas_;
};

// A copy in which one instruction is swapped with another, dropped, doubled, moved or
// changed.
inline Schedule mutated(Schedule schedule, std::mt19937& dice) {
  std::vector<size_t> filled;
  for (size_t r = 0; r < schedule.ranks.size(); ++r)
    if (!schedule.ranks[r].empty()) filled.push_back(r);
  auto& program = schedule.ranks[filled[dice() % filled.size()]];
  const auto any = [&](size_t bound) { return static_cast<ptrdiff_t>(dice() % bound); };
  const ptrdiff_t i = any(program.size());
  const auto size = static_cast<ptrdiff_t>(program.size());
  switch (dice() % 6) {
    case 0:
      std::swap(program[static_cast<size_t>(i)],
                program[static_cast<size_t>(any(program.size()))]);
      break;
    case 1:
      if (i + 1 < size)
        std::swap(program[static_cast<size_t>(i)], program[static_cast<size_t>(i + 1)]);
      break;
    case 2:
      program.erase(program.begin() + i);
      break;
    case 3:
      program.insert(program.begin() + any(program.size() + 1),
                     Instruction(program[static_cast<size_t>(i)]));
      break;
    case 4: {
      const Instruction moved = program[static_cast<size_t>(i)];
      program.erase(program.begin() + i);
      program.insert(program.begin() + any(program.size() + 1), moved);
      break;
    }
    default: {
      Instruction& it = program[static_cast<size_t>(i)];
      const auto change = [&](int& field, int bound) {
        if (field >= 0) field = static_cast<int>(any(static_cast<size_t>(bound)));
      };
      switch (dice() % 4) {
        case 0:
          change(it.micro_batch, schedule.num_micro_batches);
          break;
        case 1:
          change(it.version, schedule.num_micro_batches + 1);
          break;
        case 2:
          change(it.peer, schedule.num_ranks());
          break;
        default:
          change(it.stage, schedule.num_stages());
      }
    }
  }
  return schedule;
}

}  // namespace aikido::pipeline::testing

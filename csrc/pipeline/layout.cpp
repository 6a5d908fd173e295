// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "pipeline/layout.h"

#include <algorithm>
#include <functional>
#include <map>
#include <queue>
#include <utility>

#include "pipeline/index.h"

namespace aikido::pipeline {
namespace {

constexpr int64_t units_of(Opcode kind) {
  return kind == Opcode::kBackward ? 2 : 1;
}

class ScheduleLayout {
 public:
  ScheduleLayout(Schedule schedule, const std::vector<Program>& programs,
                 const UpdateOptions& options)
      : schedule_(std::move(schedule)),
        programs_(programs),
        options_(options),
        next_(programs.size()),
        is_busy_(programs.size()),
        batches_(index(schedule_.num_stages() * schedule_.num_micro_batches)) {
    schedule_.ranks.assign(programs.size(), {});
    for (size_t rank = 0; rank < programs.size(); ++rank)
      for (const Instruction& instruction : programs[rank])
        batch(instruction).home = static_cast<int>(rank);
    set_up_updates();
  }

  Result<Schedule> run() {
    for (int s = 0; s < schedule_.num_stages(); ++s) settle(s);
    start_all(0);
    while (!running_.empty()) {
      const int64_t now = running_.top().first;
      while (!running_.empty() && running_.top().first == now) {
        const int rank = running_.top().second;
        running_.pop();
        complete(rank);
      }
      start_all(now);
    }
    for (size_t rank = 0; rank < programs_.size(); ++rank)
      if (next_[rank] < programs_[rank].size()) return stuck();
    keep_versions();
    return std::move(schedule_);
  }

 private:
  struct PlacedBatch {  // of one stage
    int home = -1;
    bool has_input = false, has_gradient = false;
    int version = -1;  // -1: not forwarded yet
  };
  // Updates of one stage on one rank.
  struct Replica {
    std::vector<int> left;  // by update - 1: micro-batches here that are still to come
    int reduced = 0;        // updates with a written reduce; without replicas, step
    int version = 0;
  };
  struct Updates {  // of a stage
    std::vector<Replica> replicas;
    int num_updates = 0;
  };

  PlacedBatch& batch(int stage, int micro_batch) {
    return batches_[index(stage * schedule_.num_micro_batches + micro_batch)];
  }
  PlacedBatch& batch(const Instruction& i) { return batch(i.stage, i.micro_batch); }
  const std::vector<int>& ranks_of(int stage) const {
    return schedule_.stages[index(stage)];
  }
  Replica& replica(int stage, int rank) {
    const auto& ranks = ranks_of(stage);
    const auto at = std::find(ranks.begin(), ranks.end(), rank) - ranks.begin();
    return updates_[index(stage)].replicas[static_cast<size_t>(at)];
  }
  int per_step(int stage) const { return options_.per_step[index(stage)]; }
  int update_of(const Instruction& i) const {
    return i.micro_batch / per_step(i.stage) + 1;
  }
  bool is_first(int stage) const { return stage == 0; }
  bool is_last(int stage) const { return stage + 1 == schedule_.num_stages(); }
  void write(int rank, const Instruction& instruction) {
    schedule_.ranks[index(rank)].push_back(instruction);
  }

  void set_up_updates() {
    for (int s = 0; s < schedule_.num_stages(); ++s) {
      Updates updates;
      updates.num_updates = schedule_.num_micro_batches / per_step(s);
      updates.replicas.resize(ranks_of(s).size());
      for (auto& replica : updates.replicas)
        replica.left.assign(index(updates.num_updates), 0);
      updates_.push_back(std::move(updates));
      for (int b = 0; b < schedule_.num_micro_batches; ++b)
        ++replica(s, batch(s, b).home).left[index(b / per_step(s))];
    }
  }

  // Version for a forward; -1: not available yet.
  int version_for(const Instruction& forward, int rank) {
    const int newest = replica(forward.stage, rank).version;
    int wanted = newest;
    if (schedule_.weights == WeightPolicy::kVerticalSync && !is_first(forward.stage))
      wanted = batch(0, forward.micro_batch).version;
    if (schedule_.weights == WeightPolicy::kTwoVersions)
      wanted = std::max(0, update_of(forward) - 2);
    if (schedule_.weights == WeightPolicy::kFlush) wanted = update_of(forward) - 1;
    return wanted <= newest ? wanted : -1;
  }

  bool can_start(const Instruction& next, int rank) {
    const PlacedBatch& of = batch(next);
    switch (next.kind) {
      case Opcode::kForward:
        return (is_first(next.stage) || of.has_input) && version_for(next, rank) >= 0;
      case Opcode::kBackward:
        return (is_last(next.stage) || of.has_gradient) && may_add(next, rank);
      case Opcode::kInputGradient:
        return is_last(next.stage) || of.has_gradient;
      case Opcode::kWeightGradient:
        return may_add(next, rank);
      default:
        return true;
    }
  }
  // False while the gradients of earlier updates must still be added up.
  bool may_add(const Instruction& next, int rank) {
    return replica(next.stage, rank).reduced + 1 >= update_of(next);
  }

  void start_all(int64_t now) {
    for (int rank = 0; rank < schedule_.num_ranks(); ++rank) {
      const Program& program = programs_[index(rank)];
      if (is_busy_[index(rank)] || next_[index(rank)] == program.size()) continue;
      Instruction next = program[next_[index(rank)]];
      if (!can_start(next, rank)) continue;
      if (next.kind == Opcode::kForward) batch(next).version = version_for(next, rank);
      next.version = batch(next).version;
      write(rank, next);
      is_busy_[index(rank)] = true;
      const auto replicas = static_cast<int64_t>(ranks_of(next.stage).size());
      running_.emplace(now + units_of(next.kind) * replicas, rank);
    }
  }

  void complete(int rank) {
    is_busy_[index(rank)] = false;
    const Instruction& done = programs_[index(rank)][next_[index(rank)]++];
    const bool has_gradient =
        done.kind == Opcode::kBackward || done.kind == Opcode::kInputGradient;
    if (done.kind == Opcode::kForward && !is_last(done.stage)) {
      batch(done.stage + 1, done.micro_batch).has_input = true;
      pass(rank, done, done.stage + 1, Opcode::kSendActivation,
           Opcode::kReceiveActivation);
    }
    if (has_gradient && !is_first(done.stage)) {
      batch(done.stage - 1, done.micro_batch).has_gradient = true;
      pass(rank, done, done.stage - 1, Opcode::kSendGradient, Opcode::kReceiveGradient);
    }
    if (done.kind == Opcode::kBackward || done.kind == Opcode::kWeightGradient) {
      --replica(done.stage, rank).left[index(update_of(done) - 1)];
      settle(done.stage);
    }
  }

  void pass(int rank, const Instruction& done, int to, Opcode send, Opcode receive) {
    const int peer = batch(to, done.micro_batch).home;
    if (peer == rank) return;
    write(rank, {send, done.stage, done.micro_batch, -1, peer});
    write(peer, {receive, to, done.micro_batch, -1, rank});
  }

  // Writes the reductions and steps of a stage that are possible now.
  void settle(int stage) {
    if (options_.overlap_sums && ranks_of(stage).size() > 1) return settle_late(stage);
    Updates& updates = updates_[index(stage)];
    const auto& ranks = ranks_of(stage);
    for (bool goes_on = true; goes_on;) {
      goes_on = false;
      int all_reduced = updates.num_updates;
      for (size_t i = 0; i < ranks.size(); ++i) {
        Replica& here = updates.replicas[i];
        if (here.reduced == here.version && here.reduced < updates.num_updates &&
            here.left[index(here.reduced)] == 0) {
          ++here.reduced;
          if (ranks.size() > 1)
            write(ranks[i], {Opcode::kReduce, stage, -1, here.reduced, -1});
        }
        all_reduced = std::min(all_reduced, here.reduced);
      }
      if (all_reduced == updates.replicas[0].version) continue;
      for (size_t i = 0; i < ranks.size(); ++i) {
        updates.replicas[i].version = all_reduced;
        write(ranks[i], {Opcode::kStep, stage, -1, all_reduced, -1});
      }
      goes_on = true;
    }
  }

  // As settle(), with each rank's step delayed to before its next reduce.
  void settle_late(int stage) {
    Updates& updates = updates_[index(stage)];
    const auto& ranks = ranks_of(stage);
    for (bool goes_on = true; goes_on;) {
      goes_on = false;
      int all_reduced = updates.num_updates;
      for (const Replica& each : updates.replicas)
        all_reduced = std::min(all_reduced, each.reduced);
      for (size_t i = 0; i < ranks.size(); ++i) {
        Replica& here = updates.replicas[i];
        const bool is_end = here.reduced == updates.num_updates;
        const bool has_next = !is_end && here.left[index(here.reduced)] == 0;
        if (here.reduced > here.version) {
          if (all_reduced < here.reduced || !(is_end || has_next)) continue;
          write(ranks[i], {Opcode::kStep, stage, -1, ++here.version, -1});
        } else if (has_next) {
          write(ranks[i], {Opcode::kReduce, stage, -1, ++here.reduced, -1});
        } else {
          continue;
        }
        goes_on = true;
      }
    }
  }

  Status stuck() {
    std::string waiting;
    for (int rank = 0; rank < schedule_.num_ranks(); ++rank) {
      const size_t next = next_[index(rank)];
      if (next == programs_[index(rank)].size()) continue;
      Instruction at = programs_[index(rank)][next];
      at.version = std::max(0, batch(at).version);
      waiting += concat(waiting.empty() ? "" : ", ", "rank ", rank, " for what ",
                        to_text(at), " needs");
    }
    return {Code::kInvalidArgument,
            concat("the ranks wait for each other: ", waiting, "; with weights ",
                   name_of(schedule_.weights), " this order cannot be carried out")};
  }

  // Keeps copies of versions that are still used after the next step.
  void keep_versions() {
    for (Program& program : schedule_.ranks) {
      std::map<std::pair<int, int>, size_t> last_use;  // by stage and version
      for (size_t i = 0; i < program.size(); ++i)
        if (is_compute(program[i].kind))
          last_use[{program[i].stage, program[i].version}] = i;
      const Program before = std::exchange(program, {});
      std::map<size_t, Instruction> pops;  // after which instruction
      for (size_t i = 0; i < before.size(); ++i) {
        Instruction at = before[i];
        if (at.kind == Opcode::kStep) {
          const auto use = last_use.find({at.stage, at.version - 1});
          if (use != last_use.end() && use->second > i) {
            program.push_back({Opcode::kPush, at.stage, -1, at.version - 1, -1});
            pops[use->second] = {Opcode::kPop, at.stage, -1, at.version - 1, -1};
          }
        }
        program.push_back(at);
        if (const auto pop = pops.find(i); pop != pops.end())
          program.push_back(pop->second);
      }
    }
  }

  Schedule schedule_;
  const std::vector<Program>& programs_;
  const UpdateOptions& options_;
  std::vector<size_t> next_;  // by rank: instruction that it computes, or would compute
  std::vector<bool> is_busy_;               // by rank
  std::vector<PlacedBatch> batches_;        // by stage and micro-batch
  std::vector<Updates> updates_;            // by stage
  using Running = std::pair<int64_t, int>;  // end of the work, and the rank
  std::priority_queue<Running, std::vector<Running>, std::greater<>> running_;
};

}  // namespace

Result<Schedule> lay_out(Schedule schedule, const std::vector<Program>& programs,
                         const UpdateOptions& options) {
  return ScheduleLayout(std::move(schedule), programs, options).run();
}

}  // namespace aikido::pipeline

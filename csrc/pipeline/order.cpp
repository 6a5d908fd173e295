// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "pipeline/order.h"

#include <algorithm>
#include <numeric>

namespace aikido::pipeline {
namespace {

Instruction compute(Opcode kind, int stage, int micro_batch) {
  return {kind, stage, micro_batch, -1, -1};
}

// One program for each replica. `write` gets the program, the stage and its
// micro-batches.
template <class Write>
std::vector<Program> for_each_replica(const Stages& stages, const Turns& turns,
                                      int num_micro_batches, Write write) {
  std::vector<Program> programs;
  for (size_t s = 0; s < stages.size(); ++s) {
    const auto replicas = static_cast<int>(stages[s].size());
    for (int replica = 0; replica < replicas; ++replica) {
      std::vector<int> own;
      for (int b = 0; b < num_micro_batches; ++b)
        if (turns[s][static_cast<size_t>(b) % turns[s].size()] == replica)
          own.push_back(b);
      const auto rank = static_cast<size_t>(stages[s][static_cast<size_t>(replica)]);
      programs.resize(std::max(programs.size(), rank + 1));
      write(programs[rank], static_cast<int>(s), own);
    }
  }
  return programs;
}

// Program of one rank of interleaved_order. Forwards and backwards are numbered;
// stage_of and batch_of give the stage and micro-batch of number n.
class Interleaved {
 public:
  Interleaved(int rank, int num_ranks, int stages_per_rank, int num_micro_batches,
              bool zero_bubble)
      : rank_(rank),
        num_ranks_(num_ranks),
        stages_per_rank_(stages_per_rank),
        portion_(num_micro_batches / std::max(1, num_micro_batches / num_ranks)),
        zero_bubble_(zero_bubble),
        count_(num_micro_batches * stages_per_rank) {}

  Program write() {
    const int distance = num_ranks_ - 1 - rank_;
    const int warmup = std::min(
        count_, (stages_per_rank_ - 1) * portion_ + distance * (zero_bubble_ ? 1 : 2));
    for (int n = 0; n < warmup; ++n) forward(n);
    for (int n = warmup; n < count_; ++n) {
      forward(n);
      backward(n - warmup);
    }
    for (int n = count_ - warmup; n < count_; ++n) backward(n);
    if (zero_bubble_)
      for (int n = std::max(0, count_ - rank_); n < count_; ++n)
        add(Opcode::kWeightGradient, n, true);
    return std::move(program_);
  }

 private:
  void forward(int n) { add(Opcode::kForward, n, false); }
  void backward(int n) {
    add(zero_bubble_ ? Opcode::kInputGradient : Opcode::kBackward, n, true);
    // As late as possible, with as many in flight on each rank as on the first.
    if (zero_bubble_ && n >= rank_) add(Opcode::kWeightGradient, n - rank_, true);
  }
  void add(Opcode kind, int n, bool is_backward) {
    const int turn = n / portion_;
    const int here = turn % stages_per_rank_;
    const int stage = is_backward ? stages_per_rank_ - 1 - here : here;
    const int micro_batch = turn / stages_per_rank_ * portion_ + n % portion_;
    program_.push_back(compute(kind, stage * num_ranks_ + rank_, micro_batch));
  }

  const int rank_, num_ranks_, stages_per_rank_;
  const int portion_;  // micro-batches of a stage before the next stage
  const bool zero_bubble_;
  const int count_;  // of forwards
  Program program_;
};

}  // namespace

Stages stages_in_a_row(const std::vector<int>& replicas) {
  Stages stages;
  int next = 0;
  for (const int count : replicas) {
    auto& ranks = stages.emplace_back();
    for (int i = 0; i < count; ++i) ranks.push_back(next++);
  }
  return stages;
}

Stages stages_in_turns(int num_ranks, int stages_per_rank) {
  Stages stages;
  for (int s = 0; s < num_ranks * stages_per_rank; ++s)
    stages.push_back({s % num_ranks});
  return stages;
}

std::vector<int> warmups_of(const std::vector<int>& replicas) {
  std::vector<int> warmups(replicas.size());
  int held = 0;  // forwards of the stage after
  for (size_t s = replicas.size(); s-- > 0;) {
    warmups[s] = (held + replicas[s] - 1) / replicas[s];
    held = replicas[s] * (warmups[s] + 1);
  }
  return warmups;
}

Turns even_turns(const Stages& stages) {
  Turns turns;
  for (const auto& ranks : stages) {
    auto& of = turns.emplace_back(ranks.size());
    std::iota(of.begin(), of.end(), 0);
  }
  return turns;
}

std::vector<Program> gpipe_order(const Stages& stages, const Turns& turns,
                                 int num_micro_batches) {
  const auto write = [](Program& program, int stage, const std::vector<int>& own) {
    for (const int b : own) program.push_back(compute(Opcode::kForward, stage, b));
    for (const int b : own) program.push_back(compute(Opcode::kBackward, stage, b));
  };
  return for_each_replica(stages, turns, num_micro_batches, write);
}

std::vector<Program> one_f_one_b_order(const Stages& stages, const Turns& turns,
                                       const std::vector<int>& warmups,
                                       int num_micro_batches) {
  const auto write = [&](Program& program, int stage, const std::vector<int>& own) {
    const size_t warmup =
        std::min(own.size(), static_cast<size_t>(warmups[static_cast<size_t>(stage)]));
    for (size_t i = 0; i < own.size() + warmup; ++i) {
      if (i < own.size()) program.push_back(compute(Opcode::kForward, stage, own[i]));
      if (i >= warmup)
        program.push_back(compute(Opcode::kBackward, stage, own[i - warmup]));
    }
  };
  return for_each_replica(stages, turns, num_micro_batches, write);
}

std::vector<Program> interleaved_order(int num_ranks, int stages_per_rank,
                                       int num_micro_batches, bool zero_bubble) {
  std::vector<Program> programs;
  for (int rank = 0; rank < num_ranks; ++rank)
    programs.push_back(
        Interleaved(rank, num_ranks, stages_per_rank, num_micro_batches, zero_bubble)
            .write());
  return programs;
}

Program with_recomputing(const Program& program) {
  Program written;
  for (size_t i = 0; i < program.size(); ++i) {
    const Instruction& next = program[i];
    const bool is_backward =
        next.kind == Opcode::kBackward || next.kind == Opcode::kInputGradient;
    const bool follows_at_once =
        i > 0 &&
        program[i - 1] == compute(Opcode::kForward, next.stage, next.micro_batch);
    if (is_backward && !follows_at_once)
      written.push_back(compute(Opcode::kRecompute, next.stage, next.micro_batch));
    written.push_back(next);
  }
  return written;
}

}  // namespace aikido::pipeline

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "pipeline/solver.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/check.h"

namespace aikido::pipeline {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

}  // namespace

Solver::Solver(const CutGraph& cuts, const Cost& cost, SolverOptions options, Goal goal)
    : cuts_(cuts),
      cost_(cost),
      options_(std::move(options)),
      goal_(goal),
      by_after_(goal == Goal::kMemory || options_.memory_bytes.has_value()),
      by_load_(by_after_ && cost.model() == CostModel::kPaper),
      tables_(options_.levels.size()) {}

double Solver::best() {
  const size_t last = cuts_.size() - 1;
  return choices(options_.levels.size() - 1, {}, Block::kBegin, last)[last].value;
}

std::vector<Block> Solver::blocks() {
  return trace(options_.levels.size() - 1, {}, Block::kBegin, cuts_.size() - 1);
}

double Solver::compute_s(int32_t from, size_t to) const {
  const double before = from < 0 ? 0 : cuts_[static_cast<size_t>(from)].compute_s;
  return cuts_[to].compute_s - before;
}

double Solver::parameter_bytes(int32_t from, size_t to) const {
  const double before = from < 0 ? 0 : cuts_[static_cast<size_t>(from)].parameter_bytes;
  return cuts_[to].parameter_bytes - before;
}

double Solver::held_bytes(int32_t from, size_t to) const {
  const double before =
      from < 0 ? 0 : cuts_[static_cast<size_t>(from)].activation_bytes;
  return cuts_[to].activation_bytes - before + parameter_bytes(from, to);
}

double Solver::on_machine(Load load, int32_t from, size_t to) const {
  if (!by_load_) return goal_ == Goal::kTime ? compute_s(from, to) : 0;
  const double bytes = static_cast<double>(cost_.versions(load)) * held_bytes(from, to);
  if (goal_ == Goal::kMemory) return bytes;
  return bytes <= *options_.memory_bytes ? compute_s(from, to) : kNever;
}

double Solver::inner(size_t level, Load load, int32_t from, size_t to) {
  if (level == 0) return on_machine(load, from, to);
  const size_t columns = cuts_.size() + 1;
  return table(level - 1, load)[to * columns + static_cast<size_t>(from + 1)];
}

double Solver::stage(size_t level, Load load, LayerRange span, int replicas,
                     int after) {
  const Level& here = level_of(level);
  const auto to = static_cast<size_t>(span.to);
  double kept = 0;
  if (by_after_ && !by_load_) {
    kept = static_cast<double>(cost_.versions(after, replicas)) *
           held_bytes(span.from, to);
    if (goal_ == Goal::kTime && kept > *options_.memory_bytes) return kNever;
  }
  const Load below = by_load_ ? load.inside(after, replicas, here) : Load{};
  const double inside = inner(level, below, span.from, to);
  if (goal_ == Goal::kMemory) return std::max(inside, kept);
  const double sync =
      cost_.sync_s(parameter_bytes(span.from, to), replicas, here, span.is_first);
  return cost_.stage_s(inside, sync, replicas);
}

double Solver::transfer(size_t level, LayerRange span, int replicas) const {
  if (goal_ == Goal::kMemory) return 0;
  const auto to = static_cast<size_t>(span.to);
  return cost_.transfer_s(cuts_[static_cast<size_t>(span.from)], cuts_[to],
                          to + 1 == cuts_.size(), replicas, level_of(level));
}

Solver::Row Solver::row(size_t level, Load load, int used, int32_t begin) {
  Row made{static_cast<size_t>(used) + 1, {}};
  made.values.assign(cuts_.size() * made.stride, kNever);
  const size_t first_to = begin < 0 ? 0 : static_cast<size_t>(begin) + 1;
  for (size_t to = first_to; to < cuts_.size(); ++to) {
    if (begin >= 0) {
      const auto before = cuts_.before(to);
      if (!std::binary_search(before.begin(), before.end(),
                              static_cast<uint32_t>(begin)))
        continue;
    }
    const LayerRange whole{begin, static_cast<int32_t>(to), true};
    for (int r = 1; r <= most_replicas(used); ++r)
      made.at(to)[r] = stage(level, load, whole, r, used - r);
    if (by_after_)
      extend(level, load, used, begin, to, made);
    else
      extend_freely(level, used, begin, to, made);
  }
  return made;
}

// Pipelines of several stages.
void Solver::extend(size_t level, Load load, int used, int32_t begin, size_t to,
                    Row& row) {
  double* const best = row.at(to);
  for (const uint32_t k : cuts_.before(to)) {
    const auto from = static_cast<int32_t>(k);
    if (from <= begin) continue;
    const double* const before = row.at(k);
    const LayerRange span{from, static_cast<int32_t>(to), false};
    for (int r = 1; r <= most_replicas(used - 1); ++r) {
      const double passed = transfer(level, span, r);
      for (int m = r + 1; m <= used; ++m)
        if (const double so_far = std::max(before[m - r], passed); so_far < best[m])
          best[m] = std::min(best[m],
                             std::max(so_far, stage(level, load, span, r, used - m)));
    }
  }
}

// As extend(), if the cost of a stage does not depend on the stages after it. For each
// k it is a product of two short vectors, with max for times and min for plus.
void Solver::extend_freely(size_t level, int used, int32_t begin, size_t to, Row& row) {
  double* const best = row.at(to);
  for (const uint32_t k : cuts_.before(to)) {
    const auto from = static_cast<int32_t>(k);
    if (from <= begin) continue;
    const double* const before = row.at(k);
    // Cut k is not after `begin`, or impossible: if one component does not suffice,
    // several do not either.
    if (before[1] == kNever) continue;
    const LayerRange span{from, static_cast<int32_t>(to), false};
    for (int r = 1; r <= most_replicas(used - 1); ++r) {
      const double cost =
          std::max(transfer(level, span, r), stage(level, {}, span, r, 0));
      for (int m = r + 1; m <= used; ++m) {
        const double slowest = before[m - r] > cost ? before[m - r] : cost;
        best[m] = best[m] < slowest ? best[m] : slowest;
      }
    }
  }
}

std::vector<Solver::Choice> Solver::choices(size_t level, Load load, int32_t begin,
                                            size_t first_to) {
  const int all = level_of(level).count;
  std::vector<Choice> chosen(cuts_.size(), {kNever, all});
  const auto take = [&](const Row& row, int used) {
    for (size_t to = first_to; to < cuts_.size(); ++to)
      if (const double value = row.at(to)[used]; value < chosen[to].value)
        chosen[to] = {value, used};
  };
  const int least = options_.fewer_machines ? 1 : all;
  if (!by_after_) {
    const Row made = row(level, load, all, begin);
    for (int used = all; used >= least; --used) take(made, used);
  } else {
    for (int used = all; used >= least; --used)
      take(row(level, load, used, begin), used);
  }
  return chosen;
}

const Solver::Table& Solver::table(size_t level, Load load) {
  const auto [place, is_new] = tables_[level].try_emplace(load);
  if (!is_new) return place->second;
  const size_t columns = cuts_.size() + 1;
  Table made(cuts_.size() * columns, kNever);
  for (size_t column = 0; column < columns; ++column) {
    const auto begin = static_cast<int32_t>(column) - 1;
    const auto chosen = choices(level, load, begin, column);
    for (size_t to = column; to < cuts_.size(); ++to)
      made[to * columns + column] = chosen[to].value;
  }
  return place->second = std::move(made);
}

std::vector<Block> Solver::trace(size_t level, Load load, int32_t begin, size_t end) {
  const Choice choice = choices(level, load, begin, end)[end];
  AIKIDO_CHECK(choice.value < kNever, "no pipeline from ", begin, " to ", end);
  const Row made = row(level, load, choice.used, begin);
  std::vector<Block> blocks;
  auto to = static_cast<int32_t>(end);
  for (int left = choice.used; left > 0;) {
    const int after = choice.used - left;
    const LayerRange whole{begin, to, true};
    Block block{begin, to, left, after, {}};
    double least =
        left <= most_replicas(left) ? stage(level, load, whole, left, after) : kNever;
    for (const uint32_t k : cuts_.before(static_cast<size_t>(to))) {
      const auto from = static_cast<int32_t>(k);
      if (from <= begin) continue;
      const LayerRange span{from, to, false};
      for (int r = 1; r <= most_replicas(left - 1); ++r) {
        const double slowest = std::max({made.at(k)[left - r], transfer(level, span, r),
                                         stage(level, load, span, r, after)});
        if (slowest < least) {
          least = slowest;
          block.from = from;
          block.replicas = r;
        }
      }
    }
    AIKIDO_CHECK(least < kNever, "no stage up to ", to, " on ", left);
    left = block.from == begin ? 0 : left - block.replicas;
    to = block.from;
    blocks.push_back(std::move(block));
  }
  std::reverse(blocks.begin(), blocks.end());
  if (level == 0) return blocks;
  for (Block& block : blocks) {
    Load below;
    if (by_load_)
      below = load.inside(block.components_after, block.replicas, level_of(level));
    block.inside = trace(level - 1, below, block.from, static_cast<size_t>(block.to));
  }
  return blocks;
}

}  // namespace aikido::pipeline

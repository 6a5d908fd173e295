// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// The dynamic programme: the best pipeline of a model on a hierarchy of machines, for a
// cost model, and what the least memory is that any pipeline needs. One thread at a
// time; the cuts must outlive it.
//
// Note [the programme]
// row(level, begin)[j][m] is the least slowest stage of all pipelines for what lies
// between the cuts `begin` and j, on m components of the level. Either that is one
// stage with m replicas, or its last stage lies between k and j and has r replicas:
//   row[j][m] = min(stage(begin, j, m), min over k, r of
//                   max(row[k][m-r], transfer(k, j, r), stage(k, j, r)))
// and what a replica of a stage needs inside is the best of the level below, for the
// same two cuts, on all of its components (table).
//
// With a memory limit what fits depends on how many machines come after, too, so that
// stage() takes them, and a table is made for each load. Idle machines come after
// nobody: with `fewer_machines` each number of components in use is a row of its own.

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "pipeline/cost.h"

namespace aikido::pipeline {

struct SolverOptions {
  std::vector<Level> levels;           // lowest first
  bool straight = false;               // one replica for each stage
  bool fewer_machines = false;         // some may be left idle
  std::optional<double> memory_bytes;  // of a machine
};

// A stage of the result, at its level.
struct Block {
  static constexpr int32_t kBegin = -1;  // the cut before everything
  int32_t from = kBegin, to = 0;         // cuts
  int replicas = 1;
  int components_after = 0;   // in use, of its level
  std::vector<Block> inside;  // pipeline of a replica; empty at the lowest level
};

class Solver {
 public:
  enum class Goal { kTime, kMemory };
  // Requires: at least one level, all with positive figures.
  Solver(const CutGraph& cuts, const Cost& cost, SolverOptions options, Goal goal);

  // Seconds of the slowest stage, or bytes that a machine needs (the memory limit is
  // then none). Infinite when there is no such pipeline.
  double best();
  // The stages that make it, of the highest level. Requires: best() is finite.
  std::vector<Block> blocks();

 private:
  // [j * stride + m], m components; infinite where there is no way.
  struct Row {
    size_t stride;
    std::vector<double> values;
    const double* at(size_t j) const { return values.data() + j * stride; }
    double* at(size_t j) { return values.data() + j * stride; }
  };
  // [j * columns + begin + 1]: on all components of a level.
  using Table = std::vector<double>;

  // Between two cuts.
  struct Span {
    int32_t from, to;
    bool is_first;  // from is where the whole row begins
  };

  const Level& level_of(size_t level) const { return options_.levels[level]; }
  int most_replicas(int used) const { return options_.straight ? 1 : used; }
  double compute_s(int32_t from, size_t to) const;
  double parameter_bytes(int32_t from, size_t to) const;
  double held_bytes(int32_t from, size_t to) const;

  Row row(size_t level, Load load, int used, int32_t begin);
  void extend(size_t level, Load load, int used, int32_t begin, size_t to, Row& row);
  void extend_freely(size_t level, int used, int32_t begin, size_t to, Row& row);
  // The least of a row for all or, where allowed, fewer components, and how many.
  struct Choice {
    double value;
    int used;
  };
  std::vector<Choice> choices(size_t level, Load load, int32_t begin, size_t first_to);
  // Of one stage, without its transfers.
  double stage(size_t level, Load load, Span span, int replicas, int after);
  // At the cut where a stage begins that is not the first.
  double transfer(size_t level, Span span, int replicas) const;
  double on_machine(Load load, int32_t from, size_t to) const;
  double inner(size_t level, Load load, int32_t from, size_t to);
  const Table& table(size_t level, Load load);
  std::vector<Block> trace(size_t level, Load load, int32_t begin, size_t end);

  const CutGraph& cuts_;
  const Cost cost_;
  const SolverOptions options_;
  const Goal goal_;
  // What a stage may be depends on what comes after it; on the load of its component.
  const bool by_after_;
  const bool by_load_;
  std::vector<std::map<Load, Table>> tables_;
};

}  // namespace aikido::pipeline

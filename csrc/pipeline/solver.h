// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Dynamic programme for the best pipeline of a model on a hierarchy of machines with a
// cost model, or for the least memory that any pipeline needs. One thread at a time;
// the cuts must outlive it.
//
// Note [the programme]
// row(level, begin)[j][m] is the smallest possible time of the slowest stage, over all
// pipelines for the layers between the cuts `begin` and j, on m components of the
// level. Either this is one stage with m replicas, or its last stage lies between k and
// j and has r replicas:
//     row[j][m] = min(stage(begin, j, m), min over k, r of
//                     max(row[k][m-r], transfer(k, j, r), stage(k, j, r)))
// The time inside a replica of a stage is the best of the level below, for the same two
// cuts, on all of its components (table).
//
// With a memory limit, the possible stages also depend on the number of machines that
// come after. So stage() takes that number, and a table is made for each load. Idle
// machines come after nobody: with `fewer_machines`, each number of used components has
// its own row.

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "pipeline/cost.h"

namespace aikido::pipeline {

struct SolverOptions {
  std::vector<Level> levels;           // lowest first
  bool straight = false;               // one replica for each stage
  bool fewer_machines = false;         // some machines may stay idle
  std::optional<double> memory_bytes;  // of a machine
};

// Stage of the result, at its level.
struct Block {
  static constexpr int32_t kBegin = -1;  // the cut before everything
  int32_t from = kBegin, to = 0;         // cuts
  int replicas = 1;
  int components_after = 0;   // used components of its level after this one
  std::vector<Block> inside;  // pipeline inside a replica; empty at the lowest level
};

class Solver {
 public:
  enum class Goal { kTime, kMemory };
  // Requires: at least one level, with positive numbers.
  Solver(const CutGraph& cuts, const Cost& cost, SolverOptions options, Goal goal);

  // Seconds of the slowest stage, or bytes that a machine needs (then without memory
  // limit). Infinite if there is no pipeline.
  double best();
  // Stages of the best pipeline, at the highest level. Requires: best() is finite.
  std::vector<Block> blocks();

 private:
  // [j * stride + m], m components; infinite if impossible.
  struct Row {
    size_t stride;
    std::vector<double> values;
    const double* at(size_t j) const { return values.data() + j * stride; }
    double* at(size_t j) { return values.data() + j * stride; }
  };
  // [j * columns + begin + 1]: on all components of a level.
  using Table = std::vector<double>;

  // Between two cuts.
  struct LayerRange {
    int32_t from, to;
    bool is_first;  // `from` is the begin of the row
  };

  const Level& level_of(size_t level) const { return options_.levels[level]; }
  int most_replicas(int used) const { return options_.straight ? 1 : used; }
  double compute_s(int32_t from, size_t to) const;
  double parameter_bytes(int32_t from, size_t to) const;
  double held_bytes(int32_t from, size_t to) const;

  Row row(size_t level, Load load, int used, int32_t begin);
  void extend(size_t level, Load load, int used, int32_t begin, size_t to, Row& row);
  void extend_freely(size_t level, int used, int32_t begin, size_t to, Row& row);
  // Best value of a row for all or, if allowed, fewer components, and their number.
  struct Choice {
    double value;
    int used;
  };
  std::vector<Choice> choices(size_t level, Load load, int32_t begin, size_t first_to);
  // Time of one stage, without its transfers.
  double stage(size_t level, Load load, LayerRange span, int replicas, int after);
  // Transfer at the cut where a stage begins. Not for the first stage.
  double transfer(size_t level, LayerRange span, int replicas) const;
  double on_machine(Load load, int32_t from, size_t to) const;
  double inner(size_t level, Load load, int32_t from, size_t to);
  const Table& table(size_t level, Load load);
  std::vector<Block> trace(size_t level, Load load, int32_t begin, size_t end);

  const CutGraph& cuts_;
  const Cost cost_;
  const SolverOptions options_;
  const Goal goal_;
  // The possible stages depend on the machines after them; on the load of the
  // component.
  const bool by_after_;
  const bool by_load_;
  std::vector<std::map<Load, Table>> tables_;
};

}  // namespace aikido::pipeline

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "pipeline/partition.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>
#include <utility>

#include "pipeline/cut_graph.h"
#include "pipeline/solver.h"

namespace aikido::pipeline {
namespace {

constexpr int kMostComponents = 1024;
constexpr int64_t kMostMachines = int64_t{1} << 20;
// With more cuts, branches are joined if there are several levels, because a level
// below others is solved for all pairs of cuts.
constexpr size_t kManyCutsForLevels = 1500;

Result<std::vector<Level>> levels_of(const PartitionOptions& options) {
  if (options.machines.size() != options.bandwidths.size())
    return invalid(concat("there are ", options.machines.size(),
                          " numbers of machines and ", options.bandwidths.size(),
                          " bandwidths; each level takes one of both"));
  if (options.machines.empty())
    return invalid("no machines are given; name their number and bandwidth");
  std::vector<Level> levels;
  int below = 1;
  int64_t machines = 1;
  for (size_t i = 0; i < options.machines.size(); ++i) {
    const int count = options.machines[i];
    const double bandwidth = options.bandwidths[i];
    if (count < 1 || count > kMostComponents)
      return invalid(concat("level ", i + 1, " has ", count,
                            " machines; it takes 1 to ", kMostComponents));
    if (!std::isfinite(bandwidth) || bandwidth <= 0)
      return invalid(concat("the bandwidth of level ", i + 1, " is ", bandwidth,
                            " bytes a second; it takes a finite number above 0"));
    levels.push_back({count, bandwidth, below, machines});
    below = count;
    machines *= count;
    if (machines > kMostMachines)
      return invalid(concat("the levels make ", machines, " machines; at most ",
                            kMostMachines, " are planned for"));
  }
  return levels;
}

Status check_limits(const PartitionOptions& options) {
  if (options.memory_bytes &&
      (!std::isfinite(*options.memory_bytes) || *options.memory_bytes <= 0))
    return invalid(concat("the memory of a machine is ", *options.memory_bytes,
                          " bytes; it takes a finite number above 0"));
  if (options.max_cuts == 0)
    return invalid("max_cuts is 0; it takes 1 or more, as 5000");
  return Status::ok();
}

// Whole bytes, with all digits.
std::string bytes_text(double bytes) {
  return concat(static_cast<int64_t>(std::ceil(bytes)));
}

// Converts the blocks of the solver to stages.
class Writer {
 public:
  Writer(const CutGraph& cuts, const Cost& cost, const std::vector<Level>& levels,
         Plan& plan)
      : cuts_(cuts), cost_(cost), levels_(levels), plan_(plan) {}

  // Surroundings of some blocks.
  struct Around {
    Load load;
    std::vector<int> replicas;  // highest level first
    double memory_bytes = 0;
    const Level* input = nullptr;  // where the first block takes its input
  };

  void write(const std::vector<Block>& blocks, size_t level, const Around& around) {
    const Level& here = levels_[level];
    for (size_t i = 0; i < blocks.size(); ++i) {
      const Block& block = blocks[i];
      Around inside = around;
      inside.load = around.load.inside(block.components_after, block.replicas, here);
      inside.replicas.push_back(block.replicas);
      if (i > 0) inside.input = &here;
      if (cost_.model() == CostModel::kPublishedCode) {
        const auto kept = cost_.versions(block.components_after, block.replicas);
        inside.memory_bytes = std::max(around.memory_bytes,
                                       static_cast<double>(kept) * held_bytes(block));
      }
      plan_.text += concat(i > 0 ? "-" : "", block.replicas);
      if (level == 0) {
        write_stage(block, inside, i == 0);
        continue;
      }
      plan_.text += '(';
      write(block.inside, level - 1, inside);
      plan_.text += ')';
    }
  }

 private:
  const LayerCut& cut(int32_t i) const { return cuts_[static_cast<size_t>(i)]; }
  double held_bytes(const Block& block) const {
    double bytes = cut(block.to).activation_bytes + cut(block.to).parameter_bytes;
    if (block.from != Block::kBegin)
      bytes -= cut(block.from).activation_bytes + cut(block.from).parameter_bytes;
    return bytes;
  }

  void write_stage(const Block& block, const Around& around, bool is_first) {
    const LayerCut& end = cut(block.to);
    LayerSet layers = end.layers;
    Stage stage;
    stage.compute_s = end.compute_s;
    stage.parameter_bytes = end.parameter_bytes;
    stage.activation_bytes = end.activation_bytes;
    if (block.from != Block::kBegin) {
      const LayerCut& begin = cut(block.from);
      layers.remove(begin.layers);
      stage.compute_s -= begin.compute_s;
      stage.parameter_bytes -= begin.parameter_bytes;
      stage.activation_bytes -= begin.activation_bytes;
      stage.input_bytes = cost_.output_bytes(begin);
      const bool is_last = static_cast<size_t>(block.to) + 1 == cuts_.size();
      stage.transfer_s =
          cost_.transfer_s(begin, end, is_last, around.replicas.back(), *around.input);
    }
    layers.for_each([&](size_t layer) { stage.layers.push_back(layer); });
    stage.replicas.assign(around.replicas.rbegin(), around.replicas.rend());
    for (size_t i = 0; i < levels_.size(); ++i) {
      const double sync =
          cost_.sync_s(stage.parameter_bytes, stage.replicas[i], levels_[i], is_first);
      if (i == 0) stage.period_s = cost_.stage_s(stage.compute_s, sync, block.replicas);
      if (i > 0) stage.period_s /= stage.replicas[i];
      stage.sync_s += sync;
      stage.machines *= stage.replicas[i];
    }
    if (cost_.model() == CostModel::kPaper) {
      stage.versions = cost_.versions(around.load);
      stage.memory_bytes = static_cast<double>(stage.versions) * held_bytes(block);
    } else {
      stage.versions = cost_.versions(block.components_after, block.replicas);
      stage.memory_bytes = around.memory_bytes;
    }
    plan_.machines += stage.machines;
    plan_.stages.push_back(std::move(stage));
  }

  const CutGraph& cuts_;
  const Cost& cost_;
  const std::vector<Level>& levels_;
  Plan& plan_;
};

// By layer: its position in an order where each comes after the layers that it needs.
// `is_before` decides between two layers that may both be next. Requires: a valid
// profile.
template <class IsBefore>
std::vector<size_t> places_of(const Profile& profile, IsBefore is_before) {
  const size_t count = profile.layers.size();
  std::vector<size_t> open(count), places(count);
  std::vector<std::vector<size_t>> needed_by(count);
  for (const Edge& edge : profile.edges) {
    needed_by[edge.from].push_back(edge.to);
    ++open[edge.to];
  }
  std::set<size_t, IsBefore> free(is_before);
  for (size_t i = 0; i < count; ++i)
    if (open[i] == 0) free.insert(i);
  for (size_t place = 0; !free.empty(); ++place) {
    const size_t layer = free.extract(free.begin()).value();
    places[layer] = place;
    for (const size_t to : needed_by[layer])
      if (--open[to] == 0) free.insert(to);
  }
  return places;
}

// The same profile in an order that does not depend on the order of its lines, and the
// former number of each layer. So sums are equal to the bit, and the same one of
// several equal plans is found.
struct Ordered {
  Profile profile;
  std::vector<size_t> numbers;
};

Ordered in_own_order(const Profile& profile) {
  const auto places = places_of(profile, [&](size_t a, size_t b) {
    return profile.layers[a].id < profile.layers[b].id;
  });
  Ordered made{{profile.layers, profile.edges}, places};
  for (size_t i = 0; i < places.size(); ++i) {
    made.profile.layers[places[i]] = profile.layers[i];
    made.numbers[places[i]] = i;
  }
  for (Edge& edge : made.profile.edges) edge = {places[edge.from], places[edge.to]};
  std::sort(made.profile.edges.begin(), made.profile.edges.end());
  return made;
}

// Adds the layers without a choice to their stages.
void attach(const CutGraph& cuts, Plan& plan) {
  for (const auto& [layer, to] : cuts.attached()) {
    auto& stages = plan.stages;
    auto home = std::find_if(stages.begin(), stages.end(), [to = to](const Stage& s) {
      return std::find(s.layers.begin(), s.layers.end(), to) != s.layers.end();
    });
    if (home == stages.end()) home = stages.begin();
    home->layers.push_back(layer);
  }
}

// Plan with the stages that the solver found.
Plan written(const Profile& profile, const CutGraph& cuts, const Cost& cost,
             const std::vector<Level>& levels, Solver& solver) {
  Plan plan;
  Writer(cuts, cost, levels, plan).write(solver.blocks(), levels.size() - 1, {});
  attach(cuts, plan);
  const auto places = places_of(profile, std::less<>{});
  for (Stage& stage : plan.stages)
    std::sort(stage.layers.begin(), stage.layers.end(),
              [&](size_t a, size_t b) { return places[a] < places[b]; });
  return plan;
}

// Error text: `smallest` is the plan with the least memory, `needed` bytes on a
// machine.
Status too_small(const Profile& profile, double memory_bytes, double needed,
                 const Plan& smallest) {
  const auto largest = std::max_element(
      smallest.stages.begin(), smallest.stages.end(),
      [](const Stage& a, const Stage& b) { return a.memory_bytes < b.memory_bytes; });
  const auto name = [&](size_t layer) {
    return concat('"', profile.layers[layer].id, '"');
  };
  const auto& layers = largest->layers;
  const std::string told = layers.size() == 1 ? concat("layer ", name(layers[0]))
                                              : concat("layers ", name(layers.front()),
                                                       " to ", name(layers.back()));
  return invalid(concat("no plan fits into ", bytes_text(memory_bytes),
                        " bytes on each machine; the smallest needs ",
                        bytes_text(needed), " bytes: ", smallest.text,
                        ", whose largest stage is ", largest - smallest.stages.begin(),
                        ", ", told));
}

// Error for finite times and bytes whose sums or quotients are infinite.
Status too_slow() {
  return invalid(
      "no plan has a finite time and memory: the times of the layers, their bytes, or "
      "their bytes divided by the bandwidth add up to more than 1.7e308; check the "
      "units of the profile and of the bandwidth");
}

// Requires: valid options.
Result<Plan> solve(const Profile& profile, const PartitionOptions& options,
                   const std::vector<Level>& levels) {
  CutOptions cut_options;
  cut_options.max_cuts = options.max_cuts;
  cut_options.rule =
      options.model == CostModel::kPaper ? CutRule::kAll : CutRule::kFromFirstSource;
  if (levels.size() > 1) cut_options.join_above = kManyCutsForLevels;
  auto made = CutGraph::make(profile, cut_options);
  if (!made.is_ok()) return made.status();
  const CutGraph& cuts = *made;
  const LayerCut& whole = cuts[cuts.size() - 1];

  const int64_t machines = levels.back().machines * levels.back().count;
  const auto most = static_cast<int64_t>(cuts.depth(cuts.size() - 1));
  if (options.straight && !options.fewer_machines && machines > most)
    return invalid(concat("a straight pipeline over ", machines, " machines has ",
                          machines, " stages, but the layers can be cut into at most ",
                          most, "; allow replicas or fewer machines"));

  const Cost cost(options.model, options.count_transfers);
  const SolverOptions solver_options{levels, options.straight, options.fewer_machines,
                                     options.memory_bytes};
  Solver solver(cuts, cost, solver_options, Solver::Goal::kTime);
  if (std::isinf(solver.best())) {
    if (!options.memory_bytes) return too_slow();
    Solver smallest(cuts, cost, solver_options, Solver::Goal::kMemory);
    // A plan that fits but has no finite time, or a memory that is no finite number.
    if (smallest.best() <= *options.memory_bytes || std::isinf(smallest.best()))
      return too_slow();
    return too_small(profile, *options.memory_bytes, smallest.best(),
                     written(profile, cuts, cost, levels, smallest));
  }
  Plan plan = written(profile, cuts, cost, levels, solver);
  plan.note = cuts.note();
  plan.period_s = solver.best();
  plan.one_machine_s = plan.data_parallel_s = whole.compute_s;
  for (const Level& level : levels)
    plan.data_parallel_s = cost.stage_s(
        plan.data_parallel_s,
        cost.sync_s(whole.parameter_bytes, level.count, level, true), level.count);
  return plan;
}

}  // namespace

Result<Plan> partition(const Profile& profile, const PartitionOptions& options) {
  auto levels = levels_of(options);
  if (!levels.is_ok()) return levels.status();
  AIKIDO_TRY(check_limits(options));
  AIKIDO_TRY(validate(profile));
  if (options.model == CostModel::kPublishedCode)
    return solve(profile, options, *levels);
  const Ordered ordered = in_own_order(profile);
  auto plan = solve(ordered.profile, options, *levels);
  if (!plan.is_ok()) return plan;
  const auto places = places_of(profile, std::less<>{});
  for (Stage& stage : plan->stages) {
    for (size_t& layer : stage.layers) layer = ordered.numbers[layer];
    std::sort(stage.layers.begin(), stage.layers.end(),
              [&](size_t a, size_t b) { return places[a] < places[b]; });
  }
  return plan;
}

Profile with_stages(Profile profile, const Plan& plan) {
  for (size_t i = 0; i < plan.stages.size(); ++i)
    for (const size_t layer : plan.stages[i].layers)
      profile.layers[layer].stage = static_cast<int>(i);
  return profile;
}

}  // namespace aikido::pipeline

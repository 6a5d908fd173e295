// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "pipeline/grid.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace aikido::pipeline {
namespace {

double shortest(const Simulation& simulation) {
  double least = simulation.makespan;
  for (const BusySpan& span : simulation.spans)
    if (span.end > span.begin) least = std::min(least, span.end - span.begin);
  return least;
}

bool has_several_stages(const Schedule& schedule) {
  std::vector<int> stages(schedule.ranks.size());
  for (const auto& ranks : schedule.stages)
    for (const int rank : ranks)
      if (++stages[static_cast<size_t>(rank)] > 1) return true;
  return false;
}

std::string cell_of(const Instruction& it, bool with_stage) {
  if (it.kind == Opcode::kStep) return with_stage ? concat('U', it.stage) : "U";
  const char letter = to_text(it)[0];
  return with_stage ? concat(letter, it.stage, '.', it.micro_batch)
                    : concat(letter, it.micro_batch);
}

}  // namespace

Result<std::string> to_grid(const Schedule& schedule, const Simulation& simulation,
                            const GridOptions& options) {
  if (!std::isfinite(options.slot) || options.slot < 0)
    return Status(Code::kInvalidArgument, concat("a slot of the grid is ", options.slot,
                                                 "; it takes a finite time above 0"));
  if (options.max_slots == 0)
    return Status(Code::kInvalidArgument, "max_slots is 0; it takes 1 or more");
  const double slot = options.slot > 0 ? options.slot : shortest(simulation);
  // Slightly less, so that rounding errors of sums do not add a slot.
  const double wanted =
      slot > 0 ? std::ceil(simulation.makespan / slot * (1 - 1e-9)) : 0;
  const bool is_cut = wanted > static_cast<double>(options.max_slots);
  const size_t slots = is_cut ? options.max_slots : static_cast<size_t>(wanted);

  const bool with_stage = has_several_stages(schedule);
  std::vector<std::vector<std::string>> cells(schedule.ranks.size(),
                                              std::vector<std::string>(slots, "."));
  size_t width = 1;
  for (const BusySpan& span : simulation.spans) {
    const auto rank = static_cast<size_t>(span.rank);
    const auto text = cell_of(schedule.ranks[rank][span.instruction], with_stage);
    // Slots with their middle, (i + 1/2) slot, in [begin, end).
    const double first = std::ceil(span.begin / slot - 0.5 - 1e-9);
    for (size_t i = static_cast<size_t>(std::max(0.0, first));
         i < slots && (static_cast<double>(i) + 0.5) * slot < span.end * (1 - 1e-9);
         ++i) {
      cells[rank][i] = text;
      width = std::max(width, text.size());
    }
  }
  const size_t label = concat(schedule.ranks.size() - 1).size();
  std::string text;
  for (size_t rank = 0; rank < cells.size(); ++rank) {
    const std::string number = concat(rank);
    std::string line =
        concat("rank ", std::string(label - number.size(), ' '), number, ' ');
    for (const auto& cell : cells[rank])
      line += concat(' ', cell, std::string(width - cell.size(), ' '));
    line.erase(line.find_last_not_of(' ') + 1);
    text += concat(line, is_cut ? " ..." : "", '\n');
  }
  return text;
}

}  // namespace aikido::pipeline

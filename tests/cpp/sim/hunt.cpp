// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "sim/hunt.h"

#include <algorithm>
#include <array>
#include <iomanip>
#include <optional>
#include <utility>

#include "sim/random_script.h"

namespace aikido::sim {

namespace {

struct Find {
  std::string where;
  std::string violation;
};

std::optional<Find> hunt(const std::vector<NamedScript>& scripts, uint64_t num_seeds,
                         const Options& options) {
  for (const NamedScript& s : scripts) {
    const Report report = run(s.script, options);
    if (!report.violation.empty()) return Find{s.name, report.violation};
  }
  for (uint64_t seed = 1; seed <= num_seeds; ++seed) {
    const Report report = run(random_script(seed, 0), options);
    if (!report.violation.empty()) return Find{concat("seed ", seed), report.violation};
  }
  return std::nullopt;
}

}  // namespace

bool hunt_mutations(const std::vector<NamedScript>& scripts, uint64_t num_seeds,
                    const Options& options, std::ostream& out) {
  bool is_well = true;
  for (size_t i = 1; i < kMutationNames.size(); ++i) {
    const auto mutation = static_cast<Mutation>(i);
    if (mutation == Mutation::kNoAck) continue;
    chosen_mutation = mutation;
    times_asked[i] = 0;
    const auto find = hunt(scripts, num_seeds, options);
    chosen_mutation = Mutation::kNone;
    const bool is_there = times_asked[i] > 0;
    out << std::left << std::setw(24) << name_of(mutation);
    if (!find) {
      out << (is_there ? "NOT FOUND\n" : "IS NOT THERE: nothing asks for it\n");
      is_well = false;
    } else {
      out << "found by " << find->where << ": " << find->violation << "\n";
    }
  }
  return is_well;
}

}  // namespace aikido::sim

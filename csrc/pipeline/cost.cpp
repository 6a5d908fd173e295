// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "pipeline/cost.h"

#include <algorithm>
#include <numeric>

#include "base/text.h"

namespace aikido::pipeline {

std::string_view name_of(CostModel model) {
  return model == CostModel::kPaper ? "paper" : "published_code";
}

Result<CostModel> cost_model_named(std::string_view name) {
  for (const auto model : {CostModel::kPaper, CostModel::kPublishedCode})
    if (name == name_of(model)) return model;
  return Status(Code::kInvalidArgument,
                concat("the cost model is \"", printable(name),
                       "\"; it takes \"paper\" or \"published_code\""));
}

Load Load::inside(int components, int replicas, const Level& level) const {
  // (components * machines + after / own) / replicas
  Load load{components * level.machines * own + after, own * replicas};
  const int64_t shared = std::gcd(load.after, load.own);
  return {load.after / shared, load.own / shared};
}

double Cost::sync_s(double parameter_bytes, int replicas, const Level& level,
                    bool is_first) const {
  const double share = static_cast<double>(replicas - 1) / replicas;
  if (model_ == CostModel::kPaper) return 2 * share * parameter_bytes / level.bandwidth;
  const double seconds = 4 * share * parameter_bytes / level.bandwidth;
  // Only at the first stage does the published code divide the work among the machines
  // of a component.
  return is_first ? seconds / level.below : seconds;
}

double Cost::transfer_s(const LayerCut& from, const LayerCut& to, bool is_last,
                        int replicas, const Level& level) const {
  if (!counts_transfers_) return 0;
  if (model_ == CostModel::kPaper) return 2 * from.crossing_bytes / level.bandwidth;
  const double most = std::max(from.frontier_bytes, is_last ? 0 : to.frontier_bytes);
  return 2 * most / (level.bandwidth * replicas);
}

}  // namespace aikido::pipeline

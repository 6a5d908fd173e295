// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Search over all plans of a small profile without inputs. Every antichain may be a
// cut; in the model of the published code, only connected antichains. It shares no code
// with the partitioner: sets of layers are bits, plans are complete, and the formulas
// are written again.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "pipeline/partition.h"

namespace aikido::pipeline::testing {

class BruteForce {
 public:
  BruteForce(const Profile& profile, PartitionOptions options)
      : profile_(profile), options_(std::move(options)) {
    const size_t count = profile.layers.size();
    needs_.assign(count, 0);
    for (size_t pass = 0; pass < count; ++pass)
      for (const Edge& edge : profile.edges)
        needs_[edge.to] |= needs_[edge.from] | bit(edge.from);
    size_t first = 0;
    while (needs_[first] != 0) ++first;
    for (uint32_t set = 1; set < bit(count); ++set) {
      const bool from_first = (set & bit(first)) != 0 && is_connected(set);
      if (is_closed(set) && (is_paper() || from_first)) cuts_.push_back(set);
    }
    all_ = all_pipelines(options_.machines.size(), 0, cuts_.back());
  }

  size_t num_cuts() const { return cuts_.size(); }
  size_t num_plans() const { return all_.size(); }
  // Bytes that plan number `plan` needs on its fullest machine.
  double memory_of(size_t plan) const { return memory(all_[plan], top(), {0, 1, 0}); }

  double least_memory() const {
    double least = INFINITY;
    for (size_t i = 0; i < all_.size(); ++i) least = std::min(least, memory_of(i));
    return least;
  }
  // Time of the best plan. Infinity: no plan.
  double best() const {
    double least = INFINITY;
    for (size_t i = 0; i < all_.size(); ++i)
      if (!options_.memory_bytes || memory_of(i) <= *options_.memory_bytes)
        least = std::min(least, period(all_[i], top()));
    return least;
  }

 private:
  struct Block {
    uint32_t from, to;
    int replicas;
    std::vector<Block> inside;
  };
  using Pipeline = std::vector<Block>;

  static uint32_t bit(size_t i) { return uint32_t{1} << i; }
  size_t top() const { return options_.machines.size(); }
  bool is_paper() const { return options_.model == CostModel::kPaper; }

  bool is_closed(uint32_t set) const {
    for (size_t i = 0; i < needs_.size(); ++i)
      if ((set & bit(i)) != 0 && (needs_[i] & ~set) != 0) return false;
    return true;
  }
  bool is_connected(uint32_t set) const {
    uint32_t reached = set & -set;
    for (uint32_t before = 0; before != reached;) {
      before = reached;
      for (const Edge& edge : profile_.edges) {
        const uint32_t both = bit(edge.from) | bit(edge.to);
        if ((both & ~set) == 0 && (both & reached) != 0) reached |= both;
      }
    }
    return reached == set;
  }

  // All pipelines inside a replica of a block of level `level` + 1; one empty pipeline
  // at level 0.
  std::vector<Pipeline> all_pipelines(size_t level, uint32_t from, uint32_t to) const {
    if (level == 0) return {{}};
    std::vector<Pipeline> found;
    Pipeline so_far;
    add_pipelines(level, from, to, options_.machines[level - 1], so_far, found);
    return found;
  }
  void add_pipelines(size_t level, uint32_t from, uint32_t to, int left,
                     Pipeline& so_far, std::vector<Pipeline>& found) const {
    if (from == to) {
      if (left == 0 || options_.fewer_machines) found.push_back(so_far);
      return;
    }
    for (const uint32_t next : cuts_) {
      if (next == from || (from & ~next) != 0 || (next & ~to) != 0) continue;
      for (int r = 1; r <= (options_.straight ? std::min(left, 1) : left); ++r)
        for (auto& inside : all_pipelines(level - 1, from, next)) {
          so_far.push_back({from, next, r, inside});
          add_pipelines(level, next, to, left - r, so_far, found);
          so_far.pop_back();
        }
    }
  }

  template <class Figure>
  double sum(uint32_t set, Figure figure) const {
    double sum = 0;
    for (size_t i = 0; i < profile_.layers.size(); ++i)
      if ((set & bit(i)) != 0) sum += figure(profile_.layers[i]);
    return sum;
  }
  double weights(uint32_t set) const {
    return sum(set, [](const Layer& l) { return l.parameter_bytes; });
  }
  double held(uint32_t set) const {
    return weights(set) + sum(set, [](const Layer& l) { return l.activation_bytes; });
  }

  double output(uint32_t cut) const {
    uint32_t sent = 0;
    for (size_t i = 0; i < needs_.size(); ++i)
      if ((cut & bit(i)) != 0)
        sent |= is_paper() ? crossing(cut, i) : augmented(cut, i);
    return sum(sent, [](const Layer& l) { return l.activation_bytes; });
  }
  uint32_t crossing(uint32_t cut, size_t layer) const {
    for (const Edge& edge : profile_.edges)
      if (edge.from == layer && (cut & bit(edge.to)) == 0) return bit(layer);
    return 0;
  }
  // If the layer is in the antichain of `cut`: the set of the layer and of those
  // dependencies that layers outside the set of all dependencies use, too. Otherwise 0.
  uint32_t augmented(uint32_t cut, size_t layer) const {
    for (size_t i = 0; i < needs_.size(); ++i)
      if ((cut & bit(i)) != 0 && (needs_[i] & bit(layer)) != 0) return 0;
    uint32_t found = bit(layer);
    for (const Edge& edge : profile_.edges)
      if ((needs_[layer] & bit(edge.from)) != 0 && edge.to != layer &&
          (needs_[layer] & bit(edge.to)) == 0)
        found |= bit(edge.from);
    return found;
  }

  double period(const Pipeline& pipeline, size_t level) const {
    const double bandwidth = options_.bandwidths[level - 1];
    double slowest = 0;
    for (const Block& block : pipeline) {
      const uint32_t own = block.to & ~block.from;
      const double r = block.replicas;
      const double inner =
          level > 1 ? period(block.inside, level - 1) : sum(own, [](const Layer& l) {
            return (l.forward_ms + l.backward_ms) / 1000;
          });
      double sync = (is_paper() ? 2 : 4) * (r - 1) / r * weights(own) / bandwidth;
      if (!is_paper() && &block == &pipeline.front() && level > 1)
        sync /= options_.machines[level - 2];
      slowest =
          std::max(slowest, (is_paper() ? std::max(inner, sync) : inner + sync) / r);
      if (&block == &pipeline.front() || !options_.count_transfers) continue;
      double sent = output(block.from);
      if (!is_paper() && block.to != cuts_.back())
        sent = std::max(sent, output(block.to));
      slowest = std::max(slowest, 2 * sent / bandwidth / (is_paper() ? 1 : r));
    }
    return slowest;
  }

  struct Outside {
    int64_t after;  // machines, of all replicas of the surrounding block
    int64_t copies;
    double bytes;
  };
  double memory(const Pipeline& pipeline, size_t level, Outside outside) const {
    int64_t machines = 1;  // of a component
    for (size_t i = 0; i + 1 < level; ++i) machines *= options_.machines[i];
    double most = 0;
    int later = 0;
    for (auto block = pipeline.rbegin(); block != pipeline.rend(); ++block) {
      const double bytes = held(block->to & ~block->from);
      Outside inside = outside;
      inside.after += later * machines * outside.copies;
      inside.copies *= block->replicas;
      const double versions = std::ceil(static_cast<double>(later) / block->replicas);
      inside.bytes = std::max(inside.bytes, versions * bytes);
      if (level > 1) {
        most = std::max(most, memory(block->inside, level - 1, inside));
      } else if (is_paper()) {
        const auto in_flight =
            (inside.copies + inside.after + inside.copies - 1) / inside.copies;
        most = std::max(most, static_cast<double>(in_flight) * bytes);
      } else {
        most = std::max(most, inside.bytes);
      }
      later += block->replicas;
    }
    return most;
  }

  const Profile& profile_;
  const PartitionOptions options_;
  std::vector<uint32_t> needs_;  // by layer: all its direct and indirect dependencies
  std::vector<uint32_t> cuts_;
  std::vector<Pipeline> all_;
};

}  // namespace aikido::pipeline::testing

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Simulator of a group of ranks with Reassigners: random times, deaths, skips, pauses
// and early ends of steps. It checks that each item is counted once. A world is
// repeated exactly by its seed. One thread.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "reassign/reassigner.h"

namespace aikido::reassign {

struct World {
  int32_t num_ranks = 4;
  int32_t num_helpers = kDefaultHelpers;
  std::vector<int32_t> hosts;  // empty: one host
  uint32_t items_per_rank = 8;
  uint64_t num_steps = 20;
  uint64_t seed = 1;
  bool is_reassigning = true;
  // An item of cost 1 on a rank of slowness 1 takes item_time, with this relative
  // error.
  Duration item_time = std::chrono::milliseconds(10);
  double jitter = 0;
  std::function<double(int32_t rank, uint64_t step)> slowness;  // empty: 1
  // An item is the mean of so many samples, whose costs are log-normal with this sigma.
  // The predicted cost of an item is wrong by a factor that is log-normal, too.
  uint32_t samples_per_item = 1;
  double cost_sigma = 0;
  double prediction_sigma = 0;
  bool is_partitioned = false;  // by the predicted costs, longest processing time first
  Duration least_latency = std::chrono::microseconds(50);
  Duration most_latency = std::chrono::microseconds(200);
  // Chance of each event, for one rank in one step.
  double death = 0;
  double skip = 0;   // its contribution is not in the sum
  double pause = 0;  // it handles nothing for up to longest_pause
  double leave = 0;  // it leaves the step early
  Duration longest_pause = std::chrono::milliseconds(200);
  ReassignOptions options;
};

struct Verdict {
  std::vector<std::string> violations;
  std::vector<double> step_ms;   // of each step without the drain at the end
  std::vector<double> ideal_ms;  // total work / total speed
  // Bound that a protocol can reach: each rank computes its first own item, because an
  // item in flight cannot move. The other items follow in a list schedule by real costs
  // and speeds, longest first. The best possible time if all items cost the same;
  // otherwise close to it.
  std::vector<double> whole_ms;
  uint64_t num_items = 0;
  uint64_t num_moved = 0;     // begun by another rank than their owner
  uint64_t num_messages = 0;  // all ranks
  uint64_t num_bytes = 0;
  uint64_t num_rank_steps = 0;
  uint64_t num_lost = 0;      // reported as lost and issued again
  uint64_t num_in_doubt = 0;  // dropped, because nobody can know
  uint64_t num_deaths = 0;
};

Verdict simulate(const World& world);

// Means of step_ms / ideal_ms and of whole_ms / ideal_ms, from step `first` on.
double mean_over_ideal(const Verdict& verdict, size_t first);
double whole_over_ideal(const Verdict& verdict, size_t first);

}  // namespace aikido::reassign

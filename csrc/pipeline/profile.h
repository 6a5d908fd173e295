// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Profile of a model: measurements of each layer, and the edges between layers. Read
// and written as text in the form of PipeDream's profiler:
//
//   <id> -- <description> -- forward_compute_time=<ms>, backward_compute_time=<ms>,
//       activation_size=<bytes>, parameter_size=<bytes> [-- stage_id=<k>]   (one line)
//   <tab><id> -- <id>                                        (output of, needed by)
//
// An activation size may be a list, [a; b; c], which is read as its sum. All numbers
// are for one mini-batch on one machine. Plain values; any thread.

#include <compare>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"

namespace aikido::pipeline {

struct Layer {
  std::string id;
  std::string description;
  double forward_ms = 0;
  double backward_ms = 0;
  double activation_bytes = 0;  // of the output, and of its gradient on the way back
  double parameter_bytes = 0;
  int stage = -1;  // from a plan; -1: none
  friend bool operator==(const Layer&, const Layer&) = default;
};

struct Edge {
  size_t from = 0, to = 0;  // indices of layers
  friend auto operator<=>(const Edge&, const Edge&) = default;
};

struct Profile {
  std::vector<Layer> layers;
  std::vector<Edge> edges;
  friend bool operator==(const Profile&, const Profile&) = default;
};

// kInvalidArgument names the layer: no layers, an id that is empty or used twice, a
// number that is negative or not finite, an edge with an invalid end or equal ends, or
// a cycle.
Status validate(const Profile& profile);

// Both return a valid profile. kInvalidArgument names the layer, and the line of a
// text. Edges are pairs of ids; duplicates count once.
Result<Profile> make_profile(
    std::vector<Layer> layers,
    const std::vector<std::pair<std::string, std::string>>& edges);
Result<Profile> parse_profile(std::string_view text);

// Reading the text gives exactly the same numbers.
std::string to_text(const Profile& profile);

}  // namespace aikido::pipeline

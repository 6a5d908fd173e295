// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// What was measured of each layer of a model, and which layers need the output of
// which. Read from and written as text in the form of PipeDream's profiler:
//
//   <id> -- <description> -- forward_compute_time=<ms>, backward_compute_time=<ms>,
//     activation_size=<bytes>, parameter_size=<bytes> [-- stage_id=<k>]   (one line)
//   <tab><id> -- <id>                                        (output of, needed by)
//
// An activation size may be a list, [a; b; c]: it is read as its sum. All figures are
// of one mini-batch on one machine. Plain values; any thread.

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
  int stage = -1;  // as a plan gave it; -1: none
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

// kInvalidArgument with a sentence that names the layer: there is none, an id is empty
// or there twice, a figure is negative or no number, an edge ends nowhere or where it
// begins, or edges make a cycle.
Status validate(const Profile& profile);

// Both make a valid profile, or kInvalidArgument with a sentence that names the layer,
// and the line of a text. Edges are pairs of ids; one that is there twice counts once.
Result<Profile> make_profile(
    std::vector<Layer> layers,
    const std::vector<std::pair<std::string, std::string>>& edges);
Result<Profile> parse_profile(std::string_view text);

// Reading it gives the same figures, to the bit.
std::string to_text(const Profile& profile);

}  // namespace aikido::pipeline

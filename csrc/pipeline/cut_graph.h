// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Where a model can be cut in two: sets of layers that hold all that their members
// need, each known by its antichain, the members that no other member needs. One cut
// lies before another if it is a part of it, and a stage is what lies between two such
// cuts (PipeDream, SOSP 2019, section 3.1, and its published optimizer).
//
// Note [layers that are no choice]
// Sources described as Input... are data: they cost nothing and go with the first
// stage. A __getitem__ that nothing needs goes with the layer that it takes from.
//
// Note [cuts of several sources]
// CutRule::kAll takes every cut there is, so that the best plan is among those that the
// solver looks at, in whatever order the layers stand. With s sources in a row of their
// own there are at least 2^s cuts. The published optimizer has fewer
// (kFromFirstSource): the first source in the order of the profile is in every cut, and
// a further source comes with the first layer that needs it. These are the connected
// sets around the first source, and the best plan may not be among them.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "pipeline/layer_set.h"
#include "pipeline/profile.h"

namespace aikido::pipeline {

struct Cut {
  LayerSet layers;  // what is done; indices of the profile
  // Of all that is done.
  double compute_s = 0;
  double activation_bytes = 0;
  double parameter_bytes = 0;
  // Outputs of what is done, needed by what is not.
  double crossing_bytes = 0;
  // The same as the published optimizer counts it: outputs of the antichain, and of
  // what a member of it needs and something else needs, too, done or not.
  double frontier_bytes = 0;
};

enum class CutRule { kAll, kFromFirstSource };

struct CutOptions {
  CutRule rule = CutRule::kAll;
  size_t max_cuts = 5000;  // more are refused
  // With more cuts layers are joined, step by step (branches.h), as far as there are
  // steps. max_cuts counts if it is smaller.
  size_t join_above = 5000;
};

class CutGraph {
 public:
  // kInvalidArgument if the profile is not valid, nothing is left without its inputs,
  // there are more than `max_cuts` cuts with all layers joined that may be, or with
  // kFromFirstSource if it falls into parts that nothing connects.
  static Result<CutGraph> make(const Profile& profile, const CutOptions& options);

  // A cut is after all that lie before it; the last is everything but inputs.
  size_t size() const { return cuts_.size(); }
  const Cut& operator[](size_t i) const { return cuts_[i]; }
  // The cuts that lie before i, ascending.
  std::span<const uint32_t> before(size_t i) const { return before_[i]; }
  // The most stages that cut i can be divided into.
  size_t depth(size_t i) const { return depth_[i]; }

  // Layers of the profile that are no choice, see the note, and the layer that each
  // goes with: itself for an input.
  struct Attached {
    size_t layer, to;
  };
  const std::vector<Attached>& attached() const { return attached_; }
  // Which layers were joined and why, as one sentence; empty if none were.
  const std::string& note() const { return note_; }

 private:
  std::vector<Cut> cuts_;
  std::vector<std::vector<uint32_t>> before_;
  std::vector<size_t> depth_;
  std::vector<Attached> attached_;
  std::string note_;
};

}  // namespace aikido::pipeline

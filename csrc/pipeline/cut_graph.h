// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Possible cuts of a model: sets of layers that contain all that their members need. A
// cut is identified by its antichain, the members that no other member needs. A cut
// lies before another if it is a subset, and a stage is the difference between two such
// cuts (PipeDream, SOSP 2019, section 3.1, and its published optimizer).
//
// Note [layers without a choice]
// Sources with the description Input... are data. They cost nothing and belong to the
// first stage. A __getitem__ that nothing needs belongs to the stage of its input.
//
// Note [cuts of several sources]
// CutRule::kAll takes all cuts, so the solver sees the best plan in any order of the
// layers. With s sources, each with a row of its own, there are at least 2^s cuts. The
// published optimizer has fewer (kFromFirstSource). The first source of the profile is
// in each of its cuts, and a further source comes with the first layer that needs it.
// These are the connected sets around the first source, and the best plan may be
// missing.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "pipeline/layer_set.h"
#include "pipeline/profile.h"

namespace aikido::pipeline {

// A place where a model can be cut.
struct LayerCut {
  LayerSet layers;  // layers before the cut; indices of the profile
  // Computing time of these layers.
  double compute_s = 0;
  double activation_bytes = 0;
  double parameter_bytes = 0;
  // Outputs of layers before the cut that layers after it need.
  double crossing_bytes = 0;
  // The same as the published optimizer counts it: outputs of the antichain, and of
  // each layer that a member of the antichain and another layer need, even if that
  // other layer is before the cut.
  double frontier_bytes = 0;
};

enum class CutRule { kAll, kFromFirstSource };

struct CutOptions {
  CutRule rule = CutRule::kAll;
  size_t max_cuts = 5000;  // more cuts are refused
  // With more cuts, layers are joined step by step (branches.h), as far as there are
  // steps. max_cuts applies if it is smaller.
  size_t join_above = 5000;
};

class CutGraph {
 public:
  // kInvalidArgument if the profile is not valid, if nothing remains without its
  // inputs, if there are more than `max_cuts` cuts with all possible layers joined, or,
  // with kFromFirstSource, if the profile has unconnected parts.
  static Result<CutGraph> make(const Profile& profile, const CutOptions& options);

  // A cut has a higher number than all cuts before it. The last cut is everything
  // except inputs.
  size_t size() const { return cuts_.size(); }
  const LayerCut& operator[](size_t i) const { return cuts_[i]; }
  // Cuts before cut i, ascending.
  std::span<const uint32_t> before(size_t i) const { return before_[i]; }
  // Largest number of stages that cut i can be divided into.
  size_t depth(size_t i) const { return depth_[i]; }

  // Layers of the profile without a choice, see the note, with the layer that each
  // belongs to: itself for an input.
  struct Attached {
    size_t layer, to;
  };
  const std::vector<Attached>& attached() const { return attached_; }
  // One sentence: which layers were joined and why. Empty if none were.
  const std::string& note() const { return note_; }

 private:
  std::vector<LayerCut> cuts_;
  std::vector<std::vector<uint32_t>> before_;
  std::vector<size_t> depth_;
  std::vector<Attached> attached_;
  std::string note_;
};

}  // namespace aikido::pipeline

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Layers that are joined so that a model with many branches has fewer cuts: no cut
// separates two layers of one group. Each step returns larger groups, and groups never
// need each other in a cycle. Pure; any thread.
//
// Note [joined layers]
// The published optimizer does not finish for Inception-v3 and NASNet. Its repository
// makes a smaller profile of them first, with one layer for each branch: a run of
// layers in a row that begins after a fork and ends where branches meet.
// join_branches() does the same, but keeps the layers, so that times, sizes and what
// crosses a cut stay exact. That is not enough for NASNet, and of no use where layers
// that take no time make the branches (GNMT's __getitem__). The other two steps are
// ours.

#include <cstddef>
#include <vector>

#include "pipeline/layer_graph.h"
#include "pipeline/profile.h"

namespace aikido::pipeline {

// By layer: the number of its group, which is the number of one of its layers.
using Groups = std::vector<size_t>;

Groups each_alone(const LayerGraph& graph);

// The graph of groups: each is the layer of its number, the others are not kept.
LayerGraph graph_of(const LayerGraph& layers, const Groups& groups);

// A layer without time and parameters goes with the one layer that it needs, if nothing
// else needs that one or nothing needs the layer; else with the one layer that needs
// it. Repeated until nothing changes.
Groups join_free_layers(const Profile& profile, const LayerGraph& graph, Groups groups);

// Layers in a row are one group from a fork, or from one of several sources, to the
// last layer before branches meet.
Groups join_branches(const LayerGraph& graph, Groups groups);

// A group with one need and one group that needs it goes with the latter, where
// branches meet.
Groups join_meetings(const LayerGraph& graph, Groups groups);

}  // namespace aikido::pipeline

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Joining of layers, so that a model with many branches has fewer cuts: no cut
// separates two layers of a group. Each step returns larger groups, and groups never
// form a cycle. Pure; any thread.
//
// Note [joined layers]
// The published optimizer does not finish for Inception-v3 and NASNet. Its repository
// first makes a smaller profile of them, with one layer for each branch. A branch is a
// run of layers that begins after a fork and ends where branches meet. join_branches()
// does the same but keeps the layers, so times, sizes and bytes across a cut stay
// exact. That is not enough for NASNet, and does not help if the branches consist of
// layers without time (GNMT's __getitem__). The other two steps are ours.

#include <cstddef>
#include <vector>

#include "pipeline/layer_graph.h"
#include "pipeline/profile.h"

namespace aikido::pipeline {

// By layer: the number of its group, which equals the number of one of its layers.
using Groups = std::vector<size_t>;

Groups each_alone(const LayerGraph& graph);

// Graph of the groups. The layer with the group's number stands for it; the other
// layers are dropped.
LayerGraph graph_of(const LayerGraph& layers, const Groups& groups);

// Joins a layer without time and parameters to the only layer that it needs, if nothing
// else needs that layer or nothing needs the free layer. Otherwise it is joined to the
// only layer that needs it. Repeated until nothing changes.
Groups join_free_layers(const Profile& profile, const LayerGraph& graph, Groups groups);

// Joins layers in a row, from a fork or one of several sources to the last layer before
// branches meet.
Groups join_branches(const LayerGraph& graph, Groups groups);

// Joins a group that needs one group, and is needed by one group, to the latter, where
// branches meet.
Groups join_meetings(const LayerGraph& graph, Groups groups);

}  // namespace aikido::pipeline

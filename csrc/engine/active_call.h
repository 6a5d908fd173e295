// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Collective in progress in a group, with the state that the group itself keeps for the
// collective. Progress thread.

#include <memory>
#include <optional>
#include <span>

#include "base/clock.h"
#include "collectives/skippable_operation.h"

namespace aikido::engine {

struct ActiveCall {
  std::shared_ptr<collectives::Operation> operation;
  TimePoint deadline{};                   // set by the local call
  TimePoint probe_at = TimePoint::max();  // time to ask the members to report the call
  TimePoint ask_at = TimePoint::max();    // time to ask which members have called
  // Set while the call waits. It is a barrier, or it is held back for an absent member.
  std::optional<collectives::LocalCall> held = std::nullopt;

  bool is_barrier() const {
    return operation->call().kind == collectives::CallKind::kBarrier;
  }
  // The result is complete here. False for a strict call.
  bool is_committed() const {
    const auto* skippable = operation->skippable();
    return skippable != nullptr && skippable->is_committed();
  }
  // Called by the local member, and not over.
  bool is_open() const {
    return (held.has_value() || operation->is_started()) && !operation->is_over();
  }
  bool is_held_back() const { return held.has_value() && !is_barrier(); }
};

// Operation that a frame belongs to. Null: the operation has ended on this member, or
// has failed.
struct FoundCall {
  std::shared_ptr<collectives::Operation> operation;
  std::span<const std::byte> rest;  // rest of the extension, behind the call
};

// Answer that `to` receives in a message with `tag`, when all other members have the
// results up to `seq`. Note [seals] (group_returns.cpp)
struct Seal {
  Seq seq;
  Rank to;
  int32_t tag = 0;
};

}  // namespace aikido::engine

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// A collective that is under way in a group, with what the group itself keeps of it.
// Progress thread.

#include <memory>
#include <optional>
#include <span>

#include "base/clock.h"
#include "collectives/operation.h"

namespace aikido::engine {

struct ActiveCall {
  std::shared_ptr<collectives::Operation> operation;
  TimePoint deadline{};                   // once called here
  TimePoint probe_at = TimePoint::max();  // when to ask the others for their call
  TimePoint ask_at = TimePoint::max();    // and whether they have called at all
  // Of a call that waits: a barrier, or one that is held back for an absent member.
  std::optional<collectives::LocalCall> held = std::nullopt;

  bool is_barrier() const {
    return operation->call().kind == collectives::CallKind::kBarrier;
  }
  bool is_held_back() const { return held.has_value() && !is_barrier(); }
};

// The operation that a frame belongs to; null when it is over here, or has failed.
struct FoundCall {
  std::shared_ptr<collectives::Operation> operation;
  std::span<const std::byte> rest;  // of the extension, behind the call
};

// To be told to `to`, by a message with `tag`, once all others have the results up to
// `seq`. Note [seals]
struct Seal {
  Seq seq;
  Rank to;
  int32_t tag = 0;
};

}  // namespace aikido::engine

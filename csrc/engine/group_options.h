// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Options of a process group.

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/rank_set.h"
#include "base/types.h"
#include "collectives/operation_host.h"
#include "engine/heartbeats.h"
#include "trace/recorder.h"

namespace aikido::engine {

struct GroupOptions {
  std::string name;  // used in messages
  Rank self;
  int32_t size = 1;
  bool is_reliable = false;  // the role of this member
  RankSet reliable;          // all reliable ranks; empty: none
  // `reliable` is not known yet: Group::set_roles() sets it before the first call.
  bool awaits_roles = false;
  collectives::OperationSettings operation;
  HeartbeatOptions heartbeat;
  uint64_t log_bytes = 256 << 20;  // results kept for late members, all policies
  size_t pool_bytes = 256 << 20;
  bool keeps_order = false;  // order of all links, see Uplink::keep_order()
  uint64_t largest_call_bytes = uint64_t{1} << 40;  // a larger call is an error
  trace::Recorder* recorder = nullptr;  // null: no trace; must outlive the group
};

}  // namespace aikido::engine

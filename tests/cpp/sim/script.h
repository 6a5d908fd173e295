// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Script of one run of the simulator, as text that a person can write and that a
// failing seed prints (README.md has the lines). A plain value; parsing is pure.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "collectives/call.h"
#include "straggler/data_shard.h"
#include "transport/frame.h"

namespace aikido::sim {

// In the place of a rank: every rank.
inline constexpr int32_t kEvery = -1;
// In the place of a time: without end.
inline constexpr Duration kForEver = Duration::max();

enum class EventKind : uint8_t {
  kCall,   // `a` calls collective `op`
  kDelay,  // from a to b, from the last byte that leaves to its arrival
  kRate,   // from a to b, bytes per second of each lane; 0: a frame takes no time
  kStall,  // no frame from a to b starts to leave
  kStop,   // the process of a stands still
  kKill,   // the process of a ends; frames that have left it arrive
  kPass,   // `a` skips through its missing calls with the state of b, once both may
  kAgree,  // `a` calls for an agreement on the members
  kCut,    // the connection of a and b breaks; b learns of it `duration` later
};

struct Event {
  Duration at{};
  EventKind kind = EventKind::kCall;
  int32_t a = kEvery;
  int32_t b = kEvery;
  std::optional<transport::Lane> lane;  // kDelay
  Duration duration{};                  // kDelay, kStall, kStop, kCut
  uint64_t rate = 0;                    // kRate
  // Fields of kCall:
  uint64_t op = 0;       // number in Script::ops, from 1
  bool waits = false;    // until the previous call of the rank has ended
  bool in_place = true;  // the output is the input's memory
  Priority priority = 0;
  // Data shard that a shadowing backup has computed. None: all data shards in turn.
  std::optional<int32_t> data_shard{};
};

// Makes frames of a kind arrive at `until` or later. Later frames of their lane wait,
// too.
struct Hold {
  int32_t from = kEvery;
  int32_t to = kEvery;
  std::string kind;  // a name that name_of() returns, or * for any
  std::optional<uint64_t> op;
  std::optional<uint16_t> shard;
  Duration until = kForEver;
};

struct Script {
  int32_t members = 2;
  uint64_t seed = 1;  // of the inputs
  size_t chunk_bytes = 256;
  size_t min_shard_bytes = 64;
  size_t lead_bytes = 1 << 20;
  uint64_t window_bytes = 1 << 20;
  uint64_t log_bytes = 1 << 20;
  Duration timeout = std::chrono::seconds(20);  // of each call
  Duration beat_every{};                        // zero: no heartbeats
  Duration silent_after{};
  // No member is late: each operation ends within this time after its last call, with
  // contributions and results only.
  std::optional<Duration> calm;
  // Ranks that must be in the view at the end.
  std::vector<int32_t> must_return;
  std::vector<int32_t> reliable;  // ranks; empty: each member has a vote
  std::vector<collectives::Call> ops;
  std::vector<Hold> holds;
  std::vector<Event> events;  // events of equal times happen in this order
};

// Data shard that `rank` contributes if `call` is the event (LocalCall::data_shard).
int32_t data_shard_of(const Script& script, int32_t rank, const Event& call);

// True for the name of a frame: CONTRIB, RESULT, ..., as in transport/frame.h without
// the k, or a step of a view change.
bool is_frame(std::string_view name);
// The name of the kind of a frame; P2P for a kind without a name here.
std::string_view name_of(const transport::FrameHeader& header);

// kInvalidArgument names the line and its error.
Result<Script> parse(std::string_view text);
std::string to_text(const Script& script);
std::string to_text(Duration d);  // 12ms, 1500us

}  // namespace aikido::sim

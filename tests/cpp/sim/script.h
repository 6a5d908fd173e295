// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// What happens in one run of the simulator, as text that a person can write and a
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

// In the place of a rank: each of them.
inline constexpr int32_t kEvery = -1;
// In the place of a time: never, or for ever.
inline constexpr Duration kForEver = Duration::max();

enum class EventKind : uint8_t {
  kCall,   // `a` calls collective `op`
  kDelay,  // from a to b, from the last byte that leaves to its arrival
  kRate,   // from a to b, bytes per second of each lane; 0: a frame takes no time
  kStall,  // from a to b nothing begins to leave
  kStop,   // the process of a stands still
  kKill,   // the process of a ends; what has left it arrives
  kPass,   // `a` passes over what it lacks, with the state of b, as soon as it can be
  kCut,    // the connection of a and b breaks; b hears of it `duration` later
};

struct Event {
  Duration at{};
  EventKind kind = EventKind::kCall;
  int32_t a = kEvery;
  int32_t b = kEvery;
  std::optional<transport::Lane> lane;  // kDelay
  Duration duration{};                  // kDelay, kStall, kStop, kCut
  uint64_t rate = 0;                    // kRate
  // kCall
  uint64_t op = 0;       // as in Script::ops, the first is 1
  bool waits = false;    // for the end of the call before it
  bool in_place = true;  // the output is the input's memory
  Priority priority = 0;
  // Of a backup that shadows: what it has computed. None: in turn, by operation.
  std::optional<int32_t> data_shard{};
};

// Frames of a kind arrive at `until` or later, and what is behind them on their lane.
struct Hold {
  int32_t from = kEvery;
  int32_t to = kEvery;
  std::string kind;  // a name_of() frames, or * for any
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
  // Nobody is late: each operation ends within this after its last call, by
  // contributions and results alone.
  std::optional<Duration> calm;
  // Ranks that are in the view at the end, wherever they were before.
  std::vector<int32_t> must_return;
  std::vector<collectives::Call> ops;
  std::vector<Hold> holds;
  std::vector<Event> events;  // those of equal times in this order
};

// What `rank` says that it contributes when `call` is the event
// (LocalCall::data_shard).
int32_t data_shard_of(const Script& script, int32_t rank, const Event& call);

// CONTRIB, RESULT, ...: as in transport/frame.h without the k. Empty for one that the
// partial allreduce is designed to have, and that is not there yet: nothing matches it.
// kInvalidArgument for other names.
bool is_frame(std::string_view name);
std::string_view name_of(const transport::FrameHeader& header);

// kInvalidArgument with the line and what is wrong there.
Result<Script> parse(std::string_view text);
std::string to_text(const Script& script);
std::string to_text(Duration d);  // 12ms, 1500us

}  // namespace aikido::sim

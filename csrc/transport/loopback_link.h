// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Links between members of one process, in memory and in the time of a given clock.
// They fulfil the contract of StreamLink without sockets. The network's effects on data
// (delay, rate, stall, break) are scripted per direction, so a run repeats exactly.
// Doctor, benchmarks and tests of all higher layers use these links. One thread.

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "base/buffer_pool.h"
#include "base/clock.h"
#include "base/recycler.h"
#include "transport/link.h"
#include "transport/loop/wakeups.h"
#include "transport/schedule/scheduler.h"

namespace aikido::transport {

class LoopbackLink;
class LoopbackReceiver;
class LoopbackSender;

class LoopbackNetwork {
 public:
  // `clock` must outlive the network, and the network its links. `chunk_bytes`: the
  // longest payload of a frame.
  LoopbackNetwork(const Clock* clock, size_t chunk_bytes)
      : clock_(clock), chunk_bytes_(chunk_bytes) {}
  LoopbackNetwork(const LoopbackNetwork&) = delete;
  LoopbackNetwork& operator=(const LoopbackNetwork&) = delete;

  // Two ends of a connection: the first belongs to `a` and calls its handler. Handlers
  // must outlive their links. Requires: a and b are not connected, or both ends of
  // their former connection are lost.
  std::pair<std::unique_ptr<Link>, std::unique_ptr<Link>> connect(
      Rank a, LinkHandler* handler_a, Rank b, LinkHandler* handler_b);

  // ---- Script, for the direction from one member to another.
  // Time from the departure of the last byte to its arrival. Zero at first.
  void set_delay(Rank from, Rank to, Duration delay) {
    for (const Lane lane : kLanes) set_delay(from, to, lane, delay);
  }
  void set_delay(Rank from, Rank to, Lane lane, Duration delay) {
    path(from, to, lane).delay = delay;
  }
  // Rate of each lane, for chunks that begin from now on. Zero, as at first: a chunk
  // takes no time.
  void set_rate(Rank from, Rank to, uint64_t bytes_per_second) {
    for (const Lane lane : kLanes)
      path(from, to, lane).bytes_per_second = bytes_per_second;
  }
  // Begins no chunk before `until`. Bytes on their way arrive.
  void stall(Rank from, Rank to, TimePoint until);
  // Stops the process of `rank` until then: its links neither send nor receive, and
  // arrived bytes wait.
  void stop(Rank rank, TimePoint until);
  // Breaks the connection of a and b: bytes in transit are lost. a notices it in the
  // next pump(), and b at `heard_by_b` or in the next pump().
  void cut(Rank a, Rank b) { cut(a, b, TimePoint{}); }
  void cut(Rank a, Rank b, TimePoint heard_by_b);
  // Called for each frame that leaves. Returns the time when the frame begins to
  // arrive, at `arrives` or later. Its last byte arrives later by the time that the
  // frame takes to leave. Later frames of its lane do not overtake it. Wakeups::kNever:
  // only the end of the connection frees the lane.
  using Tap = std::function<TimePoint(Rank from, Rank to, const FrameHeader& header,
                                      TimePoint arrives)>;
  void set_tap(Tap tap) { tap_ = std::move(tap); }
  // Called for each message that a member sends.
  using Witness = std::function<void(Rank from, const OutMessage& message)>;
  void set_witness(Witness witness) { witness_ = std::move(witness); }

  // Does all work that is due now, and all that follows without time passing.
  void pump();
  // Time of the next work. Empty: not before a member sends.
  [[nodiscard]] std::optional<TimePoint> next_event() const;
  // Grows with each step done for a member. After a step, a condition that the member
  // waits for may have changed.
  uint64_t num_steps(Rank rank) const {
    const auto r = static_cast<size_t>(rank.value);
    return r < members_.size() ? members_[r].num_steps : 0;
  }

 private:
  friend class LoopbackLink;
  friend class LoopbackReceiver;
  friend class LoopbackSender;
  struct Frame {
    std::array<std::byte, kHeaderBytes + kMaxExtensionBytes> prefix;
    size_t prefix_bytes = 0;
    Buffer payload;
    TimePoint begins_at{};  // at the receiver
    TimePoint ends_at{};
  };
  // One direction of a pair, independent of its connections.
  struct Path {
    Duration delay{};
    uint64_t bytes_per_second = 0;
    TimePoint stalled_until{};
    LoopbackLink* sender = nullptr;  // of the newest connection
  };
  // One direction of a connection, with the data that kernels and wires hold.
  struct Stream {
    explicit Stream(const Recycler& recycler) : frames(recycler) {}
    RecycledDeque<Frame> frames;
    std::optional<TimePoint> closed_at;  // the end of the stream, behind the frames
    bool is_deaf = false;                // no receiver at its end
    LoopbackLink* reader = nullptr;
  };
  struct Endpoint {
    TimePoint stopped_until{};
    uint64_t num_steps = 0;
  };
  static constexpr std::array<Lane, kNumLanes> kLanes = {Lane::kBulk, Lane::kControl};
  Path& path(Rank from, Rank to, Lane lane) {
    return paths_[{from.value, to.value, lane}];
  }
  Endpoint& member(Rank rank) {
    const auto r = static_cast<size_t>(rank.value);
    if (members_.size() <= r) members_.resize(r + 1);
    return members_[r];
  }

  // Bytes for small objects in use, and for payloads.
  static constexpr size_t kMaxIdleBytes = 1 << 20;
  static constexpr size_t kMaxIdlePayload = 64 << 20;

  const Clock* clock_;
  size_t chunk_bytes_;
  Recycler recycler_{kMaxIdleBytes};
  BufferPool payloads_{kMaxIdlePayload};
  std::map<std::tuple<int32_t, int32_t, Lane>, Path> paths_;  // references stay valid
  // One per lane, in the order of connect(); null after the link is gone.
  std::vector<LoopbackLink*> links_;
  Wakeups wakeups_;  // of links_
  std::vector<Endpoint> members_;
  Tap tap_;
  Witness witness_;
};

}  // namespace aikido::transport

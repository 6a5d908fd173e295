// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Links between members of one process, in memory and in the time of a given clock: the
// contract of TcpLink without sockets. What a network does to data (delay, rate, a
// stall, a break) is scripted per direction, so a run repeats exactly. Doctor,
// benchmarks and the tests of everything above stand on it. One thread.

#include <array>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "transport/link.h"
#include "transport/scheduler.h"

namespace aikido::transport {

class LoopbackLink;

class LoopbackNetwork {
 public:
  // `clock` must outlive the network, and the network its links. `chunk_bytes`: the
  // longest payload of a frame.
  LoopbackNetwork(const Clock* clock, size_t chunk_bytes)
      : clock_(clock), chunk_bytes_(chunk_bytes) {}
  LoopbackNetwork(const LoopbackNetwork&) = delete;
  LoopbackNetwork& operator=(const LoopbackNetwork&) = delete;

  // The two ends of a connection: the first belongs to `a`, whose handler it calls.
  // Handlers must outlive their links. Requires: a and b are not connected yet.
  std::pair<std::unique_ptr<Link>, std::unique_ptr<Link>> connect(
      Rank a, LinkHandler* handler_a, Rank b, LinkHandler* handler_b);

  // ---- The script, for the direction from one member to another.
  // From the last byte that leaves to its arrival. At first zero.
  void set_delay(Rank from, Rank to, Duration delay) {
    for (const Lane lane : kLanes) path(from, to, lane).delay = delay;
  }
  // Of each lane. Zero, as at first: a chunk takes no time. For chunks that begin from
  // now on.
  void set_rate(Rank from, Rank to, uint64_t bytes_per_second) {
    for (const Lane lane : kLanes)
      path(from, to, lane).bytes_per_second = bytes_per_second;
  }
  // Begins no chunk before `until`; what is on its way arrives.
  void stall(Rank from, Rank to, TimePoint until) {
    for (const Lane lane : kLanes) path(from, to, lane).stalled_until = until;
  }
  // Breaks the connection of a and b: what is on its way is lost, and both hear of it
  // in the next pump().
  void cut(Rank a, Rank b);

  // Does all that is due now, and what follows from it without time passing.
  void pump();
  // When there is something to do next. Empty: not before somebody sends.
  [[nodiscard]] std::optional<TimePoint> next_event() const;

 private:
  friend class LoopbackLink;
  struct Frame {
    std::vector<std::byte> prefix;  // header and extension
    std::vector<std::byte> payload;
    TimePoint begins_at{};  // at the receiver
    TimePoint ends_at{};
  };
  // One direction, as the kernels and wires between two members hold it.
  struct Path {
    Duration delay{};
    uint64_t bytes_per_second = 0;
    TimePoint stalled_until{};
    std::deque<Frame> frames;
    std::optional<TimePoint> closed_at;  // the end of the stream, behind the frames
    bool is_deaf = false;                // nobody receives at its end
  };
  static constexpr std::array<Lane, kNumLanes> kLanes = {Lane::kBulk, Lane::kControl};
  Path& path(Rank from, Rank to, Lane lane) {
    return paths_[{from.value, to.value, lane}];
  }

  const Clock* clock_;
  size_t chunk_bytes_;
  std::map<std::tuple<int32_t, int32_t, Lane>, Path> paths_;  // references stay valid
  std::vector<LoopbackLink*> links_;  // one per lane, in the order of connect()
};

}  // namespace aikido::transport

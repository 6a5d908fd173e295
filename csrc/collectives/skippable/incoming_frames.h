// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Frames that are being written to the memory of one operation, at most one of each
// sender. A frame belongs to a kind and a shard. Progress thread.
//
// States of a sender:
//   - discarding --write()--> writing
//   - writing --end(), begin()--> discarding
//   - writing --drop() of its kind and shard--> discarding

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "collectives/operation_host.h"

namespace aikido::collectives {

class IncomingFrames {
 public:
  // `host` must outlive this object.
  IncomingFrames(OperationHost* host, Seq seq)
      : host_(host),
        seq_(seq),
        writing_(static_cast<size_t>(host->size()), kDiscarding) {}

  // A frame of `from` begins. Its payload is discarded, unless write() follows.
  void begin(Rank from) { at(from) = kDiscarding; }
  // Its payload is being written to memory of shard `s`.
  void write(Rank from, transport::FrameKind kind, int32_t s) {
    at(from) = code_of(kind, s);
  }
  // The payload is complete. Returns false if it was discarded or dropped.
  bool end(Rank from, transport::FrameKind kind, int32_t s) {
    return std::exchange(at(from), kDiscarding) == code_of(kind, s);
  }
  // Discards the rest of the payload, if it belongs to this kind and shard: the memory
  // is about to get another use.
  void drop(Rank from, transport::FrameKind kind, int32_t s) {
    if (at(from) != code_of(kind, s)) return;
    at(from) = kDiscarding;
    host_->drop_incoming(from, kind, seq_.value);
  }
  // The same for the frames of all senders.
  void drop_all(transport::FrameKind kind, int32_t s) {
    for (int32_t r = 0; r < host_->size(); ++r) drop(Rank(r), kind, s);
  }
  // Received bytes of the frame of this kind and shard; 0 if none is being received.
  // nullopt: the link of `from` is receiving something else.
  std::optional<size_t> num_received(Rank from, transport::FrameKind kind,
                                     int32_t s) const {
    const auto bytes = host_->num_received(from, kind, seq_.value);
    const bool is_of_it = writing_[static_cast<size_t>(from.value)] == code_of(kind, s);
    return is_of_it || bytes == 0 ? bytes : std::nullopt;
  }

 private:
  static constexpr int32_t kDiscarding = -1;
  static constexpr int32_t code_of(transport::FrameKind kind, int32_t s) {
    return 2 * s + (kind == transport::FrameKind::kResult ? 1 : 0);
  }
  int32_t& at(Rank from) { return writing_[static_cast<size_t>(from.value)]; }

  OperationHost* const host_;
  const Seq seq_;
  std::vector<int32_t> writing_;  // by rank: code_of() its frame, or kDiscarding
};

}  // namespace aikido::collectives

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Interface of an operation to the group around it. ViewHost (view_host.h) adds the
// services for operations that can end without a member. Progress thread.

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "base/buffer_pool.h"
#include "base/clock.h"
#include "base/recycler.h"
#include "base/status.h"
#include "base/types.h"
#include "collectives/call.h"
#include "collectives/owner_send_window.h"
#include "collectives/strict/relay_pace.h"
#include "transport/link.h"

namespace aikido::collectives {

struct OperationSettings {
  size_t chunk_bytes = 256 << 10;
  size_t eager_bytes = 256 << 10;
  size_t min_shard_bytes = 16 << 10;
  uint64_t window_bytes = 64 << 20;    // bytes that may wait at a peer without its call
  Duration timeout = Duration::max();  // of calls without a time-out of their own
  std::vector<int32_t> hosts{};        // host of each rank; empty: not known
  size_t lead_bytes = 3 << 19;         // of all members, see direct_reduction.h

  // Smallest shard of this call, in bytes (ShardPlan).
  size_t shard_bytes_of(const Call& call) const {
    constexpr size_t kAll = std::numeric_limits<size_t>::max();
    return call.algorithm == Algorithm::kOneOwner ? kAll : min_shard_bytes;
  }
};

// Observations of a rank by earlier operations, for later operations.
struct Learnt {
  RelayPace relay_pace;         // rate at which it passes on data, see relayed_sends.h
  OwnerSendWindow send_window;  // bytes sent to it ahead of bytes that came back
  TimePoint gave_back_at{};     // last time that bytes came back, in a call with a lead
};

class OperationHost {
 public:
  virtual ~OperationHost() = default;
  virtual Rank self() const = 0;
  virtual int32_t size() const = 0;
  virtual uint32_t epoch() const = 0;
  // Number of the view in which the group sends now (ViewHost::view()).
  virtual uint32_t view_number() const = 0;
  virtual const Clock& clock() const = 0;
  virtual const OperationSettings& settings() const = 0;
  virtual BufferPool& pool() = 0;
  // Allocator of small blocks of an operation, and of the operation itself.
  virtual const Recycler& recycler() const = 0;
  virtual transport::MessageId send(Rank to, transport::OutMessage&& message) = 0;
  // As Link::send_at_once, for messages that belong to no collective.
  virtual bool send_at_once(Rank, const transport::OutMessage&) { return false; }
  virtual size_t cancel(Rank to, transport::MessageId id) = 0;
  // True if `to` reads large payloads in place, in memory that we share. A payload for
  // several such members is copied once for all of them (transport/shm/shm_leases.h).
  virtual bool reads_our_memory(Rank to) = 0;
  virtual Learnt& learnt(Rank rank) = 0;
  // Received bytes of a payload of this kind and number (of the message or collective)
  // that is being received; 0 if none is, nullopt if another payload is being received.
  virtual std::optional<size_t> num_received(Rank from, transport::FrameKind kind,
                                             uint64_t number) const = 0;
  // The beginning payload, if it lies in shared memory already and may stay there for a
  // while; otherwise empty. Only within place(), which then returns its data().
  virtual Buffer keep_incoming(Rank) { return {}; }
  // Discards the rest of the payload: its memory is no longer touched.
  virtual void drop_incoming(Rank from, transport::FrameKind kind, uint64_t number) = 0;
  // The last collective that `rank` is known to have called.
  virtual uint64_t called_by(Rank rank) const = 0;
  // Ends the operation on all members, for an error found outside of a frame or call.
  virtual void fail_everywhere(Seq seq, const Status& why) = 0;
  // The operation ended, but not inside of a frame, a call or on_time().
  virtual void on_over(Seq seq) = 0;
};

}  // namespace aikido::collectives

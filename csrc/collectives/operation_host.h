// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// What an operation may use of the group around it. Progress thread.

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
#include "collectives/lead_window.h"
#include "collectives/relay_pace.h"
#include "membership/view.h"
#include "straggler/group_policy.h"
#include "transport/link.h"

namespace aikido::collectives {

struct OperationSettings {
  size_t chunk_bytes = 256 << 10;
  size_t eager_bytes = 256 << 10;
  size_t min_shard_bytes = 16 << 10;
  uint64_t window_bytes = 64 << 20;    // what may wait at a peer that has not called
  Duration timeout = Duration::max();  // of calls that say nothing else
  std::vector<int32_t> hosts{};        // of each rank; empty: not known
  size_t lead_bytes = 3 << 19;         // of all members, see direct_reduction.h

  // What a shard of this call has at least (ShardPlan).
  size_t shard_bytes_of(const Call& call) const {
    constexpr size_t kAll = std::numeric_limits<size_t>::max();
    return call.algorithm == Algorithm::kOneOwner ? kAll : min_shard_bytes;
  }
};

// What operations have learnt of a rank, for those that follow.
struct Learnt {
  RelayPace relay_pace;      // how fast it passes on what it gets, see relay_feed.h
  LeadWindow lead_window;    // how far what we give to it is ahead of what comes back
  TimePoint gave_back_at{};  // when something came back from it, in a call with a lead
};

class OperationHost {
 public:
  virtual ~OperationHost() = default;
  virtual Rank self() const = 0;
  virtual int32_t size() const = 0;
  virtual uint32_t epoch() const = 0;
  virtual const Clock& clock() const = 0;
  virtual const OperationSettings& settings() const = 0;
  virtual BufferPool& pool() = 0;
  // For what an operation has of small things, and for itself.
  virtual const Recycler& recycler() const = 0;
  // The policy and history of all operations with these options.
  virtual straggler::GroupPolicy& policy(const straggler::PolicyOptions& options) = 0;
  virtual transport::MessageId send(Rank to, transport::OutMessage&& message) = 0;
  // As Link::send_at_once, of what belongs to no collective.
  virtual bool send_at_once(Rank, const transport::OutMessage&) { return false; }
  virtual size_t cancel(Rank to, transport::MessageId id) = 0;
  // The same for a message whose rest goes again from other memory.
  virtual size_t recall(Rank to, transport::MessageId id) = 0;
  // It reads large payloads where they lie, in memory that we share: what several such
  // members get is copied once for all of them (transport/loans.h).
  virtual bool reads_our_memory(Rank to) = 0;
  virtual Learnt& learnt(Rank rank) = 0;
  // The bytes that are here of a payload of this kind and number (of the message or
  // collective) that is being received; 0 if none is, nothing if it is another one.
  virtual std::optional<size_t> num_received(Rank from, transport::FrameKind kind,
                                             uint64_t number) const = 0;
  // The payload that begins to come, where it lies already and may be left for a while;
  // else empty. Only within place(), which then returns its data().
  virtual Buffer keep_incoming(Rank) { return {}; }
  // The rest of it is thrown away: its memory is no longer touched.
  virtual void drop_incoming(Rank from, transport::FrameKind kind, uint64_t number) = 0;
  // Who takes part in operations that may skip, and who owns what. Stays where it is.
  virtual const membership::View& view() const = 0;
  // The view is about to change: no result is accepted and no contribution sent.
  virtual bool is_promised() const = 0;
  // Nothing comes from `rank` any more: it has left, or is lost.
  virtual bool has_gone(Rank rank) const = 0;
  // `rank` holds up the others with its part of an operation. False: nothing is done,
  // since half of the members would own nothing.
  virtual bool suspect(Rank rank) = 0;
  // Those that own nothing since they were late for once own shards again, for `late`,
  // of which nobody can tell whether it is what is slow.
  virtual void restore_owners(Rank late) = 0;
  // The highest collective that `rank` is known to have called.
  virtual uint64_t called_by(Rank rank) const = 0;
  // `rank` needs no result up to this operation, as far as known: it has them, or its
  // calls have failed, or it does without.
  virtual uint64_t settled_by(Rank rank) const = 0;
  // What a member has found wrong outside of a frame or call ends it for all of them.
  virtual void fail_everywhere(Seq seq, const Status& why) = 0;
  // A shard is closed here: of what `rank` contributes to it so much was here.
  virtual void note_share(Rank rank, size_t here, size_t total) = 0;
  // So many bytes go out as the contribution of a backup.
  virtual void note_given(size_t bytes) = 0;
  // The result of a shard has come, with the contribution of a backup.
  virtual void note_stand_in(const straggler::StandIn& stand_in) = 0;
  // The operation came to its end outside of a frame, call or look at the time.
  virtual void on_over(Seq seq) = 0;
};

}  // namespace aikido::collectives

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Contributions of this member to the shards of other owners: when they are sent, their
// messages on their way, and their end. Progress thread.
//
// Note [hesitation of a member without shards]
// A member that owns nothing was late again and again, and its results leave last. If
// operations follow each other without a pause, it calls just when the others close
// without it. Bytes that it gives to a socket before it learns of the close then use
// the downlinks on which the others send each other results. Rule: it waits a moment
// before it contributes to a large operation, a small part of the time of such
// operations, and sends small frames.
//   If there are full sums only, such a member is the last, and each owner must send
// its bytes on to all others. So its contributions are paced to end together: a socket
// that is alone at the end would bring more bytes than its owner can send on.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "base/clock.h"
#include "collectives/skippable/paced_sends.h"
#include "collectives/skippable/partial_shards.h"
#include "collectives/skippable/skippable_part.h"
#include "straggler/history.h"

namespace aikido::collectives {

class Contributions final : public SkippablePart {
 public:
  // The history and the shards must outlive this object.
  Contributions(SkippableOperation& operation, const straggler::History& history,
                PartialShards& shards)
      : SkippablePart(operation), history_(history), shards_(shards) {}

  // True if this member takes part and has its input, and no new view is promised.
  bool may_contribute() const;
  // The input cannot be contributed any more, or never will be.
  void lose_input() { has_input_ = false; }
  bool has_input() const { return has_input_; }

  // The local member has called now. See Note [hesitation of a member without shards].
  void hesitate();
  // End of the hesitation. nullopt: this member does not hesitate.
  std::optional<TimePoint> hesitates_until() const { return hesitates_until_; }
  // Returns true if the hesitation has ended only now.
  bool end_hesitation(TimePoint now);

  // Sends the contribution to shard `s`, if that is not done yet and the member does
  // not hesitate. Requires: may_contribute().
  void give(int32_t s);
  // Posts the bytes [begin, end) of the contribution to shard `s`.
  void post_bytes(int32_t s, size_t begin, size_t end, uint32_t token,
                  std::span<const std::byte> extra);
  // Posts the paced pieces whose turn has come.
  void send_paced();
  // The contribution to shard `s` is not needed any more.
  void withdraw(int32_t s);
  // All shards begin anew, so nothing is paced any more.
  void end_pacing() { paced_sends_.reset(); }
  // The message with this token has left. Returns true if no contribution is on its way
  // any more.
  bool on_left(uint32_t token);
  bool are_on_their_way() const { return in_flight_ > 0; }

  // Largest frame of a contribution, in bytes.
  size_t frame_bytes() const;
  // Bytes of withdrawn contributions that were not sent.
  uint64_t cancelled_bytes() const { return cancelled_bytes_; }

 private:
  const straggler::History& history_;
  PartialShards& shards_;
  bool has_input_ = true;
  std::optional<TimePoint> hesitates_until_;
  size_t in_flight_ = 0;                   // messages
  std::optional<PacedSends> paced_sends_;  // empty while nothing is paced
  uint64_t cancelled_bytes_ = 0;
};

}  // namespace aikido::collectives

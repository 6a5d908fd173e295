// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Results of a skippable allreduce that this member sends, as an owner or as a holder:
// their memory, the pieces on their way, and the members that get them last. Progress
// thread.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/rank_set.h"
#include "collectives/skippable/partial_shards.h"
#include "collectives/skippable/skippable_part.h"
#include "straggler/history.h"

namespace aikido::collectives {

class ResultSends final : public SkippablePart {
 public:
  // The history and the shards must outlive this object.
  ResultSends(SkippableOperation& operation, const straggler::History& history,
              PartialShards& shards)
      : SkippablePart(operation), history_(history), shards_(shards) {}

  // Memory of the result of the whole bucket. Results are folded, received and sent
  // here, not in the caller's memory, which belongs to the caller again once the
  // operation is over.
  std::byte* memory();
  // The same memory for an owner beside this object. Null if memory() was not called.
  const std::shared_ptr<std::byte>& shared_memory() const { return memory_; }

  // Sends a piece of the result of shard `s`. `is_late`: to members that get it last.
  void send(int32_t s, size_t begin, size_t end, const RankSet& to, bool is_late);
  // Members among `members` that get the result of this shard last.
  RankSet last_to_get(const RankSet& members, const PartialShard& shard) const;
  // Sends the result of shard `s` to the members that get it last, if it is their turn.
  void send_to_late(int32_t s);
  // `rank` has called now, so it waits for the results that were to leave last.
  void send_to_caller(Rank rank);
  // Cancels the pieces of shard `s`.
  void cancel(int32_t s);
  // Cancels the pieces to `rank`.
  void cancel_to(Rank rank);
  // A piece of shard `s` to `to` has left. Returns false if it changes nothing.
  bool on_left(int32_t s, Rank to);
  // True if the bytes have left for half of the other members, so that one slow
  // receiver does not hold up the owner. A backup that has not called gets the result
  // last and does not count.
  bool has_left(const PartialShard& shard) const;

  // As Operation::num_receivers() and edition(), for the piece that is being posted.
  size_t num_receivers() const { return num_receivers_; }
  uint32_t edition() const { return edition_; }

 private:
  // A piece of a result that is being sent, in this view.
  struct Sending {
    int32_t shard;
    Rank to;
    transport::MessageId id;
  };
  bool is_behind(Rank rank) const;
  bool must_be_in_soon(Rank rank) const;

  const straggler::History& history_;
  PartialShards& shards_;
  std::shared_ptr<std::byte> memory_;
  std::vector<Sending> sending_;
  // No two results share bytes, because the result of a shard may change between them.
  size_t num_receivers_ = 1;
  uint32_t edition_ = 0;
};

}  // namespace aikido::collectives

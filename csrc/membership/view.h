// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// View of a group: the members that take part in its skippable operations, and the
// owners of shards. All groups begin with view 1, which has all members. Each view
// follows from the view before by a view change (view_change.h). A reconfigured group
// is a new group and begins with view 1 again. Plain values, usable on any thread.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/rank_set.h"
#include "base/status.h"
#include "base/types.h"
#include "base/wire.h"

namespace aikido::membership {

// Upper limit of operation numbers, so that numbers from the wire cannot overflow.
inline constexpr uint64_t kMaxSeq = uint64_t{1} << 62;

// Division of a shard whose owner was lost or moved: part p belongs to owners[p]. A
// shard is divided if it is large enough and no member has received its whole result.
// The new owners then receive and send at once, while a single owner would do so one
// after the other.
struct Division {
  static constexpr int32_t kMaxParts = 8;
  int32_t shard = 0;
  std::vector<Rank> owners;
  friend bool operator==(const Division&, const Division&) = default;
};

// Cut of the operations from `first` up to the first operation of the next cut: into at
// most owners.size() shards, shard s for owners[s]. A rank may own several shards.
struct Cut {
  Seq first{1};
  std::vector<Rank> owners;
  // Members that were excluded when operation `first` was new. The set stays the same
  // in later views, in which one of these operations may be computed again.
  RankSet out{};
  // In the order in which the shards were lost, each once. The parts are numbered after
  // the shards, in this order, so that a number never changes.
  std::vector<Division> divisions{};

  // Number of shards and parts.
  int32_t num_numbers() const;
  Rank owner(int32_t number) const;
  // Shard of a number: the shard itself, or the shard that the part belongs to.
  int32_t shard_of(int32_t number) const;
  // Number of the first part of a division.
  int32_t first_part(size_t division) const;
  bool is_divided(int32_t shard) const;
  friend bool operator==(const Cut&, const Cut&) = default;
};

// Shard whose result exists, but not on all members: its holder is the owner. A member
// that has reported to have closed the same result is not lacking: it takes back the
// result that it had to give up.
struct Held {
  Seq seq;
  int32_t shard = 0;  // number of the shard or part
  Rank holder;
  RankSet lacking;  // members that have not received the result
  friend bool operator==(const Held&, const Held&) = default;
};

// Membership of one member. A member that was excluded and rejoins gets a new seat.
struct Seat {
  uint32_t since = 1;  // first view; frames from earlier views are of a former seat
  Seq first{1};        // first operation that the member takes part in
  friend bool operator==(const Seat&, const Seat&) = default;
};

// Set of members that a view change has agreed on for callers of ViewChange::agree().
// All members that learn of an agreement see the same set for its number.
struct Agreement {
  uint32_t number = 0;  // counted from 1; 0: none yet
  RankSet ranks;
  friend bool operator==(const Agreement&, const Agreement&) = default;
};

struct View {
  uint32_t number = 1;
  RankSet members;
  // Reliable ranks of the group, members or not. They are the same in all views. Empty:
  // the group has no reliable rank.
  RankSet reliable;
  Agreement agreed;         // the newest
  std::vector<Seat> seats;  // by rank; of members only
  std::vector<Cut> cuts;    // ascending; never empty
  std::vector<Held> held;   // ascending by (seq, shard)

  // View 1 of a group of this size without reliable ranks.
  static View first_of(int32_t size);

  bool has(Rank rank) const { return members.contains(rank); }
  // True if `rank` is a voter: a reliable member. If the group has no reliable rank,
  // each member is a voter.
  bool votes(Rank rank) const;
  // True if the contribution of `rank` to `seq` is waited for.
  bool takes_part(Rank rank, Seq seq) const {
    return has(rank) && seats[static_cast<size_t>(rank.value)].first <= seq;
  }
  RankSet participants(Seq seq) const;
  const Cut& cut_of(Seq seq) const;
  // Entry of a held shard; null if there is none.
  const Held* held_at(Seq seq, int32_t shard) const;
  // True if `rank` owns shards of future operations.
  bool is_owner(Rank rank) const;

  friend bool operator==(const View&, const View&) = default;
};

// Rules R7 and R25: more than half of the voters of `view` are among `ranks`. Members
// without a vote do not count.
bool is_majority(const View& view, const RankSet& ranks);
// The reason why `left` is no majority: "only 1 of the 3 reliable members is left, not
// more than half".
std::string no_majority_text(const View& view, const RankSet& left);

// Wire form: one bit for each rank, in whole words of 64 bits.
void append(std::vector<std::byte>& out, const RankSet& set);
RankSet take_set(WireReader& reader, int32_t size);

// Wire form: numbers in little endian; see PROTOCOL.md.
void append(std::vector<std::byte>& out, const View& view);
// Reads a view from the front of `bytes` and removes it. kProtocol if the bytes are no
// view of a group of `size`.
Result<View> read_view(std::span<const std::byte>& bytes, int32_t size);

}  // namespace aikido::membership

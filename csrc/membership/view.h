// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// A view: which members of a group take part in its skippable operations, and who owns
// which shard. All members of a group begin in view 1, with everybody in it; each view
// follows from the one before by a change (view_change.h). A group that is reconfigured
// is a new one and begins with view 1 again. Plain values: any thread.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/rank_set.h"
#include "base/status.h"
#include "base/types.h"
#include "base/wire.h"

namespace aikido::membership {

// No operation has a higher number: what comes over the wire can be counted on.
inline constexpr uint64_t kMaxSeq = uint64_t{1} << 62;

// A shard whose owner was lost or moved, part p for owners[p]. So is it made where it
// is large enough and nobody has had it whole: its new owners get and send at once what
// a single one would after another.
struct Division {
  static constexpr int32_t kMaxParts = 8;
  int32_t shard = 0;
  std::vector<Rank> owners;
  friend bool operator==(const Division&, const Division&) = default;
};

// How the operations from `first` on, up to the first of the next cut, are cut: into at
// most owners.size() shards, shard s for owners[s]. A rank may own several.
struct Cut {
  Seq first{1};
  std::vector<Rank> owners;
  // Members that were out when the first of them was new. It stays so in later views,
  // where one of these operations may be made again.
  RankSet out{};
  // In the order in which the shards were lost, each once. Parts have the numbers after
  // those of the shards, in this order: a number stays what it is.
  std::vector<Division> divisions{};

  // Of shards and parts.
  int32_t num_numbers() const;
  Rank owner(int32_t number) const;
  // The shard that a number is, or is a part of.
  int32_t shard_of(int32_t number) const;
  // The number of the first part of a division.
  int32_t first_part(size_t division) const;
  bool is_divided(int32_t shard) const;
  friend bool operator==(const Cut&, const Cut&) = default;
};

// A shard whose result is there already, but not everywhere: its holder is the owner.
// Who has reported to have closed the same is not lacking: what it had to give up it
// has now.
struct Held {
  Seq seq;
  int32_t shard = 0;  // its number, or that of a part
  Rank holder;
  RankSet lacking;  // who is to get it
  friend bool operator==(const Held&, const Held&) = default;
};

// Of a member: when it came. A member that was out and is back is somebody new.
struct Seat {
  uint32_t since = 1;  // the view: what it sent in an earlier one is of its former life
  Seq first{1};        // the first operation that it takes part in
  friend bool operator==(const Seat&, const Seat&) = default;
};

struct View {
  uint32_t number = 1;
  RankSet members;
  std::vector<Seat> seats;  // by rank; of members only
  std::vector<Cut> cuts;    // ascending; never empty
  std::vector<Held> held;   // ascending by (seq, shard)

  // View 1 of a group.
  static View first_of(int32_t size);

  bool has(Rank rank) const { return members.contains(rank); }
  // Is `rank` one of those whose contribution to `seq` is waited for?
  bool takes_part(Rank rank, Seq seq) const {
    return has(rank) && seats[static_cast<size_t>(rank.value)].first <= seq;
  }
  RankSet participants(Seq seq) const;
  const Cut& cut_of(Seq seq) const;
  // The entry of a shard that is held, null if there is none.
  const Held* held_at(Seq seq, int32_t shard) const;
  // Owns shards of operations to come.
  bool is_owner(Rank rank) const;

  friend bool operator==(const View&, const View&) = default;
};

// The wire form: a bit for each rank, in whole words of 64.
void append(std::vector<std::byte>& out, const RankSet& set);
RankSet take_set(WireReader& reader, int32_t size);

// The wire form: numbers little endian; see PROTOCOL.md.
void append(std::vector<std::byte>& out, const View& view);
// Reads one from the front of `bytes` and takes it off. kProtocol when these are no
// view of a group of `size`.
Result<View> read_view(std::span<const std::byte>& bytes, int32_t size);

}  // namespace aikido::membership

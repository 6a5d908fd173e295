// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Shards of one skippable allreduce as one member knows them: their positions, their
// owners, their results, and the members that take part. Pure; progress thread.

#include <cstddef>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/rank_set.h"
#include "base/types.h"
#include "collectives/call.h"
#include "collectives/skippable/owned_shard.h"
#include "collectives/skippable/result_header.h"
#include "collectives/skippable/shard_table.h"
#include "membership/view.h"
#include "straggler/data_shard.h"
#include "straggler/decision.h"
#include "transport/link.h"

namespace aikido::collectives {

// How the owner closed a shard, beside the mask.
struct ShardClose {
  straggler::Reason reason = straggler::Reason::kComplete;
  Duration deadline{};
  std::optional<double> weight{};  // sum of the contributors', in a weighted call
};

// One shard, or a part of one, on any member.
struct PartialShard {
  bool is_live = false;  // false: its parts are used instead, or its whole shard
  Rank owner;
  RankSet mask;      // known with the first byte of the result, or the close
  ShardClose close;  // known with the mask
  size_t bytes = 0;  // received bytes of the result
  bool is_received = false;
  bool is_charged = false;  // to members that have not called the operation
  std::vector<straggler::StandIn> stand_ins;       // known with the mask
  std::vector<Rank> out;                           // known with the mask
  bool is_offered = false;                         // by this backup, in this view
  bool is_acknowledged = false;                    // by this member
  std::vector<transport::MessageId> contribution;  // own, while it is being sent
  uint32_t contributed_in = 0;           // last view in which it was sent correctly
  std::unique_ptr<OwnedShard> own;       // while this member may close the shard
  std::optional<ResultHeader> given_up;  // header of our close, given up by a promise
  size_t results_in_flight = 0;          // to members that were in time
  std::vector<uint32_t> pieces_left;     // of these results, by rank
  RankSet late;                          // members that still get the result from us
  TimePoint late_due{};                  // latest time to send it

  ResultHeader header() const {
    return {mask, close.reason, close.deadline, stand_ins, out, close.weight};
  }
  void take(ResultHeader header);
  // The mask is unknown again.
  void open_again() {
    mask = RankSet();
    stand_ins.clear();
    out.clear();
  }
};

class PartialShards {
 public:
  // `call` must outlive this object. There are no shards before cut().
  PartialShards(Rank self, int32_t size, Seq seq, const Call& call);

  // --- Positions.

  const ShardTable& plan() const { return plan_; }
  // All shards and parts, by index, live or not.
  std::vector<PartialShard>& all() { return shards_; }
  const std::vector<PartialShard>& all() const { return shards_; }
  PartialShard& at(int32_t s) { return shards_[static_cast<size_t>(s)]; }
  const PartialShard& at(int32_t s) const { return shards_[static_cast<size_t>(s)]; }
  // Indices of the live shards and parts, ascending.
  const std::vector<int32_t>& live() const { return live_; }
  bool is_live(uint32_t s) const { return s < shards_.size() && shards_[s].is_live; }
  // The i-th live shard in the order of this member. Each member begins with another
  // owner, so that no owner is the first of all members.
  int32_t in_turn(size_t i) const {
    return live_[(static_cast<size_t>(self_.value) + 1 + i) % live_.size()];
  }
  // Size of the pieces that are folded and sent: whole elements, at most `chunk_bytes`.
  size_t piece_bytes(const membership::View& view, size_t chunk_bytes) const;
  // Shards without a result here.
  int32_t num_left() const { return num_left_; }
  // The result of shard s has arrived here, or was closed here for good.
  void note_received(int32_t s) {
    at(s).is_received = true;
    --num_left_;
  }
  // No live shard has a result here any more.
  void forget_results();
  // The only live shard whose result is missing and belongs to another member. nullopt:
  // there are several or none.
  std::optional<int32_t> only_missing() const;
  bool has_one_owner() const;
  // Hash of the mask and stand-ins of a shard, and of the number of shards. Equal masks
  // of different cuts are different results.
  uint64_t fingerprint(int32_t s) const;
  // Numbers of the shards that were divided; ascending.
  std::vector<int32_t> divided() const;
  // Live shards with their results, ascending by position. An empty shard comes before
  // the shard that begins at the same element.
  std::vector<OwnedResultHeader> results() const;

  // --- Members.

  int32_t num_data_shards() const { return num_data_shards_; }
  // False for all members without backups.
  bool is_backup(Rank rank) const { return rank.value >= num_data_shards_; }
  const RankSet& participants() const { return participants_; }
  void set_participants(const membership::View& view);
  // Data shards of a full result.
  const RankSet& wanted() const {
    return call_.policy.has_stand_ins() ? wanted_ : participants_;
  }
  // The mask is that of a full result, without stand-ins.
  bool is_full(const PartialShard& shard) const {
    return shard.mask.covers(wanted()) && shard.stand_ins.empty();
  }
  // True if the result contains this member's own contribution, and not that of a
  // stand-in. Backups are never late. Requires: the mask is known.
  bool is_in_time(const PartialShard& shard, Rank rank) const;
  // Some shard is not full, in this view.
  bool is_partial() const { return is_partial_; }
  // A shard is not full. Returns true if that was known before.
  bool note_partial() { return std::exchange(is_partial_, true); }
  // True if the member's own contribution was too late for some shard, with or without
  // a stand-in.
  bool is_late(Rank rank) const;
  // Members that are missing in another shard of this operation, or have lost a shard.
  // They were waited for once already.
  RankSet late_elsewhere() const;

  // --- Views. Shards hold at least `least` bytes.

  ShardTable plan_in(const membership::View& view, size_t least) const;
  Rank owner_in(const membership::View& view, int32_t s) const;
  // Starts again with the cut of the view: no shard has a result. divide() follows.
  void cut(const membership::View& view, size_t least);
  // The plan of a later view, which extends this plan. divide() follows.
  void extend(ShardTable plan) { plan_ = std::move(plan); }
  // Replaces shards by their parts, as the plan says. `stays(s)`: the shard is not
  // replaced after all. `let_go(s)` is called for each other shard, before it is
  // replaced.
  template <class Stays, class LetGo>
  void divide(const membership::View& view, Stays&& stays, LetGo&& let_go) {
    shards_.resize(static_cast<size_t>(plan_.size()));
    for (const ShardTable::DividedShard& parts : plan_.divided()) {
      if (stays(parts.shard)) continue;
      let_go(parts.shard);
      replace(view, parts);
    }
    list_live();
  }
  // The view has changed, and the shards are those of the new view. `is_anew`: the
  // operation is new in it.
  void on_view(bool is_anew);
  // Views since the beginning, except those in which the operation was new.
  int num_views() const { return num_views_; }
  // The owner lost a shard because it was too slow.
  void note_moved(Rank owner) { moved_.insert(owner); }

 private:
  void begin(const membership::View& view, int32_t s);
  void replace(const membership::View& view, const ShardTable::DividedShard& parts);
  void list_live();

  const Rank self_;
  const int32_t size_;
  const Seq seq_;
  const Call& call_;
  const int32_t num_data_shards_;
  ShardTable plan_;
  std::vector<PartialShard> shards_;  // by index
  std::vector<int32_t> live_;         // by index, ascending
  int32_t num_left_ = 0;
  RankSet participants_;
  RankSet wanted_;  // with backups: data shards
  bool is_partial_ = false;
  int num_views_ = 0;
  RankSet moved_;  // owners that were too slow and lost a shard
};

// True if a frame that `from` has sent in view `sent_in` is from an excluded member, or
// from before the member rejoined.
inline bool is_stale(const PartialShards& shards, const membership::View& view,
                     Rank from, uint32_t sent_in) {
  return !shards.participants().contains(from) ||
         sent_in < view.seats[static_cast<size_t>(from.value)].since;
}

}  // namespace aikido::collectives

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Shard on its owner: the received contributions, folded ahead as far as all members'
// bytes have arrived. Progress thread.

#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/buffer_pool.h"
#include "base/rank_set.h"
#include "collectives/weights.h"
#include "kernels/reduce.h"
#include "straggler/group_policy.h"

namespace aikido::collectives {

// Input of a fold: the data shards of `mask`, each from the member with its number or
// from the backup that stands in for it.
struct Counted {
  const RankSet& mask;
  std::span<const straggler::StandIn> stand_ins{};
  // Weight of the own contribution, in a weighted call; otherwise null.
  const double* own_weight = nullptr;
};

class OwnedShard {
 public:
  // A shard of `bytes` bytes; `self` owns it.
  OwnedShard(Rank self, int32_t size, size_t bytes)
      : self_(self),
        bytes_(bytes),
        sources_(static_cast<size_t>(size)),
        present(size) {}

  // Memory for the next bytes of `from`; null if `offset` is not the next position. A
  // contribution may begin again.
  std::byte* place(Rank from, uint64_t offset, BufferPool& pool) {
    return place(from, offset, pool, [] { return Buffer(); });
  }
  // The same. `keep()` returns memory that holds these bytes already and may be kept,
  // or an empty Buffer. It is called only if `offset` is the next position.
  template <class Keep>
  std::byte* place(Rank from, uint64_t offset, BufferPool& pool, Keep&& keep) {
    if (!is_next(from, offset)) return nullptr;
    StagedInput& s = source(from);
    if (Buffer block = keep())
      return s.kept.emplace_back(offset, std::move(block)).data();
    return stage(s, pool) + offset;
  }
  // These bytes have arrived. Returns true if they complete the contribution.
  bool arrived(Rank from, size_t bytes);
  // Drops the contribution of `from`, which begins again or is not used any more.
  void forget(Rank from) {
    source(from) = {};
    mean_.reset();
  }
  bool has(Rank from) const { return source(from).is_whole; }
  size_t bytes_here(Rank from) const { return source(from).bytes; }
  // Number of bytes, from the first, that have arrived from all `members`. The own
  // bytes count as arrived if `own` is set.
  size_t ready(const RankSet& members, const std::byte* own) const;
  // Tells the policy the progress of each contribution, if that is due.
  // `received(from)`: bytes of the frame that is arriving; nullopt if a frame of
  // another message arrives.
  template <class Received>
  void tell_progress(TimePoint now, Received&& received) {
    const auto due = policy->progress_due();
    if (!due || now < *due) return;
    policy->on_progress(progress(received), bytes_, now);
  }
  // Tells the policy of the close; `received` as in tell_progress().
  template <class Received>
  void tell_close(TimePoint now, Received&& received) {
    policy->on_close(progress(received), bytes_, now);
  }
  // Time of the next tell_progress() or question to the policy.
  [[nodiscard]] std::optional<TimePoint> next_look() const {
    const auto look = policy->next_look(), due = policy->progress_due();
    return look && due ? std::min(look, due) : look ? look : due;
  }
  // Weight of the contribution of `from`, in a weighted call. Requires: place() has
  // returned memory for its first bytes.
  void set_weight(Rank from, double weight) {
    source(from).weight = weight;
    mean_.reset();
  }
  // Sum of the weights of `counted`; empty if the call is not weighted. Requires: the
  // first bytes of these contributions have arrived.
  std::optional<double> total_weight(const Counted& counted);
  // Folds [begin, end) of `counted`, in the order of the data shards. Requires: these
  // bytes have arrived. In a weighted call `reduce` is that of kAvg, and `scale` has no
  // effect.
  void fold(std::byte* out, kernels::ReduceFn reduce, const Counted& counted,
            const std::byte* own, size_t begin, size_t end, DType dtype, double scale);

  // Bytes of a complete contribution. Requires: none of them were kept.
  const std::byte* bytes_of(Rank from) const { return source(from).staged.data(); }

  std::unique_ptr<straggler::Policy> policy;
  straggler::ActiveBackup* backups = nullptr;  // the same policy, with backups only

 private:
  struct Kept {
    Kept(size_t offset, Buffer block) : begin(offset), bytes(std::move(block)) {}
    std::byte* data() const { return bytes.data(); }
    size_t begin;  // in the contribution
    Buffer bytes;
  };
  struct StagedInput {
    // The bytes [begin, end), up to the first that is not contiguous with them.
    std::span<const std::byte> from(size_t begin, size_t end) const;

    Buffer staged;           // of the size of a contribution; all that is not in `kept`
    std::vector<Kept> kept;  // in ascending order
    size_t bytes = 0;
    double weight = 1.0;
    bool is_begun = false;
    bool is_whole = false;
    bool is_twice = false;  // with a mutation only
  };
  template <class Received>
  straggler::Policy::Progress progress(Received& received) const {
    straggler::Policy::Progress here;
    for (size_t r = 0; r < sources_.size(); ++r) {
      here.push_back(received(Rank(static_cast<int32_t>(r))));
      if (here.back()) *here.back() += sources_[r].bytes;
    }
    return here;
  }
  // Weighted mean of the contributions in `mask`.
  struct MeanOfMask {
    RankSet mask;
    WeightedMean mean;
  };
  const WeightedMean* mean_of(const Counted& counted);
  bool is_next(Rank from, uint64_t offset);
  std::byte* stage(StagedInput& source, BufferPool& pool);
  StagedInput& source(Rank rank) { return sources_[static_cast<size_t>(rank.value)]; }
  const StagedInput& source(Rank rank) const {
    return sources_[static_cast<size_t>(rank.value)];
  }

  Rank self_;
  size_t bytes_;
  std::vector<StagedInput> sources_;  // by rank
  // That of the last fold. Null: there was none since a weight has changed.
  std::unique_ptr<MeanOfMask> mean_;

 public:
  size_t folded = 0;  // bytes folded ahead, of all members
  size_t sent = 0;    // bytes of the result sent ahead of the close
  bool is_closed = false;
  bool is_acknowledged = false;
  bool is_due = false;                        // waits only for members' answers
  bool has_asked = false;                     // which members know the operation
  RankSet present;                            // members that have answered so
  std::vector<straggler::StandIn> stand_ins;  // of the closed shard
};

}  // namespace aikido::collectives

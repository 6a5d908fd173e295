// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// A shard in the hands of its owner: what has come of it, folded ahead as far as
// everybody's bytes reach. Progress thread.

#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/buffer_pool.h"
#include "base/rank_set.h"
#include "kernels/reduce.h"
#include "straggler/group_policy.h"

namespace aikido::collectives {

// What is folded: the data shards of `mask`, each from the member of its number or from
// the backup that stands in for it.
struct Counted {
  const RankSet& mask;
  std::span<const straggler::StandIn> stand_ins{};
};

class OwnedShard {
 public:
  // Of `bytes` bytes; `self` owns it.
  OwnedShard(Rank self, int32_t size, size_t bytes)
      : self_(self),
        bytes_(bytes),
        sources_(static_cast<size_t>(size)),
        present(size) {}

  // Where the next bytes of `from` go; null when `offset` is not the next one. A
  // contribution may begin again.
  std::byte* place(Rank from, uint64_t offset, BufferPool& pool);
  // They are here. Returns whether the contribution is whole now, for the first time.
  bool arrived(Rank from, size_t bytes);
  // Its contribution begins again, or is not wanted any more.
  void forget(Rank from) { source(from) = {}; }
  bool has(Rank from) const { return source(from).is_whole; }
  size_t bytes_here(Rank from) const { return source(from).bytes; }
  // How many bytes of all of `members` are here; ours are if `own` is not null.
  size_t ready(const RankSet& members, const std::byte* own) const;
  // Tells the policy how much of each contribution is here, if that is due;
  // `received(from)`: bytes of a frame of it that is coming in, nothing if another one
  // comes instead.
  template <class Received>
  void tell_progress(TimePoint now, Received&& received) {
    const auto due = policy->progress_due();
    if (!due || now < *due) return;
    policy->on_progress(progress(received), bytes_, now);
  }
  // Tells the policy of the close; `received` as above.
  template <class Received>
  void tell_close(TimePoint now, Received&& received) {
    policy->on_close(progress(received), bytes_, now);
  }
  // When that is due, or the policy is to be asked.
  [[nodiscard]] std::optional<TimePoint> next_look() const {
    const auto look = policy->next_look(), due = policy->progress_due();
    return look && due ? std::min(look, due) : look ? look : due;
  }
  // Folds [begin, end) of what is counted, in the order of the data shards. Requires:
  // it is here. `element`: bytes of one.
  void fold(std::byte* out, kernels::ReduceFn reduce, const Counted& counted,
            const std::byte* own, size_t begin, size_t end, size_t element,
            double scale) const;

  // The bytes of a whole contribution.
  const std::byte* bytes_of(Rank from) const { return source(from).staged.data(); }

  std::unique_ptr<straggler::Policy> policy;
  straggler::ActiveBackup* backups = nullptr;  // the same, where there are any

 private:
  struct Source {
    Buffer staged;
    size_t bytes = 0;
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
  Source& source(Rank rank) { return sources_[static_cast<size_t>(rank.value)]; }
  const Source& source(Rank rank) const {
    return sources_[static_cast<size_t>(rank.value)];
  }

  Rank self_;
  size_t bytes_;
  std::vector<Source> sources_;  // by rank

 public:
  size_t folded = 0;  // ahead, of all members
  size_t sent = 0;    // of the result, ahead of the close
  bool is_closed = false;
  bool is_acknowledged = false;
  bool is_due = false;                        // but for those that have not answered
  bool has_asked = false;                     // who knows of the operation
  RankSet present;                            // those that said so
  std::vector<straggler::StandIn> stand_ins;  // of what is closed
};

}  // namespace aikido::collectives

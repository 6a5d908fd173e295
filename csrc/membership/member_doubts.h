// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Reasons of one member to change the view: other members that are lost, silent or
// suspected, or that may own shards again. Pure: takes events and `now`. One thread.

#include <vector>

#include "base/clock.h"
#include "base/rank_set.h"
#include "membership/view.h"

namespace aikido::membership {

// True if `rank` owns a shard or part in some cut of `view`.
bool owns_shards(const View& view, Rank rank);

// Members may be in several of the sets.
class MemberDoubts {
 public:
  explicit MemberDoubts(int32_t size);

  // Each returns true if that is news.
  //
  // `rank` delays the others: other members are to own its shards.
  bool suspect(Rank rank);
  // `rank` may own shards again.
  bool restore(Rank rank) { return restored_.insert(rank); }
  // Nothing has come from `rank` for long. No news while it is spared: see Note [silent
  // member that answers] in view_change.h.
  bool note_silent(Rank rank, TimePoint now);
  // The connection to `rank` is gone.
  bool note_lost(Rank rank) { return lost_.insert(rank); }
  // The next view is to exclude `rank`. One member at a time.
  bool exclude(Rank rank);

  bool is_lost(Rank rank) const { return lost_.contains(rank); }
  bool is_silent(Rank rank) const { return silent_.contains(rank); }
  // Suspected or silent, and no view without its shards exists yet.
  bool is_moved(Rank rank) const { return moved_.contains(rank); }
  const RankSet& moved() const { return moved_; }
  const RankSet& restored() const { return restored_; }
  // kNoRank: none.
  Rank to_exclude() const { return to_exclude_; }
  // Returns it and forgets it.
  Rank take_to_exclude();

  // True if `view` must change because of one of these members.
  bool has_any_in(const View& view) const;
  // Members of `view` that are not lost.
  RankSet reachable(const View& view) const;
  // True if these contain more than half of the voters.
  bool leaves_majority(const View& view) const;
  // Members of `view` that may answer soon, except `but`.
  RankSet live(const View& view, Rank but) const;
  // True if the coordinator asks this member for its report, so that it may be in the
  // next view.
  bool is_asked(const View& view, Rank rank) const;
  // Number of members of `view` that become coordinator before `rank`. Healthy members
  // come first. Among them, voters come first, because all others may vanish at once.
  int32_t num_before(const View& view, Rank rank) const;

  // `view` has followed `old` on the member `self`. Its members have answered, and the
  // shards of suspects were taken over as far as possible.
  void on_view(const View& old, const View& view, Rank self, TimePoint now);

 private:
  // A member that has answered although it was silent.
  struct Spared {
    int times = 0;  // in a row
    TimePoint until{};
  };
  bool has_others(const View& view, Rank rank) const;
  void spare(Rank rank, TimePoint now);

  RankSet lost_, silent_, moved_, restored_;
  Rank to_exclude_ = kNoRank;
  std::vector<Spared> spared_;  // by rank
};

}  // namespace aikido::membership

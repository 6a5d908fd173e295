// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// What a group writes into the journal of its process (trace/journal.h): what befalls
// its members. Each thing once, when it begins: not again while it goes on. Progress
// thread.

#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/rank_set.h"
#include "base/status.h"
#include "base/types.h"
#include "membership/view.h"
#include "straggler/data_shard.h"
#include "trace/journal.h"

namespace aikido::engine {

class GroupNews {
 public:
  // A member for which nobody has stood in for so long is well again.
  static constexpr Duration kCalm = std::chrono::seconds(10);

  // `journal` may be null, and then nothing happens here; else it must outlive it.
  GroupNews(trace::Journal* journal, std::string group, Rank self, int32_t size);

  // Its shards are to go to others. Once until there is another view.
  void on_late(Rank rank);
  // All that are silent now. Each once until it is heard again.
  void on_silent(const std::vector<Rank>& ranks);
  // A member has said goodbye. Later views without it are no news: its work is done.
  void on_left(Rank rank) { left_.insert(rank); }
  // Its connection is gone for the reason `why`.
  void on_lost(Rank rank, const Status& why);
  // A view is in force.
  void on_view(const membership::View& view);
  // A backup has contributed in the place of a member. Once until kCalm without it.
  void on_stand_in(const straggler::StandIn& stand_in, TimePoint now);

 private:
  void tell(trace::EventKind kind, Rank member, std::vector<int32_t> by = {},
            std::string text = {});

  trace::Journal* const journal_;
  const std::string group_;
  const Rank self_;
  RankSet late_;
  RankSet silent_;
  RankSet left_;
  RankSet members_;
  RankSet owners_;
  std::vector<std::optional<TimePoint>> stood_in_;  // by rank: the last time
};

}  // namespace aikido::engine

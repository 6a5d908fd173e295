// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "engine/absent_members.h"

#include <utility>

namespace aikido::engine {

AbsentMembers::AbsentMembers(Rank self, int32_t size, Duration timeout)
    : self_(self), timeout_(timeout), past_(static_cast<size_t>(size)) {}

RankSet AbsentMembers::on_view(const membership::View& view, uint64_t received_by_all,
                               TimePoint now) {
  const int32_t size = view.members.world_size();
  RankSet back(size);
  for (int32_t r = 0; r < size; ++r) {
    Past& past = past_[static_cast<size_t>(r)];
    const bool is_member = view.has(Rank(r));
    const bool was_member = std::exchange(past.was_member, is_member);
    if (is_member && !was_member && now - past.out_since >= timeout_)
      back.insert(Rank(r));
    if (!was_member || is_member) continue;
    past.return_floor = received_by_all;
    past.out_since = now;
  }
  return back;
}

RankSet AbsentMembers::expected_back(const membership::ViewChange& change,
                                     const Peers& peers, TimePoint now) const {
  const membership::View& view = change.view();
  const int32_t size = view.members.world_size();
  RankSet ranks(size);
  if (view.members.count() == size) return ranks;
  for (int32_t r = 0; r < size; ++r) {
    const Rank rank(r);
    const bool is_away = rank != self_ && !view.has(rank) && !peers.has_gone(rank) &&
                         !change.needs_state(rank);
    if (is_away && now - past_[static_cast<size_t>(r)].out_since < timeout_ &&
        !peers.heartbeats().is_silent(rank))
      ranks.insert(rank);
  }
  return ranks;
}

}  // namespace aikido::engine

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "engine/member_events.h"

#include <utility>

namespace aikido::engine {

using trace::Event;
using trace::EventKind;

MemberEvents::MemberEvents(trace::EventLog* event_log, std::string group, Rank self,
                           int32_t size)
    : event_log_(event_log),
      group_(std::move(group)),
      self_(self),
      late_(size),
      silent_(size),
      left_(size),
      members_(RankSet::full(size)),
      owners_(RankSet::full(size)),
      stood_in_(static_cast<size_t>(size)) {}

void MemberEvents::on_late(Rank rank) {
  if (late_.insert(rank)) tell(EventKind::kLate, rank);
}

void MemberEvents::on_silent(const std::vector<Rank>& ranks) {
  if (ranks.empty() && silent_.count() == 0) return;
  const RankSet before = std::exchange(silent_, RankSet(silent_.world_size()));
  for (const Rank rank : ranks) {
    silent_.insert(rank);
    if (!before.contains(rank)) tell(EventKind::kSilent, rank);
  }
}

void MemberEvents::on_lost(Rank rank, const Status& why) {
  tell(EventKind::kLost, rank, {}, why.message());
}

void MemberEvents::on_view(const membership::View& view) {
  late_ = RankSet(late_.world_size());
  RankSet owners(owners_.world_size());
  std::vector<int32_t> by;
  for (int32_t r = 0; r < owners.world_size(); ++r) {
    if (!view.is_owner(Rank(r))) continue;
    owners.insert(Rank(r));
    by.push_back(r);
  }
  const RankSet owned = std::exchange(owners_, owners);
  const RankSet were_in = std::exchange(members_, view.members);
  for (int32_t r = 0; r < owners.world_size(); ++r) {
    const Rank rank(r);
    // A member that left in order is no news.
    if (left_.contains(rank)) continue;
    if (owned.contains(rank) && !owners.contains(rank))
      tell(EventKind::kShardsMoved, rank, by);
    if (were_in.contains(rank) && !view.has(rank)) tell(EventKind::kOut, rank);
    if (!were_in.contains(rank) && view.has(rank)) tell(EventKind::kBack, rank);
    if (!owned.contains(rank) && owners.contains(rank))
      tell(EventKind::kShardsBack, rank);
  }
}

void MemberEvents::on_stand_in(const straggler::StandIn& stand_in, TimePoint now) {
  const auto& [data_shard, backup] = stand_in;
  auto& last = stood_in_[static_cast<size_t>(data_shard.value)];
  // One event per period of stand-ins, not one per call.
  const bool is_news = !last || now - *last > kCalm;
  last = now;
  if (is_news) tell(EventKind::kStoodIn, data_shard, {backup.value});
}

void MemberEvents::tell(EventKind kind, Rank member, std::vector<int32_t> by,
                        std::string text) {
  if (event_log_ == nullptr) return;
  event_log_->add({0, kind, group_, self_, member, std::move(by), std::move(text)});
}

}  // namespace aikido::engine

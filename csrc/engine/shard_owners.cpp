// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "engine/shard_owners.h"

#include <algorithm>
#include <utility>

namespace aikido::engine {

using straggler::Ownership;

namespace {

// A member keeps up if it has made all calls but the last few, at most this number.
constexpr uint64_t kBehind = 4;

}  // namespace

ShardOwners::ShardOwners(Rank self, int32_t size, const Parts& parts)
    : self_(self), parts_(parts), ownership_(size) {}

void ShardOwners::on_call(size_t bytes) {
  ownership_.demand().on_call(bytes, parts_.clock->now());
}

// Some results of a full sum are still in transit, and a change of owners would send
// them again. At the next call there is little left to send.
void ShardOwners::on_result(bool is_full) {
  if (is_full) {
    is_full_sum_over_ = true;
  } else {
    is_due_ = is_due_ || !changes().empty();
  }
}

void ShardOwners::advise(Rank rank, straggler::Advice advice) {
  ownership_.advise(rank, advice);
  is_due_ = is_due_ || !changes().empty();
}

void ShardOwners::change_if_due() {
  if (!std::exchange(is_due_, false)) return;
  for (const auto& change : changes()) {
    if (change.owns) {
      parts_.view_change->restore(change.rank, parts_.clock->now());
    } else {
      suspect(change.rank);
    }
  }
}

void ShardOwners::change_before_call() {
  if (!std::exchange(is_full_sum_over_, false)) return;
  is_due_ = true;
  change_if_due();
}

void ShardOwners::on_view(const membership::View& view) {
  const int32_t size = view.members.world_size();
  RankSet owners(size);
  // Operations that any member has called keep their owners.
  uint64_t latest = 0;
  for (int32_t r = 0; r < size; ++r) {
    if (view.is_owner(Rank(r))) owners.insert(Rank(r));
    latest = std::max(latest, parts_.peers->called_by(Rank(r)));
  }
  const Ownership::Now now{Seq(latest), parts_.clock->now()};
  for (const auto& change : ownership_.on_owners(owners, now)) {
    // The measurements before the move say nothing about the new role.
    Peer& peer = (*parts_.peers)[change.rank];
    peer.uplink = {};
    peer.share = {};
    parts_.policies->on_moved(change.rank, change.owns, now.seq);
  }
}

bool ShardOwners::suspect(Rank rank) {
  int32_t left = 0;
  view().members.for_each([&](Rank r) {
    if (r != rank && view().is_owner(r) && !parts_.view_change->doubts().is_moved(r))
      ++left;
  });
  if (2 * left < view().members.count()) return false;
  parts_.events->on_late(rank);
  parts_.view_change->suspect(rank, parts_.clock->now());
  return true;
}

void ShardOwners::restore_for(Rank late) {
  const Peers& peers = *parts_.peers;
  view().members.for_each([&](Rank r) {
    const bool is_idle =
        r != late && !view().is_owner(r) && !parts_.view_change->doubts().is_moved(r);
    if (!is_idle || peers[r].is_lost() || peers.called_by(r) <= peers.acked_by(self_))
      return;
    if (ownership_.would_serve(r, suits(r)))
      parts_.view_change->restore(r, parts_.clock->now());
  });
}

// Whether the uplink of a member without shards would suffice for an owner.
straggler::Suits ShardOwners::suits(Rank rank) const {
  const Peer& peer = (*parts_.peers)[rank];
  const TimePoint now = parts_.clock->now();
  const auto by_share = peer.share.suits(now);
  if (by_share != straggler::Suits::kUnknown) return by_share;
  return ownership_.demand().judge(peer.uplink.bytes_per_second(now),
                                   view().members.count());
}

Ownership::Seen ShardOwners::seen(Rank rank) const {
  Ownership::Seen all;
  for (const auto& policy : *parts_.policies) {
    const straggler::History& history = policy->history();
    all.skips_in_a_row = std::max(all.skips_in_a_row, history.late_run(rank));
    all.healthy_run = std::max(all.healthy_run, policy->healthy_run(rank));
    all.is_slow |= policy->is_slow(rank);
    all.keeps_up =
        history.called(rank).value + kBehind >= parts_.peers->called_by(self_);
  }
  // With full sums all members keep up.
  if (parts_.policies->has_full_sums()) all.keeps_up = false;
  if (!view().is_owner(rank)) all.uplink = suits(rank);  // an owner needs no trial
  return all;
}

// One owner decides when shards leave a late member and come back.
std::vector<Ownership::Change> ShardOwners::changes() const {
  return ownership_.changes(self_, view().members,
                            {Seq(parts_.peers->called_by(self_)), parts_.clock->now()},
                            [this](Rank r) { return seen(r); });
}

}  // namespace aikido::engine

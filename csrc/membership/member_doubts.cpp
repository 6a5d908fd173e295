// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "membership/member_doubts.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "base/mutation.h"

namespace aikido::membership {

namespace {

// First time for which an answering member is protected from a new exclusion. It starts
// again at this value if the member was not silent for kForgiven times as long.
constexpr Duration kSpared = std::chrono::milliseconds(100);
constexpr int kForgiven = 8;
constexpr int kMostSpares = 4;

}  // namespace

bool owns_shards(const View& view, Rank rank) {
  return std::any_of(view.cuts.begin(), view.cuts.end(), [&](const Cut& cut) {
    for (int32_t n = 0; n < cut.num_numbers(); ++n)
      if (cut.owner(n) == rank) return true;
    return false;
  });
}

MemberDoubts::MemberDoubts(int32_t size)
    : lost_(size),
      silent_(size),
      moved_(size),
      restored_(size),
      spared_(static_cast<size_t>(size)) {}

bool MemberDoubts::suspect(Rank rank) {
  if (!moved_.insert(rank)) return false;
  restored_.erase(rank);
  return true;
}

bool MemberDoubts::note_silent(Rank rank, TimePoint now) {
  const bool is_spared = now < spared_[static_cast<size_t>(rank.value)].until;
  if (is_spared || !silent_.insert(rank)) return false;
  moved_.insert(rank);
  return true;
}

bool MemberDoubts::exclude(Rank rank) {
  if (to_exclude_ != kNoRank) return false;
  to_exclude_ = rank;
  return true;
}

Rank MemberDoubts::take_to_exclude() {
  return std::exchange(to_exclude_, kNoRank);
}

bool MemberDoubts::has_any_in(const View& view) const {
  bool has_any = to_exclude_ != kNoRank;
  view.members.for_each([&](Rank r) {
    if (lost_.contains(r) || silent_.contains(r) || moved_.contains(r) ||
        restored_.contains(r))
      has_any = true;
  });
  return has_any;
}

RankSet MemberDoubts::reachable(const View& view) const {
  RankSet ranks = view.members;
  lost_.for_each([&](Rank r) { ranks.erase(r); });
  return ranks;
}

bool MemberDoubts::leaves_majority(const View& view) const {
  return is_majority(view, reachable(view));
}

RankSet MemberDoubts::live(const View& view, Rank but) const {
  RankSet ranks(view.members.world_size());
  view.members.for_each([&](Rank r) {
    if (r != but && !lost_.contains(r) && !silent_.contains(r)) ranks.insert(r);
  });
  return ranks;
}

bool MemberDoubts::is_asked(const View& view, Rank rank) const {
  if (mutated(Mutation::kSuspectNotAsked) && moved_.contains(rank)) return false;
  // Without a member that is to be excluded, a majority may be missing.
  const bool is_passed_over =
      rank == to_exclude_ && is_majority(view, live(view, rank));
  return !lost_.contains(rank) && !is_passed_over;
}

int32_t MemberDoubts::num_before(const View& view, Rank rank) const {
  int32_t num = 0;
  const auto turn = [&](Rank r) {
    return std::tuple(moved_.contains(r), !view.votes(r), r);
  };
  view.members.for_each([&](Rank r) {
    const bool is_before = turn(r) < turn(rank);
    if (is_before && !lost_.contains(r) && r != to_exclude_) ++num;
  });
  return num;
}

// True if another member can take over the shards of `rank`.
bool MemberDoubts::has_others(const View& view, Rank rank) const {
  bool has_others = false;
  view.members.for_each([&](Rank r) {
    if (r != rank && !moved_.contains(r) && !lost_.contains(r)) has_others = true;
  });
  return has_others;
}

void MemberDoubts::on_view(const View& old, const View& view, Rank self,
                           TimePoint now) {
  to_exclude_ = kNoRank;
  // A member that has lost its own shards was slow itself, so its suspicions do not
  // count.
  const bool was_slow = old.is_owner(self) && !view.is_owner(self);
  for (int32_t r = 0; r < view.members.world_size(); ++r) {
    const Rank rank(r);
    if (silent_.erase(rank) && view.has(rank)) spare(rank, now);
    if (was_slow || !view.has(rank) || !owns_shards(view, rank) ||
        !has_others(view, rank))
      moved_.erase(rank);
    if (!view.has(rank) || view.is_owner(rank)) restored_.erase(rank);
  }
}

// See Note [silent member that answers] in view_change.h.
void MemberDoubts::spare(Rank rank, TimePoint now) {
  Spared& spared = spared_[static_cast<size_t>(rank.value)];
  const auto time = [&] {
    return kSpared * (1 << std::min(spared.times, kMostSpares));
  };
  if (now > spared.until + kForgiven * time()) spared.times = 0;
  spared.until = now + time();
  ++spared.times;
}

}  // namespace aikido::membership

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "membership/next_view.h"

#include <algorithm>
#include <utility>

#include "base/mutation.h"

namespace aikido::membership {
namespace {

using Reports = std::map<Rank, Report>;

bool keeps_some(const View& old, const Report& report, Seq seq) {
  const Cut& cut = old.cut_of(seq);
  for (int32_t n = 0; n < cut.num_numbers(); ++n)
    if (report.keeps(cut, seq, n)) return true;
  return false;
}

// True if one of these members has the result. If the operation has failed on a member,
// that member reports the error again.
bool is_received(Seq seq, const Reports& reports) {
  const auto has_failed = [&](const auto& entry) {
    return entry.second.has_failed(seq);
  };
  return !mutated(Mutation::kHadMakesAnother) &&
         std::none_of(reports.begin(), reports.end(), has_failed) &&
         std::any_of(reports.begin(), reports.end(),
                     [&](const auto& entry) { return seq <= entry.second.acked; });
}

bool is_in_vain(const View& old, Rank rank, const Report& report,
                const Reports& others) {
  // True if no other member can send the result that `rank` lacks.
  const auto is_lost = [&](Seq seq) {
    // The number of shards is not known here, so the first shard stands for all.
    const bool is_lacked =
        !report.has_first_of(old.cut_of(seq), seq, 0) || seq == report.open;
    return is_lacked && std::none_of(others.begin(), others.end(), [&](const auto& o) {
             return &o.second != &report && keeps_some(old, o.second, seq);
           });
  };
  // Results that `rank` lacked when it joined may be forgotten by the others, which
  // make no new ones.
  if (report.open != Seq() && !old.takes_part(rank, report.open) &&
      is_lost(report.open) && is_received(report.open, others))
    return true;
  return std::any_of(others.begin(), others.end(), [&](const auto& entry) {
    const Report& other = entry.second;
    if (other.skipped_through == Seq()) return false;
    for (Seq seq = std::max(other.skipped_from, Seq(report.acked.value + 1));
         seq <= other.skipped_through; ++seq.value)
      if (is_lost(seq)) return true;
    return false;
  });
}

// Ranks that may own shards: the remaining old owners, and restored owners. If there
// are none, the best of the others. Never empty.
std::vector<Rank> healthy(const View& old, const View& next, const ViewPlan& plan) {
  std::vector<Rank> owners;
  next.members.for_each([&](Rank r) {
    const bool was = old.is_owner(r) || plan.restored.contains(r);
    if (was && !plan.moved.contains(r)) owners.push_back(r);
  });
  const auto take = [&](auto&& is_fit) {
    next.members.for_each([&](Rank r) {
      if (owners.empty() && is_fit(r)) owners.push_back(r);
    });
  };
  take([&](Rank r) { return !plan.moved.contains(r) && plan.answers.contains(r); });
  take([&](Rank r) { return plan.answers.contains(r); });
  return owners;
}

// Hands the shards of owners with `is_gone` to `owners`: divided into parts if there
// are several owners, beginning at a different owner for each shard.
template <class IsGone>
void hand_over(Cut& cut, const std::vector<Rank>& owners, IsGone&& is_gone) {
  for (Division& d : cut.divisions)
    for (size_t p = 0; p < d.owners.size(); ++p)
      if (is_gone(d.owners[p]))
        d.owners[p] = owners[(static_cast<size_t>(d.shard) + p) % owners.size()];
  const size_t num_parts =
      std::min(owners.size(), static_cast<size_t>(Division::kMaxParts));
  for (size_t s = 0; s < cut.owners.size(); ++s) {
    if (!is_gone(cut.owners[s])) continue;
    cut.owners[s] = owners[s % owners.size()];
    const auto shard = static_cast<int32_t>(s);
    if (num_parts < 2 || cut.is_divided(shard)) continue;
    Division d{shard, {}};
    for (size_t p = 0; p < num_parts; ++p)
      d.owners.push_back(owners[(s + p) % owners.size()]);
    cut.divisions.push_back(std::move(d));
  }
}

// Computes the cuts of operations from `oldest` on. Operations beyond `boundary` get a
// new cut.
void cut(View& next, const View& old, const ViewPlan& plan, Seq oldest, Seq boundary) {
  const std::vector<Rank> owners = healthy(old, next, plan);
  for (size_t i = 0; i < old.cuts.size(); ++i) {
    if (i + 1 < old.cuts.size() && old.cuts[i + 1].first <= oldest)
      continue;  // no member has any result of it
    next.cuts.push_back(old.cuts[i]);
    hand_over(next.cuts.back(), owners,
              [&](Rank r) { return !next.has(r) || plan.moved.contains(r); });
  }
  const Seq first(boundary.value + 1);
  while (!next.cuts.empty() && next.cuts.back().first >= first) next.cuts.pop_back();
  RankSet out = RankSet::full(next.members.world_size());
  next.members.for_each([&](Rank r) { out.erase(r); });
  // Also if a returning member owns exactly the shards that another member gives away.
  if (next.cuts.empty() || next.cuts.back().owners != owners ||
      !(next.cuts.back().out == out) || !next.cuts.back().divisions.empty())
    next.cuts.push_back({next.cuts.empty() ? oldest : first, owners, out, {}});
}

// Mask of a result that a member has. Empty if no answer contains it.
std::optional<uint64_t> mask_of(const ViewPlan& plan, Seq seq, int32_t number) {
  for (const auto& [rank, report] : plan.answers)
    if (const auto mask = report.mask_of(seq, number)) return mask;
  return std::nullopt;
}

// Holder that sends a result to the others; kNoRank if no member has it. The owner is
// preferred, then other members that own shards. A member without shards was late again
// and again, usually behind a slow link. A suspected owner comes in between. A member
// that has closed the same result can send it too.
Rank holder_of(const View& old, const ViewPlan& plan, Seq seq, int32_t number) {
  const Held* held = old.held_at(seq, number);
  const Cut& cut = old.cut_of(seq);
  const Rank owner = held != nullptr ? held->holder : cut.owner(number);
  Rank best = kNoRank;
  int best_grade = -1;
  const auto grade = [&](Rank rank) {
    if (!old.is_owner(rank)) return 0;
    return plan.moved.contains(rank) ? 1 : rank == owner ? 3 : 2;
  };
  const auto consider = [&](Rank rank) {
    if (grade(rank) > best_grade) best = rank;
    best_grade = std::max(grade(rank), best_grade);
  };
  for (const auto& [rank, report] : plan.answers)
    if (report.keeps(cut, seq, number)) consider(rank);
  if (best == kNoRank) return best;
  const auto mask = mask_of(plan, seq, number);
  for (const auto& [rank, report] : plan.answers)
    if (mask && report.closed_mask_of(seq, number) == mask) consider(rank);
  return best;
}

}  // namespace

RankSet waiting_in_vain(const View& old, const Reports& answers) {
  RankSet waiting(old.members.world_size());
  Reports others = answers;
  // An excluded member's own results are lost to the others, so the search is repeated.
  for (size_t num = 0; num != others.size();) {
    num = others.size();
    for (auto it = others.begin(); it != others.end();) {
      const bool waits = is_in_vain(old, it->first, it->second, others);
      if (waits) waiting.insert(it->first);
      it = waits ? others.erase(it) : std::next(it);
    }
  }
  return waiting;
}

View next_view(const View& old, const ViewPlan& all) {
  ViewPlan plan = all;
  const RankSet waiting = waiting_in_vain(old, all.answers);
  // Members that wait for a result which no member can send are excluded, if a majority
  // remains without them.
  RankSet left(old.members.world_size());
  for (const auto& [rank, report] : all.answers)
    if (!waiting.contains(rank)) left.insert(rank);
  if (is_majority(old, left) && !mutated(Mutation::kKeepInVain))
    waiting.for_each([&](Rank r) { plan.answers.erase(r); });
  std::erase_if(plan.joining, [&](const auto& entry) {
    return is_in_vain(old, entry.first, entry.second, plan.answers);
  });
  View next;
  next.number = old.number + 1;
  next.members = RankSet(old.members.world_size());
  next.reliable = old.reliable;
  next.agreed = old.agreed;
  if (mutated(Mutation::kForgetAgreement)) next.agreed.number = 0;
  next.seats.resize(old.seats.size());
  Seq boundary;
  Seq low(UINT64_MAX);     // all members have everything up to here
  Seq oldest(UINT64_MAX);  // oldest operation that some member can send
  for (const auto& [rank, report] : plan.answers) {
    next.members.insert(rank);
    next.seats[static_cast<size_t>(rank.value)] =
        old.seats[static_cast<size_t>(rank.value)];
    boundary = std::max({boundary, report.known, report.acked});
    low = std::min(low, report.acked);
    oldest = std::min(oldest, report.kept);
  }
  if (mutated(Mutation::kTransientStays))
    old.members.for_each([&](Rank r) {
      if (old.votes(r) || !next.members.insert(r)) return;
      next.seats[static_cast<size_t>(r.value)] =
          old.seats[static_cast<size_t>(r.value)];
    });
  for (const auto& [rank, report] : plan.joining) {
    next.members.insert(rank);
    Seat seat{next.number, Seq(boundary.value + 1)};
    if (mutated(Mutation::kOldIncarnation)) seat.since = 1;
    if (mutated(Mutation::kReturnFillsPlace)) seat.first = Seq(1);
    next.seats[static_cast<size_t>(rank.value)] = seat;
    low = std::min(low, report.acked);
    oldest = std::min(oldest, report.kept);
  }
  if (plan.agrees) next.agreed = {old.agreed.number + 1, next.members};
  low = std::min(low, boundary);
  cut(next, old, plan, std::min(oldest, Seq(low.value + 1)), boundary);
  if (mutated(Mutation::kIgnoreHad)) return next;
  for (Seq seq(low.value + 1); seq <= boundary; ++seq.value) {
    const int32_t num_numbers = old.cut_of(seq).num_numbers();
    for (int32_t s = 0; s < num_numbers; ++s) {
      Held held{seq, s, holder_of(old, plan, seq, s),
                RankSet(old.members.world_size())};
      if (held.holder == kNoRank) continue;
      const auto mask = mask_of(plan, seq, s);
      bool is_new = false;  // some member receives it now
      const auto note = [&](const auto& entry) {
        if (entry.second.has(seq, s)) return;
        is_new = true;
        if (!mask || entry.second.closed_mask_of(seq, s) != mask)
          held.lacking.insert(entry.first);
      };
      std::for_each(plan.answers.begin(), plan.answers.end(), note);
      std::for_each(plan.joining.begin(), plan.joining.end(), note);
      if (is_new) next.held.push_back(std::move(held));
    }
  }
  return next;
}

}  // namespace aikido::membership

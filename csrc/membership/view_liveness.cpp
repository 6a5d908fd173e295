// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "membership/view_liveness.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "membership/next_view.h"

namespace aikido::membership {

namespace {

using Reports = std::map<Rank, Report>;

// Number of members that stay if, of each two that are cut off from each other, one
// leaves. The member that is cut off from the most others leaves first. Requires: all
// have answered.
int32_t num_staying(const RankSet& members, const Reports& answers) {
  std::vector<std::pair<Rank, Rank>> cut_off;
  members.for_each([&](Rank rank) {
    answers.at(rank).lost.for_each([&](Rank other) {
      if (members.contains(other)) cut_off.emplace_back(rank, other);
    });
  });
  int32_t num = members.count();
  for (; !cut_off.empty(); --num) {
    std::map<Rank, int32_t> times;
    for (const auto& [rank, other] : cut_off) ++times[rank], ++times[other];
    const auto worst = std::max_element(
        times.begin(), times.end(),
        [](const auto& a, const auto& b) { return a.second < b.second; });
    std::erase_if(cut_off, [&](const auto& pair) {
      return pair.first == worst->first || pair.second == worst->first;
    });
  }
  return num;
}

// True if some member waits for a result that only silent members can send, and too few
// members can make another.
bool is_out_of_reach(const View& view, const Reports& answers, const Held& held,
                     Makers makers) {
  bool is_lacked = false;
  RankSet making(view.members.world_size());
  // A member that lacks the result may not know yet how many members it needs.
  int32_t needed = makers == Makers::kLacking ? 1 : 0;
  for (const auto& [rank, report] : answers) {
    if (report.keeps(view.cut_of(held.seq), held.seq, held.shard)) return false;
    const bool lacks = !report.has(held.seq, held.shard);
    is_lacked |= lacks;
    const bool makes = lacks || makers == Makers::kParticipants;
    if (makes && view.takes_part(rank, held.seq)) making.insert(rank);
    needed = std::max(needed, report.needed);
  }
  return is_lacked && num_staying(making, answers) < needed;
}

// First operation, from the lowest awaited operation on, that no member can send.
Seq first_unkept(Seq seq, const Reports& answers) {
  const auto keeps = [&](const auto& entry) {
    return seq >= entry.second.kept && seq <= entry.second.acked;
  };
  for (;;) {
    const auto it = std::find_if(answers.begin(), answers.end(), keeps);
    if (it == answers.end()) return seq;
    seq = Seq(it->second.acked.value + 1);
  }
}

}  // namespace

bool would_block(const View& view, const Reports& answers, Makers makers) {
  if (std::any_of(view.held.begin(), view.held.end(), [&](const Held& held) {
        return is_out_of_reach(view, answers, held, makers);
      }))
    return true;
  const RankSet excluded = waiting_in_vain(view, answers);
  RankSet left(view.members.world_size());
  for (const auto& [rank, report] : answers)
    if (!excluded.contains(rank)) left.insert(rank);
  if (excluded.count() > 0 && !is_majority(view, left)) return true;
  return std::any_of(answers.begin(), answers.end(), [&](const auto& entry) {
    const Report& report = entry.second;
    if (report.open == Seq()) return false;
    const Seq open = first_unkept(report.open, answers);
    if (open > report.known) return false;
    RankSet making(view.members.world_size());
    for (const auto& [rank, other] : answers) {
      const bool makes = open > other.acked || makers == Makers::kParticipants;
      const bool takes_part = view.takes_part(rank, open);
      if (makes && takes_part && !excluded.contains(rank)) making.insert(rank);
    }
    return num_staying(making, answers) < report.needed;
  });
}

}  // namespace aikido::membership

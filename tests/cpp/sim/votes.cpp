// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "sim/votes.h"

#include <algorithm>

#include "base/text.h"

namespace aikido::sim {

namespace {

// True for events after which a live member may answer too late, or never.
bool may_silence(const Event& event) {
  return event.kind == EventKind::kStop || event.kind == EventKind::kStall ||
         event.kind == EventKind::kCut || event.kind == EventKind::kRate;
}

std::string ranks_text(uint64_t ranks) {
  std::string text;
  for (int32_t r = 0; r < 64; ++r)
    if ((ranks >> r & 1) != 0) text += concat(text.empty() ? "" : " ", r);
  return "{" + text + "}";
}

}  // namespace

uint64_t voters_of(const Script& script, uint64_t members) {
  uint64_t reliable = 0;
  for (const int32_t r : script.reliable) reliable |= uint64_t{1} << r;
  return reliable == 0 ? members : members & reliable;
}

bool has_majority(const Script& script, uint64_t some, uint64_t all) {
  const uint64_t voters = voters_of(script, all);
  return 2 * std::popcount(some & voters) > std::popcount(voters);
}

bool reaches_voter(const Script& script, int32_t rank, uint64_t all, uint64_t killed,
                   const std::set<uint64_t>& cuts) {
  uint64_t reached = all & ~killed;
  for (const uint64_t pair : cuts)
    if ((pair >> rank & 1) != 0) reached &= ~pair | uint64_t{1} << rank;
  return (reached & voters_of(script, all)) != 0;
}

Agreements::Agreements(const Script& script)
    : script_(script),
      has_deaths_only_(
          script.timeout >= std::chrono::seconds(10) && script.holds.empty() &&
          std::none_of(script.events.begin(), script.events.end(), may_silence)),
      last_(static_cast<size_t>(script.members)) {}

void Agreements::broken(const std::string& what) {
  if (violation_.empty()) violation_ = "S8: " + what;
}

void Agreements::on_agreed(int32_t rank, const membership::Agreement& agreed) {
  const uint64_t ranks = agreed.ranks.words().front();
  uint32_t& last = last_[static_cast<size_t>(rank)];
  if (agreed.number <= last)
    broken(concat("rank ", rank, " gets agreement ", agreed.number, " after ", last));
  last = agreed.number;
  if ((ranks >> rank & 1) == 0)
    broken(concat("rank ", rank, " is not in its agreement ", ranks_text(ranks)));
  const auto [other, is_new] = ranks_.emplace(agreed.number, ranks);
  if (!is_new && other->second != ranks)
    broken(concat("agreement ", agreed.number, " has ranks ", ranks_text(ranks),
                  " on rank ", rank, " and ", ranks_text(other->second), " elsewhere"));
}

void Agreements::on_none(int32_t rank, uint64_t members, uint64_t live,
                         const std::string& why) {
  if (!has_deaths_only_ || (members >> rank & 1) == 0) return;
  if (has_majority(script_, live, members))
    broken(concat("rank ", rank, " of ", ranks_text(members & live),
                  " gets no agreement: ", why));
}

}  // namespace aikido::sim

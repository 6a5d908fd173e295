// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "straggler/result_log.h"

#include <algorithm>

#include "base/check.h"

namespace aikido::straggler {

ResultLog::ResultLog(int32_t world_size, uint64_t limit_bytes)
    : limit_bytes_(limit_bytes) {
  AIKIDO_CHECK(world_size >= 1, "world_size=", world_size);
  members_ = RankSet::full(world_size);
  owed_.resize(static_cast<size_t>(world_size));
}

void ResultLog::set_members(const RankSet& members) {
  ++version_;
  members.for_each([&](Rank rank) {
    if (members_.contains(rank)) return;
    Owed& its = owed(rank);
    its.called = std::max(its.called, last());
    its.bytes = 0;
  });
  members_ = members;
}

void ResultLog::on_called(Rank rank, Seq seq) {
  Owed& its = owed(rank);
  if (seq <= its.called) return;
  ++version_;
  for (auto entry = log_.upper_bound(its.called);
       entry != log_.end() && entry->first <= seq; ++entry)
    its.bytes -= entry->second;
  its.called = seq;
}

// Drops the results of operations that all members have called.
void ResultLog::on_closed(Seq seq, uint64_t bytes) {
  ++version_;
  Seq lowest = seq;
  members_.for_each([&](Rank rank) {
    Owed& its = owed(rank);
    lowest = std::min(lowest, its.called);
    if (its.called < seq) its.bytes += bytes;
  });
  if (lowest < seq) log_[seq] += bytes;
  log_.erase(log_.begin(), log_.upper_bound(lowest));
}

uint64_t ResultLog::outstanding_bytes(Rank rank) const {
  return owed(rank).bytes;
}

bool ResultLog::would_overflow(Rank rank, uint64_t bytes) const {
  const uint64_t used = owed(rank).bytes;
  return used > limit_bytes_ || bytes > limit_bytes_ - used;
}

bool ResultLog::would_overflow_far(Rank rank, uint64_t bytes) const {
  const uint64_t limit = limit_bytes_ + limit_bytes_ / 2;
  const uint64_t used = owed(rank).bytes;
  return used > 0 && (used > limit || bytes > limit - used);
}

ResultLog::Owed& ResultLog::owed(Rank rank) {
  AIKIDO_CHECK(rank.value >= 0 && rank.value < world_size(), "rank ", rank.value,
               " of a world of ", world_size());
  return owed_[static_cast<size_t>(rank.value)];
}

const ResultLog::Owed& ResultLog::owed(Rank rank) const {
  return const_cast<ResultLog*>(this)->owed(rank);
}

}  // namespace aikido::straggler

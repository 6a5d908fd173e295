// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "straggler/progress_account.h"

#include <algorithm>

namespace aikido::straggler {

void ReplayedOperations::add(const ReplayedOperations& other) {
  operations += other.operations;
  bytes += other.bytes;
  bytes_in += other.bytes_in;
  time += other.time;
  time_of_wait_all += other.time_of_wait_all;
}

// Note [charged before it is known]
ProgressAccount::Entry ProgressAccount::entry(const RecentOperations& recent,
                                              const PastOperation& op,
                                              TimePoint now) const {
  Entry entry;
  entry.bytes = static_cast<double>(op.bytes);
  entry.share_missing = static_cast<double>(op.num_missing) / recent.world_size();
  entry.ours = op.to_quorum + op.waited;
  Duration longest{0};
  for (int32_t r = 0; r < recent.world_size(); ++r) {
    const Rank rank(r);
    if (const auto delay = recent.delay(op.seq, rank)) {
      longest = std::max(longest, *delay);
    } else if (recent.called(rank) >= op.seq) {
      const FairDelays& fair = recent.fair_delays(rank);
      if (fair.size() > 0)
        longest = std::max(longest, fair[op.seq.value % fair.size()]);
    } else {
      entry.is_final = false;
      if (recent.called(rank).value + 1 == op.seq.value)
        longest = std::max(longest, now - op.t_q - recent.late_start(rank, op.seq));
    }
  }
  entry.waiting = op.to_quorum + longest;
  return entry;
}

// Note [price of time]
double ProgressAccount::change(const Entry& entry) const {
  const double one = std::max({waiting_.value(), waiting_lately_.value(), 1.0});
  const double ours = static_cast<double>(entry.ours.count()) / one;
  const double waiting = static_cast<double>(entry.waiting.count()) / one;
  const double weight = entry.bytes / bytes_.value();
  return weight * worth_ * entry.share_missing + ours - waiting - kAllowed * ours;
}

void ProgressAccount::update(const RecentOperations& recent, TimePoint now) {
  const Seq last = recent.last_closed();
  constexpr uint64_t kMost = RecentOperations::kMost;
  if (last.value >= kMost) next_ = std::max(next_, Seq(last.value - kMost + 1));
  open_ = 0;
  bool are_final = true;
  for (Seq seq = next_; seq <= last; seq = Seq(seq.value + 1)) {
    const auto op = recent.closed(seq);
    if (op) {
      const Entry e = entry(recent, *op, now);
      are_final &= e.is_final || last.value - seq.value + 1 == kMost;
      if (are_final) {
        bytes_.add(e.bytes);
        waiting_.add(static_cast<double>(e.waiting.count()));
        waiting_lately_.add(static_cast<double>(e.waiting.count()));
        replayed_.add({1, e.bytes, e.bytes * (1 - e.share_missing), e.ours, e.waiting});
        final_ = std::max(final_ + change(e), -kMostCredit);
      } else if (bytes_.num > 0) {
        open_ += change(e);
      }
    }
    if (are_final) next_ = Seq(seq.value + 1);
  }
}

}  // namespace aikido::straggler

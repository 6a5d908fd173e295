// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "straggler/call_lags.h"

#include <algorithm>

namespace aikido::straggler {

CallLags::CallLags(int32_t world_size)
    : world_size_(world_size),
      recent_(kNumRecent),
      members_(static_cast<size_t>(world_size)) {}

void CallLags::on_called(Rank rank, Seq seq, TimePoint now) {
  LastCalls& m = members_[static_cast<size_t>(rank.value)];
  const uint64_t oldest = seq.value - std::min<uint64_t>(seq.value, kNumRecent);
  if (m.last.value < oldest) m = {Seq(oldest)};
  while (m.last < seq) {
    m.last = Seq(m.last.value + 1);
    m.before = m.lag;
    m.lag = Duration::zero();
    Operation& op = recent_[m.last.value % kNumRecent];
    if (op.seq > m.last) continue;
    if (op.seq < m.last) op = {m.last};
    if (2 * op.num_called++ < world_size_) {
      op.half = now;
    } else {
      m.lag = now - op.half;
    }
  }
}

bool CallLags::is_rest(Rank rank, Seq seq, Duration least) const {
  const LastCalls& m = members_[static_cast<size_t>(rank.value)];
  return m.last == seq && m.before > least && 2 * m.lag <= m.before;
}

}  // namespace aikido::straggler

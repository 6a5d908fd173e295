// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Decision which results are sent to a member that has not called them (our design).
// Pure: takes events and `now`, returns decisions. One thread.

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "transport/schedule/scheduler.h"

namespace aikido::engine {

// Note [results for a slow link]
// Results are sent ahead of a late member's calls, so that the member finds them when
// it calls. If its link is the cause of the lateness, the member falls further and
// further behind. Then it should copy the state of another member. But queued results
// of all others fill its link, and slow down the copy. Rule: if messages have been
// waiting on the link for kLongest, at every check, the member gets only the result of
// its next call. This ends when it has called all queued results. During a copy the
// member calls nothing, so its link is free.
class ResultBacklog {
 public:
  using MessageId = transport::MessageId;

  static constexpr Duration kLongest = std::chrono::seconds(1);

  // A result of collective `seq` is ready, beyond the next call of the peer.
  // `is_drained`: nothing sent before is still waiting. True: send it now. False: hold
  // it, and call hold() with its id.
  [[nodiscard]] bool admit(uint64_t seq, bool is_drained, TimePoint now);
  bool goes_unasked(uint64_t seq) const { return seq <= called_ + 1; }
  void hold(uint64_t seq, MessageId id) { held_.emplace(seq, id); }

  // The peer has called `called`. Returns the held messages to send now.
  std::vector<MessageId> on_called(uint64_t called);
  // A held message was cancelled.
  void forget(MessageId id);
  // Forgets all held messages and returns them.
  std::vector<MessageId> clear();

  // Number of a call that the peer must be asked to report, once each.
  std::optional<uint64_t> ask();
  bool is_holding() const { return !held_.empty(); }

 private:
  uint64_t called_ = 0;  // by the peer
  uint64_t asked_ = 0;
  std::optional<TimePoint> waits_since_;
  bool is_slow_ = false;
  std::multimap<uint64_t, MessageId> held_;  // by seq
};

}  // namespace aikido::engine

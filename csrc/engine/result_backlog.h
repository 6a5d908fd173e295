// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Decides which results may go to a member that has not called them. Our design. PURE:
// events and `now` in, decisions out. One thread.

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "transport/scheduler.h"

namespace aikido::engine {

// Note [results that come faster than a link takes them]
// Results go ahead of the calls of a late member, so that it finds them when it comes.
// One whose link is what is slow gets ever further behind: it had better copy the state
// of another member, but what all others have queued for it fills its link, and the
// copy comes as slowly as the rest. So once something has waited to leave for kLongest,
// whenever we looked, such a member gets the result of its next call only, until it has
// called all that there is. In the time of a copy it calls nothing, and the link is
// free.
class ResultBacklog {
 public:
  using MessageId = transport::MessageId;

  static constexpr Duration kLongest = std::chrono::seconds(1);

  // A result of collective `seq` is to go, beyond the next call of the peer; what was
  // sent before `is_drained`, or still waits. True: now. False: it is to be held, and
  // hold() called with its id.
  [[nodiscard]] bool admit(uint64_t seq, bool is_drained, TimePoint now);
  bool goes_unasked(uint64_t seq) const { return seq <= called_ + 1; }
  void hold(uint64_t seq, MessageId id) { held_.emplace(seq, id); }

  // The peer has called `called`. Returns the held messages that go now.
  std::vector<MessageId> on_called(uint64_t called);
  // A held message was cancelled.
  void forget(MessageId id);
  // Forgets all that is held, and returns it.
  std::vector<MessageId> clear();

  // The number of a call that the peer is to be asked to tell, once each.
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

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Heartbeats of a member: decides when the member sends them, and which other members
// are silent. Pure: takes events and `now`, returns decisions. One thread.

#include <cstdint>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "base/types.h"

namespace aikido::engine {

struct HeartbeatOptions {
  Duration interval{};  // zero: no heartbeats and no silence
  Duration timeout{};   // zero: no member is silent
};

// Note [silence counts running time]
// A stopped member receives nothing, and neither does a member on a suspended machine.
// This does not mean that the other members were silent. Rule: the clock of silence
// advances by at most one interval between two calls of on_time(). A longer gap is time
// in which this process did not run and could not receive.
class Heartbeats {
 public:
  Heartbeats(const HeartbeatOptions& options, int32_t size);

  // A member is connected. It must send heartbeats from now on.
  void add(Rank rank, TimePoint now);
  // The member is lost or has left.
  void remove(Rank rank);
  // Something was received from the member.
  void on_heard(Rank rank) { member(rank).heard = ran_; }
  // The member was sent something that it reads at once. This counts as a heartbeat.
  void on_sent(Rank rank) { member(rank).is_told = true; }

  // Call it at next_look() or later. Returns the members that must be sent a heartbeat.
  std::vector<Rank> on_time(TimePoint now);
  // Empty: no member needs heartbeats.
  [[nodiscard]] std::optional<TimePoint> next_look() const {
    if (num_there_ == 0 || options_.interval <= Duration::zero()) return std::nullopt;
    return last_look_ + options_.interval;
  }

  [[nodiscard]] bool is_silent(Rank rank) const {
    return is_silent(members_[static_cast<size_t>(rank.value)]);
  }
  // Time since something was received from a silent member. Empty: it is not silent.
  [[nodiscard]] std::optional<Duration> silence(Rank rank) const;
  [[nodiscard]] std::vector<Rank> silent() const;
  [[nodiscard]] bool is_anybody_silent() const;

 private:
  struct LastSign {
    bool is_there = false;
    bool is_told = false;  // since the last look
    Duration heard{};      // by ran_
  };
  bool is_silent(const LastSign& m) const {
    return m.is_there && options_.timeout > Duration::zero() &&
           ran_ - m.heard > options_.timeout;
  }
  LastSign& member(Rank rank) { return members_[static_cast<size_t>(rank.value)]; }

  HeartbeatOptions options_;
  std::vector<LastSign> members_;
  int32_t num_there_ = 0;
  Duration ran_{};  // the clock of silence
  TimePoint last_look_{};
};

}  // namespace aikido::engine

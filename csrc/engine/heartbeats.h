// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Decides when a member says that it lives, and which members have gone silent. PURE:
// events and `now` in, decisions out. One thread.

#include <cstdint>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "base/types.h"

namespace aikido::engine {

struct HeartbeatOptions {
  Duration interval{};  // zero: no heartbeats, and nobody is silent
  Duration timeout{};   // zero: nobody is silent
};

// Note [silence is measured in time that we ran]
// A member that was stopped itself, or whose machine slept, has heard nothing either.
// So the clock of silence counts no more than an interval from one look to the next:
// what was longer is time in which we were not there to hear.
class Heartbeats {
 public:
  Heartbeats(const HeartbeatOptions& options, int32_t size);

  // A member is there, and is expected to beat from now on.
  void add(Rank rank, TimePoint now);
  // It is lost or has left.
  void remove(Rank rank);
  // Something came from it.
  void on_heard(Rank rank) { member(rank).heard = ran_; }
  // Something that it reads at once went to it: as good as a heartbeat.
  void on_sent(Rank rank) { member(rank).is_told = true; }

  // To be called at next_look(), or later. Returns who is to get a heartbeat.
  std::vector<Rank> on_time(TimePoint now);
  // Empty: there is nobody to beat for.
  [[nodiscard]] std::optional<TimePoint> next_look() const {
    if (num_there_ == 0 || options_.interval <= Duration::zero()) return std::nullopt;
    return last_look_ + options_.interval;
  }

  [[nodiscard]] bool is_silent(Rank rank) const {
    return is_silent(members_[static_cast<size_t>(rank.value)]);
  }
  // For how long nothing has come from a member that is silent; empty if it is not.
  [[nodiscard]] std::optional<Duration> silence(Rank rank) const;
  [[nodiscard]] std::vector<Rank> silent() const;
  [[nodiscard]] bool is_anybody_silent() const;

 private:
  struct Member {
    bool is_there = false;
    bool is_told = false;  // since the last look
    Duration heard{};      // by ran_
  };
  bool is_silent(const Member& m) const {
    return m.is_there && options_.timeout > Duration::zero() &&
           ran_ - m.heard > options_.timeout;
  }
  Member& member(Rank rank) { return members_[static_cast<size_t>(rank.value)]; }

  HeartbeatOptions options_;
  std::vector<Member> members_;
  int32_t num_there_ = 0;
  Duration ran_{};  // the clock of silence
  TimePoint last_look_{};
};

}  // namespace aikido::engine

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Writer of a group's events about its members into the event log of the process
// (trace/event_log.h). An ongoing state is reported once, when it begins. Progress
// thread.

#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/rank_set.h"
#include "base/status.h"
#include "base/types.h"
#include "membership/view.h"
#include "straggler/data_shard.h"
#include "trace/event_log.h"

namespace aikido::engine {

class MemberEvents {
 public:
  // A member counts as recovered if no backup has stood in for it for this time.
  static constexpr Duration kCalm = std::chrono::seconds(10);

  // `event_log` may be null; then nothing is written. Otherwise it must outlive this
  // object.
  MemberEvents(trace::EventLog* event_log, std::string group, Rank self, int32_t size);

  // The shards of `rank` move to other members. Reported once until the next view.
  void on_late(Rank rank);
  // All members that are silent now. Each is reported once until it is heard again.
  void on_silent(const std::vector<Rank>& ranks);
  // A member has said goodbye. Later views without it are not reported, because its
  // work is done.
  void on_left(Rank rank) { left_.insert(rank); }
  // The connection to `rank` broke for the reason `why`.
  void on_lost(Rank rank, const Status& why);
  // A view takes effect.
  void on_view(const membership::View& view);
  // A backup has contributed for a member. Reported once until kCalm has passed without
  // a stand-in.
  void on_stand_in(const straggler::StandIn& stand_in, TimePoint now);

 private:
  void tell(trace::EventKind kind, Rank member, std::vector<int32_t> by = {},
            std::string text = {});

  trace::EventLog* const event_log_;
  const std::string group_;
  const Rank self_;
  RankSet late_;
  RankSet silent_;
  RankSet left_;
  RankSet members_;
  RankSet owners_;
  std::vector<std::optional<TimePoint>> stood_in_;  // by rank: last stand-in
};

}  // namespace aikido::engine

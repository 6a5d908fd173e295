// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Watch of one member on the other owners of a skippable allreduce: suspects an owner
// if its result is missing for too long (Note [when an owner is suspected] in the
// source). Progress thread.

#include <cstdint>
#include <optional>

#include "base/clock.h"
#include "collectives/skippable/called_members.h"
#include "collectives/skippable/incoming_frames.h"
#include "collectives/skippable/partial_shards.h"
#include "collectives/skippable/skippable_part.h"
#include "straggler/group_policy.h"
#include "straggler/pace.h"

namespace aikido::collectives {

class OwnerSuspicion final : public SkippablePart {
 public:
  // The policy and the other parts must outlive this object.
  OwnerSuspicion(SkippableOperation& operation, straggler::GroupPolicy& policy,
                 const PartialShards& shards, const IncomingFrames& incoming,
                 const CalledMembers& called)
      : SkippablePart(operation),
        group_policy_(policy),
        shards_(shards),
        incoming_(incoming),
        called_(called) {}

  // Something that a result may wait for is here now: the local call, a quorum of
  // calls, a result, or a new view. The wait for missing results begins again.
  void on_progress();
  // The result of another owner is complete: records how long the last result took.
  void note_lag();
  // A shard was closed here. If no result of another owner is missing then, the last
  // result took no time.
  void note_close();
  // The view has changed.
  void on_view();

  // Suspects owners, or lets members own shards again, if it is time.
  void watch();
  // Time of the next watch(). nullopt: only an event can change the answer.
  std::optional<TimePoint> next_watch() const;

 private:
  // When a result is due, and for a new view:
  //   - kWatching --most are here, host accepts a suspect--> kSuspected
  //   - kWatching --most are here, host accepts none--> kTooFew
  //   - kWatching --most are missing--> kWatching, restores owners
  //   - kTooFew --result due--> kTooFew, restores owners
  //   - any state --new view--> kWatching
  enum class State : uint8_t {
    kWatching,
    kSuspected,  // waits for the new view
    kTooFew,     // without the missing owners, too few owners would remain
  };
  std::optional<TimePoint> suspicion() const;
  bool are_most_here() const;
  std::optional<uint64_t> bytes_here(int32_t s) const;
  void look_at_result(TimePoint due);
  TimePoint due_by_pace(TimePoint due) const;
  bool is_late_itself(Rank owner) const;
  Duration waited_in_vain() const;
  RankSet missing_owners() const;

  straggler::GroupPolicy& group_policy_;
  const PartialShards& shards_;
  const IncomingFrames& incoming_;
  const CalledMembers& called_;
  State state_ = State::kWatching;
  int num_tries_ = 0;  // in this view, to restore owners
  // Time from which a missing owner can be measured, and the finding of the pace.
  TimePoint ready_at_{};
  std::optional<straggler::Pace> pace_;
  straggler::Pace::Finding found_{};
};

}  // namespace aikido::collectives

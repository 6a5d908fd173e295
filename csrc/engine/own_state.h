// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// State of the local member of a group, as other threads may read it, and the reason
// for which it was refused. The progress thread writes; functions for any thread say
// so.

#include <atomic>
#include <cstdint>
#include <optional>

#include "base/status.h"
#include "base/types.h"
#include "engine/member_state.h"

namespace aikido::engine {

class OwnState {
 public:
  explicit OwnState(Rank self) : self_(self) {}

  // Set: this member is excluded and was refused, for this reason. Its culprit is this
  // member, or the lost member without which the view cannot change.
  const std::optional<Status>& refusal() const { return refusal_; }
  void refuse(const Status& why) { refusal_ = why; }
  void forgive() { refusal_.reset(); }

  // Shows the present state to other threads. `is_removed`: the view excludes this
  // member.
  void publish(bool is_removed) {
    const bool is_own = refusal_ && refusal_->culprit() == self_;
    member_state_.store(refusal_ && !is_own ? MemberState::kEnded
                        : refusal_          ? MemberState::kRefused
                        : is_removed        ? MemberState::kReturning
                                            : MemberState::kMember);
  }
  void publish_known(uint64_t seq) { known_up_to_.store(seq); }
  // Another member has called collective `seq`.
  void publish_called_elsewhere(uint64_t seq) {
    if (seq > called_elsewhere_.load(std::memory_order_relaxed))
      called_elsewhere_.store(seq);
  }

  // Any thread.
  MemberState member_state() const { return member_state_.load(); }
  // Up to this number all operations were called here or are committed.
  uint64_t known_up_to() const { return known_up_to_.load(); }
  // Highest number that another member has called.
  uint64_t called_elsewhere() const { return called_elsewhere_.load(); }

 private:
  const Rank self_;
  std::optional<Status> refusal_;
  std::atomic<MemberState> member_state_{MemberState::kMember};
  std::atomic<uint64_t> known_up_to_{0};
  std::atomic<uint64_t> called_elsewhere_{0};
};

}  // namespace aikido::engine

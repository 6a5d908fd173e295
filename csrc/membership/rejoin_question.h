// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// The question of an excluded member, whether it may rejoin with its present state, and
// the answers to it. Pure. One thread.

#include <cstdint>
#include <utility>
#include <vector>

#include "base/rank_set.h"
#include "membership/view_message.h"

namespace aikido::membership {

// State of the question:
//
//     state      event                                       next
// - kOpen     ask()                                        kOpen
// - kOpen     note_unsure() of all members: a new text     kRefused
// - kOpen     refuse(): a member has said no               kRefused
// - kRefused  ask_anew(): another state is asked about     kOpen
// - kRefused  on_view() that takes this member in          kOpen
class RejoinQuestion {
 public:
  explicit RejoinQuestion(int32_t size) : unsure_(size) {}

  // This member asks no more, until ask_anew().
  void refuse() { is_refused_ = true; }
  bool is_refused() const { return is_refused_; }
  // An earlier request with another state may have taken this member in, or will. It
  // must then report its present state in a change of that view.
  bool is_outdated() const { return is_outdated_; }
  // Number of the present question, in each request and in its answers.
  uint32_t number() const { return number_; }

  // The state is another one, so the question is, too.
  void ask_anew(bool is_excluded) {
    is_refused_ = false;
    forget_answers();
    ++number_;
    if (is_excluded) is_outdated_ = is_outdated_ || num_requests_ > 0;
  }
  // A request with these results is about to be sent. Returns its index: requests go to
  // one member after another. Results of operations that have failed since are no
  // longer reported, and then the question has changed.
  int32_t ask(const std::vector<ReceivedShard>& received) {
    if (!is_about(received)) {
      if (num_requests_ > 0) ++number_;
      forget_answers();
      received_ = received;
    }
    return num_requests_++;
  }
  // True if the last request had these results.
  bool is_about(const std::vector<ReceivedShard>& received) const {
    return received_ == received;
  }
  // `rank` can never tell. Returns true if that is news.
  bool note_unsure(Rank rank) { return unsure_.insert(rank); }
  bool is_unsure(Rank rank) const { return unsure_.contains(rank); }
  bool are_unsure(const RankSet& ranks) const { return unsure_.covers(ranks); }
  void forget_answers() { unsure_ = RankSet(unsure_.world_size()); }

  // A new view. Answers about an earlier view belong to another question.
  void on_view(bool is_excluded, bool was_excluded) {
    if (std::exchange(num_requests_, 0) > 0) ++number_;
    forget_answers();
    is_refused_ = is_refused_ && is_excluded;
    is_outdated_ = is_outdated_ && was_excluded;
  }

 private:
  std::vector<ReceivedShard> received_;  // in the last request
  RankSet unsure_;                       // members that can never tell
  int32_t num_requests_ = 0;             // since this member is excluded
  uint32_t number_ = 0;
  bool is_refused_ = false;
  bool is_outdated_ = false;
};

}  // namespace aikido::membership

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// The members of a group that are connected, and what keeps the others away. The
// progress thread writes it, and a thread that makes the group waits for changes. Any
// thread.

#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "base/types.h"

namespace aikido::engine {

class LinkBoard {
 public:
  // The member itself counts as connected.
  LinkBoard(Rank self, int32_t size);

  void note_linked(Rank rank);
  bool is_linked(Rank rank) const;
  // Members that are not connected, in the order of their ranks.
  std::vector<Rank> missing() const;

  // The group cannot come about. Only the first reason counts.
  void refuse(const Status& why);
  std::optional<Status> refusal() const;

  // Reason why another connection was rejected.
  void note_turned_away(const std::string& why);
  std::string turned_away() const;
  // Reason why a member on this host that this member dialled does not share memory
  // with it. Empty: none is known.
  void note_sharing_failure(const std::string& why);
  std::string sharing_failure() const;

  // Sleeps until a member is connected or the group is refused, or for `longest`.
  void await_change(Duration longest);
  // Waits until all are connected or the group is refused. `check` is called now and
  // then without a lock; its failure ends the wait. Returns ok with missing() at
  // `deadline`.
  Status await_all(const Clock& clock, TimePoint deadline,
                   const std::function<Status()>& check);

 private:
  bool are_all_linked() const;  // requires mutex_

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_.
  std::vector<bool> is_linked_;
  std::optional<Status> refusal_;  // of a member, or there is no room for one
  std::string sharing_failure_;
  std::string turned_away_;
};

}  // namespace aikido::engine

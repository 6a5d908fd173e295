// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Collectives of a group that are under way, by their numbers, and traces of ended
// collectives. Progress thread.
//
// An entry is in one of these states:
//
//   made by the first frame of another member --> called by the local member
//   called                                    --> held --> started --> ended
//   made, or not yet made                     --> failed ahead --> called --> ended
//
// A call that fails ahead of the local call keeps only its reason, for that call. An
// ended call leaves the table. A skippable call that still sends data to others is then
// in sending(), and the last calls that ended well are in recent().

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "base/recycler.h"
#include "base/status.h"
#include "base/types.h"
#include "collectives/call.h"
#include "collectives/skippable_operation.h"
#include "collectives/view_host.h"
#include "engine/active_call.h"
#include "engine/recent_calls.h"

namespace aikido::engine {

class CallTable {
 public:
  using Calls = RecycledMap<uint64_t, ActiveCall>;
  using Sending = std::map<uint64_t, std::shared_ptr<collectives::SkippableOperation>>;

  // `host` of the operations and `recycler` of the entries must outlive the table.
  CallTable(collectives::ViewHost* host, const Recycler& recycler)
      : host_(host), calls_(recycler) {}

  // ---- calls under way, in the order of their numbers
  bool is_empty() const { return calls_.empty(); }
  bool contains(uint64_t seq) const { return calls_.contains(seq); }
  auto begin() { return calls_.begin(); }
  auto end() { return calls_.end(); }
  auto begin() const { return calls_.begin(); }
  auto end() const { return calls_.end(); }
  auto find(uint64_t seq) { return calls_.find(seq); }
  auto find(uint64_t seq) const { return calls_.find(seq); }
  // First call with this number or a higher one.
  auto from(uint64_t seq) const { return calls_.lower_bound(seq); }
  // First call with a higher number.
  auto behind(uint64_t seq) { return calls_.upper_bound(seq); }
  auto behind(uint64_t seq) const { return calls_.upper_bound(seq); }
  // Their operations. For loops that change the table.
  std::vector<std::shared_ptr<collectives::Operation>> operations() const;
  // Lowest call that has one result for all. The largest number if there is none.
  Seq first_agreed() const;
  // A call of the local member is not over.
  bool has_open() const;

  // ---- changes
  // Makes the operation of a call. Requires: the table has no call of this number.
  Calls::iterator add(Seq seq, const collectives::Call& call, Rank first_caller);
  // The call has failed before the local member makes it. The entry becomes an
  // operation of unknown kind that has failed: it fails any call of this number.
  void fail_ahead(Seq seq, const Status& why);
  // The local member has made, or skipped, a call that had failed ahead.
  void on_failed_ahead_called() { --num_failed_ahead_; }
  size_t num_failed_ahead() const { return num_failed_ahead_; }
  // Calls `start` with the first call as long as this is a barrier that is held. Does
  // nothing inside of `start`: a barrier that ends at once returns here, so many of
  // them need no deep stack.
  template <class Start>
  void start_barriers(Start&& start) {
    if (std::exchange(is_starting_barriers_, true)) return;
    while (!calls_.empty() && calls_.begin()->second.held &&
           calls_.begin()->second.is_barrier())
      start(calls_.begin()->second);
    is_starting_barriers_ = false;
  }
  // Removes a call that needs no trace.
  void erase(uint64_t seq) { calls_.erase(seq); }
  // Removes a call that is over, and keeps its traces.
  void retire(Calls::iterator it);

  // ---- ended calls
  const Sending& sending() const { return sending_; }
  // Forgets the call if it has sent everything.
  void drop_sent(uint64_t seq);
  const RecentCalls& recent() const { return recent_; }

 private:
  collectives::ViewHost* const host_;
  Calls calls_;
  size_t num_failed_ahead_ = 0;
  bool is_starting_barriers_ = false;
  Sending sending_;
  RecentCalls recent_;
};

}  // namespace aikido::engine

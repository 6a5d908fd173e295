// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Exchange that moves items of a step between the ranks of a group: it carries the
// messages of a reassign::Reassigner, whose header has the rules. Requests of other
// ranks are answered on the progress thread, so they do not wait for the training
// thread.
//
// Threads: begin(), claim(), finished(), leave() and outcome() are for one thread, the
// training thread. The others may run on any thread except the progress thread. Only
// claim() blocks. In a forked child all calls fail or do nothing.
//
// Note [threads of an exchange]
// A mutex guards the Reassigner, for some microseconds each time. Messages enter a
// queue under the mutex, and only the progress thread takes them out. So they leave in
// the order in which the Reassigner made them. The training thread wakes the progress
// thread only for messages, or if the next look became earlier.
//
// Note [life of an exchange]
// The exchange does not keep its group alive. The port (message_port.h) keeps the
// inner object alive until the group or the exchange ends. At that end the port calls
// on_end(), or stop() closes the port; both take the timer off the loop.

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "base/own_process.h"
#include "base/rank_set.h"
#include "base/status.h"
#include "reassign/reassigner.h"

namespace aikido::engine {

class Communicator;

struct ReassignExchangeOptions {
  std::vector<int32_t> hosts;  // number of the host of each rank; empty: one host
  int32_t num_helpers = reassign::kDefaultHelpers;
  reassign::ReassignOptions reassign;
};

// Item that the caller computes next.
struct ClaimedItem {
  reassign::NamedItem item;
  bool is_last = false;   // nothing follows in this step
  uint32_t num_left = 0;  // own items that nobody has claimed
};

// Work of this rank in the present or last step.
struct ExchangeReport {
  std::optional<uint64_t> step;  // empty: no step has begun
  uint32_t num_begun_with = 0;
  uint32_t num_given = 0;                  // own items granted, without returned items
  std::vector<reassign::NamedItem> taken;  // begun items of other owners, in order
  uint32_t num_messages = 0;               // sent
  uint64_t num_bytes = 0;                  // of these messages, without their padding
};

class ReassignExchange {
 public:
  // Exchange number `number` of this group, counted from 0. All ranks make it with the
  // same number and the same options. A rank tells its peers its options
  // (exchange_hello.h); if they differ, begin() and claim() fail with kInvalidArgument
  // on both. kInvalidArgument: an option is out of its range.
  static Result<std::unique_ptr<ReassignExchange>> open(
      const std::shared_ptr<Communicator>& communicator, uint64_t number,
      const ReassignExchangeOptions& options);
  // As stop().
  ~ReassignExchange();
  ReassignExchange(const ReassignExchange&) = delete;
  ReassignExchange& operator=(const ReassignExchange&) = delete;

  int32_t num_ranks() const;
  // Begins a step with the own items, large ones first. kInvalidArgument: the step
  // before is not over, `step` is not later than it, or a cost is not above 0. Also
  // fails as claim() does.
  Status begin(uint64_t step, std::vector<reassign::ItemSpec> items);
  // Next item, own ones first. Empty: nothing more in this step. Waits while an answer
  // of another rank can bring an item, for at most `timeout`; then kTimedOut. After
  // stop() kAborted. After the end of the group the reason of that end.
  Result<std::optional<ClaimedItem>> claim(Duration timeout);
  // The gradient of the item claimed last, which took `took`, is in this rank's sum.
  Status finished(Duration took);
  // Ends the step early. Returns the own items that are not computed here, with the
  // item claimed last unless finished() was called for it.
  Result<std::vector<reassign::NamedItem>> leave();
  // The sum of `step` has the contributions of `contributors`. kInvalidArgument: the
  // step is not over here, or the outcome of it or a later one is known.
  Status outcome(uint64_t step, const RankSet& contributors);
  // Own items that were given away and are in no sum. Each is returned once.
  Result<std::vector<reassign::Loss>> take_losses();
  Result<ExchangeReport> report() const;
  // Takes no part any more, and ends a claim() that waits. Never blocks. Idempotent.
  void stop();

 private:
  class Inner;

  explicit ReassignExchange(std::shared_ptr<Inner> inner);
  Status check_process() const;

  std::shared_ptr<Inner> inner_;
  OwnProcess own_process_;
};

}  // namespace aikido::engine

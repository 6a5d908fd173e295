// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Ledger of the items that a rank has granted to its helpers, with the state of each.
// Only the ledger of the owner decides if an item is lost. So each item is re-issued by
// one rank, once. One thread, no clock.

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/rank_set.h"
#include "base/status.h"
#include "reassign/item.h"

namespace aikido::reassign {

// Conversation: the rank at its other end, and its serial. The rank that asks chooses
// the serial.
struct GrantKey {
  Rank helper = kNoRank;
  uint32_t serial = 0;
  friend auto operator<=>(const GrantKey&, const GrantKey&) = default;
};

// State of a grant. "With" and "without": the step's outcome has, or has not, the
// contribution of the helper.
//
//     state       event               next        items
// - kSent       confirmed           kConfirmed
// - kSent       refused             kClosed     the owner's again; lost after its step
// - kSent       outcome with        kUnclear
// - kUnclear    confirmed           kCounted    in the sum
// - kUnclear    refused             kClosed     lost
// - kUnclear    helper gone         kClosed     in doubt
// - kConfirmed  some given back     kConfirmed  as after a refusal, these items
// - kConfirmed  outcome with        kCounted    in the sum
// - kCounted    some given back     kCounted    lost, these items
// - kCounted    helper gone, owes   kClosed     in doubt, items that are not done
//   an answer to kCancel
// - kSent       outcome without     kClosed     lost
// - kConfirmed  outcome without     kClosed     lost
// - kClosed     any                 kClosed
enum class GrantState : uint8_t { kSent, kConfirmed, kUnclear, kCounted, kClosed };

// Item of this rank that is not in the sum of its step although this rank gave it away.
struct Loss {
  enum class Reason : uint8_t {
    kSkipped,       // the helper's contribution is not in the outcome
    kRefusedLate,   // the helper refused after the end of the step here
    kReturnedLate,  // the helper gave it back after the end of the step here
    // The helper contributed and died before it could tell if its contribution had the
    // item. To issue the item again could count it twice: drop and count it instead.
    kInDoubt,
  };
  ItemId id;
  ItemSpec spec;
  Rank helper = kNoRank;
  Reason reason = Reason::kSkipped;
};

// Items that come back to their owner, from index `first` on.
struct ReturnedItems {
  uint32_t first = 0;
  std::vector<ItemSpec> items;
};

class GrantLedger {
 public:
  struct Entry {
    uint64_t step = 0;
    uint32_t first = 0;
    std::vector<ItemSpec> items;  // not given back
    uint32_t num_done = 0;        // of the front
    GrantState state = GrantState::kSent;
    TimePoint deadline{};  // of the answer
    uint32_t recall = 0;   // serial of a kCancel without an answer; 0: none
    bool is_helper_gone = false;
    uint32_t num_open() const { return static_cast<uint32_t>(items.size()) - num_done; }
  };

  explicit GrantLedger(Rank self) : self_(self) {}

  // Requires: no conversation with this key is in the ledger (see forget_before()).
  void add(GrantKey key, uint64_t step, uint32_t first, std::vector<ItemSpec> items,
           TimePoint deadline);
  // The helper has answered the grant. Unknown keys are ignored.
  void confirm(GrantKey key);
  // Returns the items that this rank must compute now. Empty if `is_step_over`, or if
  // the items were reported already: then the ledger reports the loss, where there is
  // one.
  ReturnedItems refuse(GrantKey key, bool is_step_over);
  // The helper gives back `range` of `step`, the tail of a grant. Returns the items as
  // refuse() does. kProtocol if the helper does not have these items.
  Result<ReturnedItems> give_back(Rank helper, uint64_t step, ItemRange range,
                                  bool is_step_over);
  // The helper has computed an item. kProtocol if it does not have the item.
  Status done(Rank helper, uint64_t step, uint32_t index);

  // A kCancel with this serial went to `helper`; its answer came, or is late.
  void recall(Rank helper, uint64_t step, uint32_t serial);
  void end_recall(Rank helper, uint32_t serial);

  // `rank` will never answer again.
  void helper_gone(Rank rank);
  // The result of `step` has the contributions of `contributors`.
  void on_outcome(uint64_t step, const RankSet& contributors);
  // Forgets steps before `step`. Their late messages are ignored.
  void forget_before(uint64_t step);

  // Items of `step` at `helper` that it has confirmed, and that are not done.
  std::vector<ItemSpec> open_items(Rank helper, uint64_t step) const;
  bool has_granted(Rank helper, uint64_t step) const;
  // Last deadline of the answers that are still to come for `step`, from helpers that
  // are not gone.
  std::optional<TimePoint> answers_until(uint64_t step) const;
  // Losses since the last call.
  std::vector<Loss> take_losses() { return std::exchange(losses_, {}); }

 private:
  void lose(const GrantKey& key, const Entry& entry, size_t from, Loss::Reason reason);
  void close(const GrantKey& key, Entry& entry, size_t from, Loss::Reason reason);

  const Rank self_;
  std::map<GrantKey, Entry> entries_;
  std::vector<Loss> losses_;
};

}  // namespace aikido::reassign

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Work that one rank has in one step: its own items, the items that it has taken over,
// and the item that it computes. It predicts how long they take. One thread at a time,
// except table() (item_table.h). No clock.

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "reassign/item.h"
#include "reassign/item_rate.h"
#include "reassign/item_table.h"

namespace aikido::reassign {

// Consecutive items of one owner that this rank has taken, or got back, and has not
// begun.
struct Block {
  Rank owner = kNoRank;
  uint32_t first = 0;
  std::vector<ItemSpec> items;
};

struct NamedItem {
  ItemId id;
  ItemSpec spec;
};

class OwnWork {
 public:
  // An item that takes this multiple of its expected time shows a slower rank.
  static constexpr double kOverdue = 2;

  explicit OwnWork(Rank self) : self_(self) {}

  // Begins a step with own items. The rest of the former step is forgotten.
  void begin(uint64_t step, std::vector<ItemSpec> items);
  const std::shared_ptr<ItemTable>& table() const { return table_; }
  const std::vector<ItemSpec>& items() const { return items_; }
  const ItemRate& rate() const { return rate_; }

  // Next item: blocks in their order, then own items. nullopt: there is none.
  std::optional<NamedItem> claim();
  bool has_claimable() const;
  // Own item with this index.
  NamedItem own(uint32_t index) const;

  void add(Block block) { blocks_.push_back(std::move(block)); }
  // Last block of items of this owner; nullptr: none. Valid until the next call.
  Block* last_block_of(Rank owner);
  // Removes items from the tail of a block that last_block_of() returned.
  void shorten(Block* block, uint32_t count);
  // Takes all that is not finished out of this object: first the running item, then all
  // blocks, then the unclaimed own items.
  std::vector<Block> take_all();

  void start(const NamedItem& item, TimePoint now);
  // The running item is finished. nullopt: no item was running.
  std::optional<NamedItem> finish(Duration took);
  // No item is running any more, finished or not.
  void stop() { running_.reset(); }
  // True if this rank has finished an item in this step.
  bool has_finished() const { return has_finished_; }
  const std::optional<NamedItem>& running() const { return running_; }
  // When the running item will have taken much longer than expected, or has taken twice
  // as long as at the last call of look().
  std::optional<TimePoint> next_look() const;
  void look(TimePoint now);

  // Nanoseconds per unit of cost at present; 0: not known. An item that is overdue
  // shows the present speed.
  double ns_per_cost(TimePoint now) const;
  // Nanoseconds for the running item and the blocks; for these and the unclaimed own
  // items; and for all items with which the step began.
  double committed_ns(TimePoint now) const;
  double remaining_ns(TimePoint now) const;
  double step_ns(TimePoint now) const;
  double unclaimed_cost() const;

 private:
  const Rank self_;
  ItemRate rate_;
  uint64_t step_ = 0;
  std::vector<ItemSpec> items_;
  double total_cost_ = 0;
  std::shared_ptr<ItemTable> table_ = std::make_shared<ItemTable>(0);
  std::vector<Block> blocks_;
  std::optional<NamedItem> running_;
  bool has_finished_ = false;
  TimePoint since_{};  // begin of the running item
  std::optional<TimePoint> look_;
};

}  // namespace aikido::reassign

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "reassign/own_work.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace aikido::reassign {

void OwnWork::begin(uint64_t step, std::vector<ItemSpec> items) {
  step_ = step;
  items_ = std::move(items);
  total_cost_ = 0;
  for (const ItemSpec& item : items_) total_cost_ += item.cost;
  table_ = std::make_shared<ItemTable>(static_cast<uint32_t>(items_.size()));
  blocks_.clear();
  running_.reset();
  has_finished_ = false;
}

std::optional<NamedItem> OwnWork::claim() {
  if (blocks_.empty()) {
    const auto claimed = table_->claim();
    return claimed ? std::optional(own(claimed->index)) : std::nullopt;
  }
  Block& block = blocks_.front();
  const NamedItem item{{step_, block.owner, block.first}, block.items.front()};
  block.items.erase(block.items.begin());
  ++block.first;
  if (block.items.empty()) blocks_.erase(blocks_.begin());
  return item;
}

bool OwnWork::has_claimable() const {
  return !blocks_.empty() || table_->unclaimed().count > 0;
}

NamedItem OwnWork::own(uint32_t index) const {
  return {{step_, self_, index}, items_[index]};
}

Block* OwnWork::last_block_of(Rank owner) {
  const auto found = std::find_if(blocks_.rbegin(), blocks_.rend(),
                                  [&](const Block& b) { return b.owner == owner; });
  return found == blocks_.rend() ? nullptr : &*found;
}

void OwnWork::shorten(Block* block, uint32_t count) {
  block->items.resize(block->items.size() - count);
  if (block->items.empty()) blocks_.erase(blocks_.begin() + (block - blocks_.data()));
}

std::vector<Block> OwnWork::take_all() {
  std::vector<Block> all;
  if (running_)
    all.push_back({running_->id.owner, running_->id.index, {running_->spec}});
  running_.reset();
  for (Block& block : blocks_) all.push_back(std::move(block));
  blocks_.clear();
  const ItemRange own = table_->give_tail(std::numeric_limits<uint32_t>::max());
  if (own.count == 0) return all;
  const auto first = items_.begin() + own.first;
  all.push_back({self_, own.first, {first, first + own.count}});
  return all;
}

void OwnWork::start(const NamedItem& item, TimePoint now) {
  running_ = item;
  since_ = now;
  look_.reset();
  if (const auto rate = rate_.present_ns_per_cost())
    look_ = now + scaled(Duration(1), kOverdue * item.spec.cost * *rate);
}

std::optional<NamedItem> OwnWork::finish(Duration took) {
  if (running_) {
    rate_.on_item(running_->spec.cost, took);
    has_finished_ = true;
  }
  return std::exchange(running_, std::nullopt);
}

std::optional<TimePoint> OwnWork::next_look() const {
  return running_ ? look_ : std::nullopt;
}

void OwnWork::look(TimePoint now) {
  look_ = now + (now - since_);
}

double OwnWork::ns_per_cost(TimePoint now) const {
  const auto measured = rate_.present_ns_per_cost();
  if (!measured) return 0;
  if (!running_) return *measured;
  const double now_ns =
      static_cast<double>((now - since_).count()) / running_->spec.cost;
  const double usual = *measured * std::max(kOverdue, 1 + 3 * rate_.deviation());
  return now_ns > usual ? now_ns : *measured;
}

double OwnWork::committed_ns(TimePoint now) const {
  const double ns = ns_per_cost(now);
  double sum = 0;
  for (const Block& block : blocks_)
    for (const ItemSpec& item : block.items) sum += item.cost * ns;
  if (running_ && ns > 0) {
    // An item that is over its time needs as much again as it is over, as far as known.
    const double expected = running_->spec.cost * *rate_.present_ns_per_cost();
    sum += std::abs(expected - static_cast<double>((now - since_).count()));
  }
  return sum;
}

double OwnWork::remaining_ns(TimePoint now) const {
  return committed_ns(now) + unclaimed_cost() * ns_per_cost(now);
}

double OwnWork::step_ns(TimePoint now) const {
  return total_cost_ * ns_per_cost(now);
}

double OwnWork::unclaimed_cost() const {
  const ItemRange range = table_->unclaimed();
  double sum = 0;
  for (uint32_t i = range.first; i < range.end(); ++i) sum += items_[i].cost;
  return sum;
}

}  // namespace aikido::reassign

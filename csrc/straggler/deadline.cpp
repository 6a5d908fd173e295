// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "straggler/deadline.h"

#include <algorithm>

#include "base/check.h"

namespace aikido::straggler {
namespace {

// Sums the cost of deadlines over one set of lags, for deadlines that never go down.
class CostOfDeadline {
 public:
  CostOfDeadline(std::span<const Duration> lags, Duration price)
      : lags_(lags), price_(price) {}

  Duration at(Duration deadline) {
    while (num_met_ < lags_.size() && lags_[num_met_] <= deadline)
      waited_ += lags_[num_met_++];
    return waited_ +
           (deadline + price_) * static_cast<int64_t>(lags_.size() - num_met_);
  }

 private:
  std::span<const Duration> lags_;
  Duration price_;
  size_t num_met_ = 0;
  Duration waited_{0};
};

// slack * lag, at most the ceiling.
Duration with_slack(Duration lag, const PolicyOptions& options) {
  const double scaled = static_cast<double>(lag.count()) * options.slack;
  if (scaled >= static_cast<double>(options.ceiling.count())) return options.ceiling;
  return Duration(static_cast<int64_t>(scaled));
}

// The cheapest of the deadlines that it is offered, in ascending order.
class Cheapest {
 public:
  explicit Cheapest(CostOfDeadline& cost) : cost_(cost) {}

  void offer(Duration deadline) {
    if (const Duration c = cost_.at(deadline); c <= lowest_) {
      lowest_ = c;
      deadline_ = deadline;
    }
  }
  Duration deadline() const { return deadline_; }
  Duration cost() const { return lowest_; }

 private:
  CostOfDeadline& cost_;
  Duration lowest_ = Duration::max();
  Duration deadline_{0};
};

}  // namespace

Duration price_of_loss(Duration median_period, int32_t world_size, Duration floor) {
  AIKIDO_CHECK(world_size >= 1, "world_size=", world_size);
  return std::max(median_period / kDiscount / world_size, floor);
}

Duration grace_of(Duration price, const PolicyOptions& options) {
  return std::clamp(price, options.floor, options.ceiling);
}

bool is_regularly_late(const Window& lags, Duration grace) {
  const auto sorted = lags.sorted();
  const auto beyond =
      sorted.end() - std::upper_bound(sorted.begin(), sorted.end(), grace);
  return beyond >= kRegularlyLate && lags.longest_of_last(kRecovered) > grace;
}

Duration cheapest_deadline(std::span<const Duration> lags, Duration price,
                           const PolicyOptions& options) {
  AIKIDO_CHECK(!lags.empty(), "no lags");
  const Duration grace = grace_of(price, options);
  CostOfDeadline cost(lags, price);
  Cheapest below(cost);
  below.offer(Duration::zero());
  for (const Duration lag : lags) {
    const Duration deadline = with_slack(lag, options);
    if (deadline >= grace) break;
    below.offer(deadline);
  }
  return cost.at(grace) <= below.cost() ? grace : below.deadline();
}

Deadlines::Deadlines(const PolicyOptions& options, const History& history)
    : options_(options), history_(history) {}

Deadlines::Answer Deadlines::of(Rank rank, uint64_t bytes) {
  const Answer made = made_of(rank, bytes);
  return {std::min(made.deadline, longest_), made.is_warming_up};
}

Duration Deadlines::for_quorum(int32_t num_missing, uint64_t bytes) const {
  const Duration as_a_rule = with_slack(history_.median_after_half(bytes), options_);
  return std::min(std::max(num_missing * grace_of(price(bytes), options_), as_a_rule),
                  longest_);
}

Duration Deadlines::price(uint64_t bytes) const {
  return price_of_loss(history_.median_period(bytes), history_.world_size(),
                       options_.floor);
}

Deadlines::Answer Deadlines::made_of(Rank rank, uint64_t bytes) {
  const Window& lags = history_.lags(rank, bytes);
  if (lags.size() < options_.warmup_operations) return {options_.ceiling, true};
  const auto n = static_cast<size_t>(history_.world_size());
  const size_t index = History::size_class(bytes) * n + static_cast<size_t>(rank.value);
  if (index >= cache_.size()) cache_.resize((index / n + 1) * n);
  Cached& cached = cache_[index];
  const Duration price = this->price(bytes);
  if (cached.version != lags.version() || cached.price != price) {
    cached.version = lags.version();
    cached.price = price;
    const Duration grace = grace_of(price, options_);
    cached.deadline = is_regularly_late(lags, grace)
                          ? cheapest_deadline(lags.sorted(), price, options_)
                          : grace;
  }
  return {cached.deadline, false};
}

}  // namespace aikido::straggler

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "reassign/item_rate.h"

#include <algorithm>
#include <cmath>
#include <span>

namespace aikido::reassign {
namespace {

// Deviation of a normal distribution, divided by its median absolute deviation.
constexpr double kNormalScale = 1.4826;

double median_of(std::span<const double> values) {
  std::array<double, ItemRate::kWindow> sorted{};
  const auto end = std::copy(values.begin(), values.end(), sorted.begin());
  std::sort(sorted.begin(), end);
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? sorted[middle]
                                : (sorted[middle - 1] + sorted[middle]) / 2;
}

}  // namespace

void ItemRate::on_item(double cost, Duration took) {
  if (!(cost > 0) || took.count() <= 0) return;
  if (size_ == kWindow) {
    std::copy(rates_.begin() + 1, rates_.end(), rates_.begin());
    --size_;
  }
  rates_[size_++] = static_cast<double>(took.count()) / cost;
  measure();
  if (size_ <= kRecent) return;
  const double recent = median_of({rates_.data() + size_ - kRecent, kRecent});
  const double noise = std::max(kLeastChange, kChangeDeviations * deviation_);
  // The factor is the same for both directions.
  if (std::abs(std::log(recent / *median_)) <= std::log1p(noise)) return;
  std::copy_n(rates_.begin() + static_cast<std::ptrdiff_t>(size_ - kRecent), kRecent,
              rates_.begin());
  size_ = kRecent;
  measure();
}

std::optional<double> ItemRate::present_ns_per_cost() const {
  if (size_ == 0) return std::nullopt;
  const double last = rates_[size_ - 1];
  const double large =
      std::max(std::log(kLargeChange), kLargeChangeDeviations * std::log1p(deviation_));
  return std::abs(std::log(last / *median_)) > large ? last : median_;
}

void ItemRate::measure() {
  median_ = median_of({rates_.data(), size_});
  std::array<double, kWindow> errors{};
  for (size_t i = 0; i < size_; ++i) errors[i] = std::abs(rates_[i] / *median_ - 1);
  deviation_ = kNormalScale * median_of({errors.data(), size_});
}

}  // namespace aikido::reassign

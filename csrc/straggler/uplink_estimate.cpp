// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "straggler/uplink_estimate.h"

#include <algorithm>
#include <limits>

namespace aikido::straggler {

void UplinkEstimate::on_end(uint64_t bytes, TimePoint now) {
  if (bytes < kLeastBytes) return;
  last_ = now;
  rates_[num_++ % kPayloads] =
      now > begun_ ? static_cast<double>(bytes) / to_seconds(now - begun_)
                   : std::numeric_limits<double>::infinity();
}

std::optional<double> UplinkEstimate::bytes_per_second(TimePoint now) const {
  if (num_ < kLeastPayloads || now - last_ > kFresh) return std::nullopt;
  auto rates = rates_;
  const auto end = rates.begin() + static_cast<ptrdiff_t>(std::min(num_, kPayloads));
  const auto median = rates.begin() + (end - rates.begin() - 1) / 2;
  std::nth_element(rates.begin(), median, end);
  return *median;
}

void Demand::on_call(uint64_t bytes, TimePoint now) {
  last_[num_calls_++ % kCalls] = {bytes, now};
}

double Demand::bytes_per_second(int32_t num_owners) const {
  if (num_calls_ < kCalls) return 0;
  const Called& oldest = last_[num_calls_ % kCalls];
  const Called& newest = last_[(num_calls_ - 1) % kCalls];
  if (newest.at - oldest.at < kLeastTime) return 0;
  uint64_t bytes = 0;
  for (const Called& call : last_) bytes += call.bytes;
  bytes -= oldest.bytes;
  const double share = 2.0 * (num_owners - 1) / num_owners;
  return share * static_cast<double>(bytes) / to_seconds(newest.at - oldest.at);
}

Suits Demand::judge(std::optional<double> from_it, int32_t num_owners) const {
  const double needed = bytes_per_second(num_owners);
  if (!from_it || needed <= 0) return Suits::kUnknown;
  return *from_it * (num_owners - 1) >= needed ? Suits::kYes : Suits::kNo;
}

}  // namespace aikido::straggler

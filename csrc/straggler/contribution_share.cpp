// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "straggler/contribution_share.h"

#include <algorithm>

namespace aikido::straggler {

void ContributionShare::on_close(uint64_t here, uint64_t total, TimePoint now) {
  if (here == 0 || total < kLeastBytes || total > kMostBytes) return;
  shares_[num_++ % kContributions] =
      static_cast<double>(here) / static_cast<double>(total);
  last_ = now;
}

Suits ContributionShare::suits(TimePoint now) const {
  if (num_ < kLeastForNo || now - last_ > kFresh) return Suits::kUnknown;
  auto shares = shares_;
  const auto end =
      shares.begin() + static_cast<ptrdiff_t>(std::min(num_, kContributions));
  const auto median = shares.begin() + (end - shares.begin() - 1) / 2;
  std::nth_element(shares.begin(), median, end);
  if (*median < kEnough) return Suits::kNo;
  return num_ < kContributions ? Suits::kUnknown : Suits::kYes;
}

}  // namespace aikido::straggler

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "engine/receive_window.h"

#include <algorithm>

#include "engine/send_window.h"

namespace aikido::engine {

bool ReceiveWindow::admit(uint64_t seq, uint64_t bytes, uint64_t called) {
  while (!ahead_.empty() && ahead_.begin()->first <= called) {
    ahead_bytes_ -= ahead_.begin()->second;
    ahead_.erase(ahead_.begin());
  }
  if (seq <= called) return true;
  const auto [its, is_new] = ahead_.try_emplace(seq, 0);
  const uint64_t charge = bytes + (is_new ? SendWindow::kMessageCharge : 0);
  its->second += charge;
  ahead_bytes_ += charge;
  // The next collective may come at any size, and so may one single collective.
  if (seq == called + 1) return true;
  const auto next = ahead_.find(called + 1);
  const bool has_next = next != ahead_.end();
  const uint64_t beyond = ahead_bytes_ - (has_next ? next->second : 0);
  if (beyond <= 2 * bytes_) return true;
  uint64_t largest = 0;
  for (const auto& [ahead, counted] : ahead_)
    if (ahead != called + 1) largest = std::max(largest, counted);
  return largest > bytes_ && beyond - largest <= 2 * bytes_;
}

void ReceiveWindow::on_over(uint64_t seq) {
  const auto it = ahead_.find(seq);
  if (it == ahead_.end()) return;
  ahead_bytes_ -= it->second;
  ahead_.erase(it);
}

}  // namespace aikido::engine

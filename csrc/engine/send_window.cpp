// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "engine/send_window.h"

#include <algorithm>
#include <utility>

namespace aikido::engine {

bool SendWindow::admit(uint64_t seq, uint64_t bytes) {
  if (seq <= called_) return true;
  // The next collective is always admitted; others keep their order behind held ones.
  if (seq > called_ + 1 && (!held_.empty() || !fits(seq, bytes))) return false;
  charge(seq, bytes);
  return true;
}

void SendWindow::hold(uint64_t seq, uint64_t bytes, MessageId id) {
  held_.emplace(seq, Held{bytes, id});
}

std::vector<SendWindow::MessageId> SendWindow::on_called(uint64_t called) {
  if (called <= called_) return {};
  called_ = called;
  while (!ahead_.empty() && ahead_.front().seq <= called_) {
    ahead_bytes_ -= ahead_.front().bytes;
    ahead_.pop_front();
  }
  return take_free();
}

std::vector<SendWindow::MessageId> SendWindow::on_over(uint64_t seq) {
  if (seq <= called_) return {};
  std::erase_if(ahead_, [&](const Ahead& a) {
    if (a.seq == seq) ahead_bytes_ -= a.bytes;
    return a.seq == seq;
  });
  return take_free();
}

void SendWindow::forget(MessageId id) {
  std::erase_if(held_, [id](const auto& held) { return held.second.id == id; });
}

std::vector<SendWindow::MessageId> SendWindow::clear() {
  std::vector<MessageId> ids;
  for (const auto& [seq, held] : std::exchange(held_, {})) ids.push_back(held.id);
  return ids;
}

std::optional<uint64_t> SendWindow::ask() {
  // Asks in time: from half of the window on.
  const bool is_full = !held_.empty() || ahead_bytes_ >= bytes_ / 2;
  if (!is_full || asked_ > called_) return std::nullopt;
  asked_ = called_ + 1;
  return asked_;
}

// A single collective may be larger than the window.
bool SendWindow::fits(uint64_t seq, uint64_t bytes) const {
  if (ahead_bytes_ + bytes + kMessageCharge <= bytes_) return true;
  return std::all_of(ahead_.begin(), ahead_.end(),
                     [seq](const Ahead& a) { return a.seq == seq; });
}

void SendWindow::charge(uint64_t seq, uint64_t bytes) {
  ahead_.push_back({seq, bytes + kMessageCharge});
  ahead_bytes_ += bytes + kMessageCharge;
}

std::vector<SendWindow::MessageId> SendWindow::take_free() {
  std::vector<MessageId> ids;
  for (auto it = held_.begin(); it != held_.end(); it = held_.erase(it)) {
    const auto [seq, held] = *it;
    if (seq > called_) {
      if (seq > called_ + 1 && !fits(seq, held.bytes)) break;
      charge(seq, held.bytes);
    }
    ids.push_back(held.id);
  }
  return ids;
}

}  // namespace aikido::engine

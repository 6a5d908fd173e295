// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Sent messages of a link, kept until their owners are notified. Progress thread.

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "transport/link.h"

namespace aikido::transport {

class SentMessages {
 public:
  // Takes the owner of the message, if it has one.
  void add(OutMessage& message) {
    if (message.owner) sent_.emplace_back(std::move(message.owner), message.token);
  }
  bool is_empty() const { return sent_.empty(); }
  // Notifies the owners. Messages that they add meanwhile wait for the next call.
  // Owners must not destroy the link.
  void tell() {
    // Two vectors alternate, so that both keep their memory.
    auto telling = std::exchange(sent_, std::move(told_));
    for (const auto& [owner, token] : telling) owner->on_sent(token);
    telling.clear();
    if (telling.capacity() <= kMostKept) told_ = std::move(telling);
  }
  // Drops all messages without notification.
  void clear() { sent_.clear(); }

 private:
  // Entries whose memory a link keeps, for each of two vectors.
  static constexpr size_t kMostKept = 256;

  std::vector<std::pair<std::shared_ptr<SendOwner>, uint32_t>> sent_, told_;
};

}  // namespace aikido::transport

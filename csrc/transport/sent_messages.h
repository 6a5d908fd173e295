// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Messages of a link that are through, until their owners are told. Progress thread.

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "transport/link.h"

namespace aikido::transport {

class SentMessages {
 public:
  // Takes the owner, if there is one.
  void add(OutMessage& message) {
    if (message.owner) sent_.emplace_back(std::move(message.owner), message.token);
  }
  bool is_empty() const { return sent_.empty(); }
  // Tells the owners. What is added meanwhile, as these may do, waits. They must leave
  // the link alive.
  void tell() {
    // Two in turns, so that both keep their memory.
    auto telling = std::exchange(sent_, std::move(told_));
    for (const auto& [owner, token] : telling) owner->on_sent(token);
    telling.clear();
    if (telling.capacity() <= kMostKept) told_ = std::move(telling);
  }
  // Nobody is told.
  void clear() { sent_.clear(); }

 private:
  // Entries whose memory a link keeps, twice.
  static constexpr size_t kMostKept = 256;

  std::vector<std::pair<std::shared_ptr<SendOwner>, uint32_t>> sent_, told_;
};

}  // namespace aikido::transport

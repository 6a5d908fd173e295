// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// A Reassigner of rank 0 in a test, which plays its peers by hand. One thread.

#include <string>
#include <vector>

#include "harness/catch.h"
#include "reassign/reassigner.h"

namespace aikido::reassign {

// Rank 0 of three ranks that may all help each other. Time in milliseconds. An item of
// cost 1 takes rank 0 10 ms, as it learns in learn().
class RankZero {
 public:
  static constexpr Rank kSelf{0}, kOne{1}, kTwo{2};

  explicit RankZero(const ReassignOptions& options = fast_options())
      : reassigner(kSelf, {{kOne, kTwo}, {kOne, kTwo}}, options) {}

  static ReassignOptions fast_options() {
    ReassignOptions options;
    options.grant.move_cost = Duration(0);
    options.grant.least_gain = 0;
    options.absent_patience = 0;
    return options;
  }

  TimePoint now() const { return TimePoint(std::chrono::milliseconds(ms)); }
  // Begins a step with items of cost 1, and labels 100, 101, ...
  void begin(uint64_t step, uint32_t num_items) {
    std::vector<ItemSpec> items;
    for (uint32_t i = 0; i < num_items; ++i) items.push_back({100 + i, 1});
    reassigner.begin(step, items, now());
  }
  // A first step of one item, which tells the speed; then step 2 with `num_items`.
  void learn(uint32_t num_items) {
    begin(1, 1);
    CHECK(reassigner.claim(now()).is_last);
    ms += 10;
    reassigner.on_finished(std::chrono::milliseconds(10), now());
    begin(2, num_items);
    reassigner.take_messages();
  }
  Claim claim() { return reassigner.claim(now()); }
  Claim finish_and_claim() {
    ms += 10;
    reassigner.on_finished(std::chrono::milliseconds(10), now());
    return claim();
  }
  // A message of `from` in step 2, which has this much to do, at 10 ms per item.
  Status receive(Rank from, MessageKind kind, uint32_t serial, int remaining_ms,
                 uint32_t num_unclaimed, Message content = {}) {
    content.kind = kind;
    content.serial = serial;
    if (content.step == 0) content.step = 2;
    content.news.remaining = std::chrono::milliseconds(remaining_ms);
    content.news.ns_per_cost = ns_per_cost;
    content.news.num_unclaimed = num_unclaimed;
    content.news.unclaimed_cost = static_cast<float>(num_unclaimed);
    return reassigner.on_message(from, encode(content), now());
  }
  Status grant(Rank from, uint32_t serial, uint32_t first, uint32_t count,
               Rank owner = kNoRank, uint64_t step = 2) {
    Message content;
    content.step = step;
    content.owner = owner == kNoRank ? from : owner;
    content.first = first;
    for (uint32_t i = 0; i < count; ++i) content.items.push_back({900 + first + i, 1});
    return receive(from, MessageKind::kGrant, serial, 50, 0, content);
  }
  // "1:request 2:grant(4,2)": the messages since the last call.
  std::string sent() {
    std::string text;
    for (const OutgoingMessage& out : reassigner.take_messages()) {
      last = decode_message(out.payload).value();
      if (!text.empty()) text += " ";
      text += std::to_string(out.to.value) + ":" + std::string(name_of(out.kind));
      if (last.kind == MessageKind::kGrant)
        text += "(" + std::to_string(last.first) + "," +
                std::to_string(last.items.size()) + ")";
    }
    return text;
  }

  Reassigner reassigner;
  int ms = 0;
  double ns_per_cost = 1e7;  // of the peers
  Message last;              // that sent() has seen
};

}  // namespace aikido::reassign

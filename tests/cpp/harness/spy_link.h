// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Link that accepts and stores all messages, and sends nothing. One thread.

#include <utility>
#include <vector>

#include "transport/link.h"

namespace aikido::testing {

class SpyLink final : public transport::Link {
 public:
  transport::MessageId send(transport::OutMessage&& m) override {
    sent.push_back(std::move(m));
    if (order != nullptr) order->push_back(this);
    return sent.size();
  }
  bool send_at_once(const transport::OutMessage& m) override {
    if (takes_at_once) gone.push_back(m.header.seq);
    return takes_at_once;
  }
  void let_go(transport::MessageId) override {}
  void hurry() override { ++num_hurried; }
  size_t cancel(transport::MessageId) override { return 0; }
  bool reads_our_memory() const override { return is_reader; }
  const transport::FrameHeader* incoming() const override { return nullptr; }
  size_t num_received() const override { return 0; }
  void drop_incoming() override {}
  void hang_up() override {}
  bool is_drained() const override { return true; }
  void finish() override {}
  void close() override {}

  int num_hurried = 0;
  bool is_reader = false, takes_at_once = false;
  std::vector<transport::OutMessage> sent;
  std::vector<uint64_t> gone;  // seq of messages that were sent at once
  std::vector<const SpyLink*>* order =
      nullptr;  // if given, each send appends this link to it
};

}  // namespace aikido::testing

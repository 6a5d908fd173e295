// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Operation that has a complete result, for tests of what is kept of ended calls. One
// thread.

#include <utility>
#include <vector>

#include "harness/idle_operation.h"

namespace aikido::testing {

struct EndedOperation final : IdleOperation {
  EndedOperation(collectives::ViewHost* host, uint64_t seq,
                 std::vector<membership::ReceivedShard> received = {})
      : IdleOperation(host, collectives::Call(), seq),
        received_shards(std::move(received)) {}
  bool is_committed() const override { return true; }
  void report(std::vector<membership::ReceivedShard>& received) const override {
    received.insert(received.end(), received_shards.begin(), received_shards.end());
  }

  std::vector<membership::ReceivedShard> received_shards;
};

}  // namespace aikido::testing

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// First message of an exchange of items to each of its peers: the options of the
// sender, which must be those of the receiver. Other options give the ranks different
// groups of helpers, and a rank would wait for answers that never come. Pure; any
// thread.
//
// -  byte  0  u8   0; other messages begin with their version, which is not 0
// -        1  u8   unused, 0
// -        2  u16  unused, 0
// -        4  i32  number of helpers
// -        8  u64  fingerprint of the hosts
// -       16  f64  share of a step by which an owner must be behind
// -       24  i64  ns until an answer is given up
// -       32  f64  patience with owners that have not begun the step
// -       40  i32  number of ranks

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "reassign/reassigner.h"

namespace aikido::engine {

struct ExchangeHello {
  int32_t num_helpers = 0;
  uint64_t hosts = 0;  // fingerprint
  double behind = 0;
  int64_t answer_timeout_ns = 0;
  double absent_patience = 0;
  int32_t num_ranks = 0;

  // `hosts` and `num_helpers` as in helper_group(), for `num_ranks` ranks.
  static ExchangeHello of(std::span<const int32_t> hosts, int32_t num_ranks,
                          int32_t num_helpers, const reassign::ReassignOptions& options);
  [[nodiscard]] std::vector<std::byte> encode() const;
  // First option that differs, with its own and the other value: "num_helpers is 4 and
  // there 2". Empty: none.
  [[nodiscard]] std::string difference(const ExchangeHello& other) const;
};

bool is_hello(std::span<const std::byte> bytes);
// Requires: is_hello(bytes). kProtocol if they are not whole.
Result<ExchangeHello> decode_hello(std::span<const std::byte> bytes);

}  // namespace aikido::engine

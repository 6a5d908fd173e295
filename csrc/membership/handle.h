// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Handle of a member, by which others find it without a store: its address, its id and
// a secret. Pure except for random(). Any thread.

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/status.h"
#include "transport/address.h"

namespace aikido::membership {

struct MemberHandle {
  transport::Address address;
  // Distinguishes the member from all others, also from an earlier member at its
  // address.
  uint64_t id = 0;
  // A member that shows this secret at the address was given the handle.
  std::array<std::byte, 16> secret{};
  bool is_reliable = false;  // the role of the member, for its whole life

  // Handle of a new member that listens at `address`.
  static MemberHandle random(transport::Address address, bool is_reliable);

  // "aikido1/<host>/<port>/<id>/<secret>", the last two in hex, and "/reliable" for a
  // reliable member. Any store can hold it.
  std::string to_string() const;
  // kInvalidArgument if to_string() makes no such text. The sentence shows the
  // beginning of the text only, because the end is the secret.
  static Result<MemberHandle> parse(const std::string& text);

  friend bool operator==(const MemberHandle&, const MemberHandle&) = default;
};

}  // namespace aikido::membership

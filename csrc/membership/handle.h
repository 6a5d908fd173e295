// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// What one member gives to the others so that they can find it without a store: where
// it listens, which member it is, and a secret. Pure but for random(). Any thread.

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/status.h"
#include "transport/address.h"

namespace aikido::membership {

struct Handle {
  transport::Address address;
  // Tells the member from all others, also from one that had this address before.
  uint64_t id = 0;
  // Whoever shows it at that address has been given this handle.
  std::array<std::byte, 16> secret{};

  // A new member that listens at `address`.
  static Handle random(transport::Address address);

  // "aikido1/<host>/<port>/<id>/<secret>", the last two in hex: fit for any store.
  std::string to_string() const;
  // kInvalidArgument when the text is not one that to_string() makes. The sentence
  // shows the beginning of the text only: the end is the secret.
  static Result<Handle> parse(const std::string& text);

  friend bool operator==(const Handle&, const Handle&) = default;
};

}  // namespace aikido::membership

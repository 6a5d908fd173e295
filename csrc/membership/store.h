// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Key-value store by which members find each other before they are connected. All
// members can reach it. The adapter to torch's store is in c10d/store_adapter.h.

#include <string>

#include "base/clock.h"
#include "base/status.h"

namespace aikido::membership {

class Store {
 public:
  virtual ~Store() = default;
  // Any thread. Both may block: get() until the key is set or `timeout` has passed.
  virtual Status set(const std::string& key, const std::string& value) = 0;
  virtual Result<std::string> get(const std::string& key, Duration timeout) = 0;
};

}  // namespace aikido::membership

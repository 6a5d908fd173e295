// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Where members find each other before they are connected: a key-value store that all
// of them can reach. The adapter to torch's store is in c10d/store_adapter.h.

#include <string>

#include "base/clock.h"
#include "base/status.h"

namespace aikido::membership {

class Store {
 public:
  virtual ~Store() = default;
  // Any thread; both may block, get() until somebody sets the key or `timeout` is over.
  virtual Status set(const std::string& key, const std::string& value) = 0;
  virtual Result<std::string> get(const std::string& key, Duration timeout) = 0;
};

}  // namespace aikido::membership

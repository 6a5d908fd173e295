// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Adapter from torch's rendezvous store to the engine's Store. Exceptions become
// values.

#include "c10d/common/compat.h"
#include "membership/store.h"

namespace aikido::adapter {

class StoreAdapter final : public membership::Store {
 public:
  explicit StoreAdapter(c10::intrusive_ptr<::c10d::Store> store)
      : store_(std::move(store)) {}

  Status set(const std::string& key, const std::string& value) override;
  Result<std::string> get(const std::string& key, Duration timeout) override;

 private:
  c10::intrusive_ptr<::c10d::Store> store_;
};

}  // namespace aikido::adapter

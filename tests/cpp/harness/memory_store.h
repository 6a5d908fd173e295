// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Rendezvous store of a test: a map that all members of the process share. Any thread.

#include <condition_variable>
#include <map>
#include <mutex>
#include <string>

#include "membership/store.h"

namespace aikido::testing {

class MemoryStore final : public membership::Store {
 public:
  Status set(const std::string& key, const std::string& value) override {
    const std::lock_guard lock(mutex_);
    values_[key] = value;
    changed_.notify_all();
    return Status::ok();
  }
  Result<std::string> get(const std::string& key, Duration timeout) override {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, timeout, [&] { return values_.contains(key); }))
      return Status(Code::kTimedOut, "Timed out waiting for key \"" + key + "\"");
    return values_.at(key);
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> values_;
};

}  // namespace aikido::testing

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "c10d/store_adapter.h"

namespace aikido::adapter {

Status StoreAdapter::set(const std::string& key, const std::string& value) {
  try {
    store_->set(key, std::vector<uint8_t>(value.begin(), value.end()));
    return Status::ok();
  } catch (const std::exception& e) {
    return {Code::kRetryLater,
            concat("the rendezvous store does not take \"", key, "\": ", e.what())};
  }
}

Result<std::string> StoreAdapter::get(const std::string& key, Duration timeout) {
  const auto ms = std::chrono::duration_cast<Milliseconds>(timeout);
  try {
    store_->wait({key}, std::max(ms, Milliseconds(1)));
    const std::vector<uint8_t> value = store_->get(key);
    return std::string(value.begin(), value.end());
  } catch (const std::exception& e) {
    return Status(Code::kTimedOut,
                  concat("Timed out after ", ms.count(), " ms waiting for \"", key,
                         "\" in the rendezvous store (", e.what(), ")"));
  }
}

}  // namespace aikido::adapter

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "c10d/store_adapter.h"

#include "base/clock.h"

namespace aikido::adapter {
namespace {

// Error text without torch's stack trace.
std::string reason_of(const std::exception& error) {
  const std::string text = error.what();
  return text.substr(0, text.find("\nException raised from "));
}

}  // namespace

Status StoreAdapter::set(const std::string& key, const std::string& value) {
  try {
    store_->set(key, std::vector<uint8_t>(value.begin(), value.end()));
    return Status::ok();
  } catch (const std::exception& e) {
    return {Code::kRetryLater,
            concat("the rendezvous store does not take \"", key, "\": ", reason_of(e))};
  }
}

Result<std::string> StoreAdapter::get(const std::string& key, Duration timeout) {
  const auto ms = std::chrono::duration_cast<Milliseconds>(timeout);
  const TimePoint begin = SystemClock().now();
  try {
    store_->wait({key}, std::max(ms, Milliseconds(1)));
    const std::vector<uint8_t> value = store_->get(key);
    return std::string(value.begin(), value.end());
  } catch (const std::exception& e) {
    // A lost store answers at once. A time-out of torch may be a little early.
    if (SystemClock().now() - begin < timeout / 2) {
      return Status(Code::kTimedOut, concat("the rendezvous store failed while \"", key,
                                            "\" was waited for: ", reason_of(e)));
    }
    return Status(Code::kTimedOut,
                  concat("Timed out after ", ms.count(), " ms waiting for \"", key,
                         "\" in the rendezvous store (", reason_of(e), ")"));
  }
}

}  // namespace aikido::adapter

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "engine/result_backlog.h"

#include <utility>

namespace aikido::engine {

bool ResultBacklog::admit(uint64_t seq, bool is_drained, TimePoint now) {
  if (is_drained) {
    waits_since_.reset();
  } else if (!waits_since_) {
    waits_since_ = now;
  } else if (now - *waits_since_ >= kLongest) {
    is_slow_ = true;
  }
  // Results for a slow link wait here until their collective is called.
  return !is_slow_ || goes_unasked(seq);
}

std::vector<ResultBacklog::MessageId> ResultBacklog::on_called(uint64_t called) {
  std::vector<MessageId> ids;
  if (called <= called_) return ids;
  called_ = called;
  while (!held_.empty() && goes_unasked(held_.begin()->first)) {
    ids.push_back(held_.begin()->second);
    held_.erase(held_.begin());
  }
  if (held_.empty()) {
    is_slow_ = false;
    waits_since_.reset();
  }
  return ids;
}

void ResultBacklog::forget(MessageId id) {
  std::erase_if(held_, [id](const auto& held) { return held.second == id; });
}

std::vector<ResultBacklog::MessageId> ResultBacklog::clear() {
  std::vector<MessageId> ids;
  for (const auto& [seq, id] : std::exchange(held_, {})) ids.push_back(id);
  return ids;
}

std::optional<uint64_t> ResultBacklog::ask() {
  if (held_.empty() || asked_ > called_) return std::nullopt;
  asked_ = called_ + 1;
  return asked_;
}

}  // namespace aikido::engine

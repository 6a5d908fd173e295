// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "engine/result_keeper.h"

#include <algorithm>

namespace aikido::engine {

void ResultKeeper::keep(
    const std::shared_ptr<collectives::SkippableOperation>& operation, uint64_t bytes) {
  const bool is_new =
      results_.emplace(operation->seq().value, Kept{operation, bytes}).second;
  if (is_new) bytes_ += bytes;
}

void ResultKeeper::clear() {
  results_.clear();
  bytes_ = 0;
  failed_.clear();
}

void ResultKeeper::release(const Acknowledged& upto, uint64_t max_bytes) {
  while (!results_.empty() && results_.begin()->first <= upto.members) {
    const auto& [seq, kept] = *results_.begin();
    if (seq > upto.returning && bytes_ <= max_bytes) break;
    if (seq > upto.returning) forgotten_ = seq;
    bytes_ -= kept.bytes;
    results_.erase(results_.begin());
  }
  for (auto it = failed_.begin();
       it != failed_.end() && it->first.value <= upto.members; it = failed_.erase(it)) {
    const uint64_t seq = it->first.value;
    if (seq <= upto.returning || seq <= forgotten_) continue;
    if (failed_.size() <= kMaxFailed) break;
    forgotten_ = seq;
  }
}

uint64_t ResultKeeper::bytes_after(uint64_t seq) const {
  uint64_t bytes = 0;
  for (auto it = results_.upper_bound(seq); it != results_.end(); ++it)
    bytes += it->second.bytes;
  return bytes;
}

uint64_t ResultKeeper::released_up_to(uint64_t upto) const {
  if (!results_.empty()) upto = std::min(upto, results_.begin()->first - 1);
  if (!failed_.empty()) upto = std::min(upto, failed_.begin()->first.value - 1);
  return upto;
}

}  // namespace aikido::engine

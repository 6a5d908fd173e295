// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "engine/call_table.h"

#include <algorithm>
#include <limits>

#include "collectives/make_operation.h"

namespace aikido::engine {

std::vector<std::shared_ptr<collectives::Operation>> CallTable::operations() const {
  std::vector<std::shared_ptr<collectives::Operation>> all;
  for (const auto& [seq, active] : calls_) all.push_back(active.operation);
  return all;
}

Seq CallTable::first_agreed() const {
  const auto it = std::find_if(begin(), end(), [](const auto& entry) {
    return entry.second.operation->call().is_agreed();
  });
  return Seq(it == end() ? std::numeric_limits<uint64_t>::max() : it->first);
}

bool CallTable::has_open() const {
  return std::any_of(begin(), end(),
                     [](const auto& entry) { return entry.second.is_open(); });
}

CallTable::Calls::iterator CallTable::add(Seq seq, const collectives::Call& call,
                                          Rank first_caller) {
  const auto made = collectives::make_operation(host_, seq, call, first_caller);
  return calls_.emplace(seq.value, ActiveCall{made, {}}).first;
}

void CallTable::fail_ahead(Seq seq, const Status& why) {
  collectives::Call unknown;
  unknown.kind = collectives::CallKind::kBarrier;
  const auto failed = collectives::make_operation(host_, seq, unknown, host_->self());
  failed->fail(why);
  calls_[seq.value].operation = failed;
  ++num_failed_ahead_;
}

void CallTable::retire(Calls::iterator it) {
  const auto operation = it->second.operation;
  const auto* skippable = operation->skippable();
  if (skippable != nullptr && skippable->is_sending())
    sending_.emplace(it->first, shared_skippable(operation));
  if (!operation->has_failed()) recent_.note(it->first, operation->call());
  calls_.erase(it);
}

void CallTable::drop_sent(uint64_t seq) {
  const auto it = sending_.find(seq);
  if (it != sending_.end() && !it->second->is_sending()) sending_.erase(it);
}

}  // namespace aikido::engine

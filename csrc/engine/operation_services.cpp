// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "engine/operation_services.h"

#include <utility>

namespace aikido::engine {

transport::MessageId OperationServices::send(Rank to, transport::OutMessage&& message) {
  return peer(to).send(std::move(message));
}

bool OperationServices::send_at_once(Rank to, const transport::OutMessage& message) {
  return peer(to).send_at_once(message);
}

size_t OperationServices::cancel(Rank to, transport::MessageId id) {
  const size_t bytes = peer(to).cancel(id);
  counters_.cancelled_bytes.fetch_add(bytes, std::memory_order_relaxed);
  return bytes;
}

straggler::GroupPolicy& OperationServices::policy(
    const straggler::PolicyOptions& options) {
  if (auto* const known = parts_.policies->find(options)) return *known;
  straggler::GroupPolicy& added = parts_.policies->add(options);
  added.on_timeout(settings().timeout);
  for (int32_t r = 0; r < size(); ++r)
    if (const uint64_t called = called_by(Rank(r)); called > 0)
      added.history().on_called(Rank(r), Seq(called), clock().now());
  added.history().set_members(view().members);
  if (parts_.policies->size() == 1) parts_.group->on_first_policy();
  return added;
}

void OperationServices::note_share(Rank rank, size_t here, size_t total) {
  peer(rank).share.on_close(here, total, clock().now());
}

void OperationServices::note_given(size_t bytes) {
  counters_.given_bytes.fetch_add(bytes, std::memory_order_relaxed);
}

void OperationServices::note_stand_in(const straggler::StandIn& stand_in) {
  parts_.trace->member_events().on_stand_in(stand_in, clock().now());
}

}  // namespace aikido::engine

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "collectives/make_operation.h"

#include "collectives/skippable/partial_allreduce.h"
#include "collectives/skippable/partial_reduce_scatter.h"
#include "collectives/strict/block_exchange.h"
#include "collectives/strict/direct_reduction.h"
#include "collectives/strict/hop_reduction.h"
#include "collectives/strict/scatter_relay_broadcast.h"

namespace aikido::collectives {

std::shared_ptr<Operation> make_operation(ViewHost* host, Seq seq, const Call& call,
                                          Rank first_caller) {
  const int32_t size = host->size();
  // The group creates and ends operations all the time, so their memory is reused.
  const auto made = [&]<class T>() -> std::shared_ptr<Operation> {
    return std::allocate_shared<T>(Recycling<T>(host->recycler()), host, seq, call,
                                   first_caller);
  };
  // The inner backend moves the data; only the agreement on the call goes over links.
  if (call.is_inner) return made.operator()<BlockExchange>();
  if (ScatterRelayBroadcast::suits(call, size, host->settings().eager_bytes))
    return made.operator()<ScatterRelayBroadcast>();
  switch (call.kind) {
    case CallKind::kBroadcast:
    case CallKind::kAllgather:
    case CallKind::kGather:
    case CallKind::kScatter:
    case CallKind::kAlltoall:
    case CallKind::kSparseAllreduce:
      return made.operator()<BlockExchange>();
    case CallKind::kAllreduce:
    case CallKind::kReduce:
    case CallKind::kReduceScatter:
    case CallKind::kBarrier:
    case CallKind::kMonitoredBarrier:
      break;
  }
  if (call.is_partial() && call.kind == CallKind::kReduceScatter)
    return made.operator()<PartialReduceScatter>();
  if (call.is_partial()) return made.operator()<PartialAllreduce>();
  // Without elements or other members there are no hops.
  const bool takes_hops = !is_by_owners(call.algorithm) && call.count > 0 && size > 1;
  if (takes_hops) return made.operator()<HopReduction>();
  return made.operator()<DirectReduction>();
}

}  // namespace aikido::collectives

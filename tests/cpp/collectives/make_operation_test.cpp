// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "collectives/make_operation.h"

#include "collectives/strict/block_exchange.h"
#include "collectives/strict/direct_reduction.h"
#include "collectives/strict/hop_reduction.h"
#include "collectives/strict/scatter_relay_broadcast.h"
#include "harness/catch.h"
#include "harness/idle_host.h"

using namespace aikido;
using namespace aikido::collectives;
using testing::IdleHost;

namespace {

template <class T>
bool makes(int32_t size, const Call& call) {
  IdleHost host(size);
  const auto made = make_operation(&host, Seq(7), call, Rank(1));
  CHECK(made->seq() == Seq(7));
  CHECK(made->call() == call);
  CHECK(made->first_caller() == Rank(1));
  return dynamic_cast<const T*>(made.get()) != nullptr;
}

Call floats(CallKind kind, uint64_t count) {
  Call call;
  call.kind = kind;
  call.dtype = DType::kFloat32;
  call.count = count;
  if (has_root(kind)) call.root = Rank(0);
  return call;
}

}  // namespace

TEST_CASE("an algorithm with hops needs elements and several members") {
  Call call = floats(CallKind::kAllreduce, 8);
  CHECK(makes<DirectReduction>(4, call));
  call.algorithm = Algorithm::kRing;
  CHECK(makes<HopReduction>(4, call));
  CHECK(makes<DirectReduction>(1, call));
  call.count = 0;
  CHECK(makes<DirectReduction>(4, call));
}

TEST_CASE("a large broadcast with several receivers is relayed") {
  const uint64_t large = OperationSettings().eager_bytes;
  CHECK(makes<BlockExchange>(4, floats(CallKind::kBroadcast, 8)));
  CHECK(makes<ScatterRelayBroadcast>(4, floats(CallKind::kBroadcast, large)));
  CHECK(makes<BlockExchange>(2, floats(CallKind::kBroadcast, large)));
  CHECK(makes<BlockExchange>(4, floats(CallKind::kAllgather, large)));
}

TEST_CASE("a call between devices moves no data between the members") {
  Call call = floats(CallKind::kAllreduce, 8);
  call.is_inner = true;
  CHECK(makes<BlockExchange>(4, call));
}

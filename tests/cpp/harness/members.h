// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Members with one engine each, connected over loopback addresses. Any thread.

#include <future>
#include <memory>
#include <string>
#include <vector>

#include "engine/communicator.h"
#include "harness/catch.h"
#include "harness/memory_store.h"

namespace aikido::testing {

using engine::Communicator;
using engine::Engine;
using std::chrono::seconds;

// Time limit of calls that must succeed. Only a call that hangs reaches it, even if
// other processes leave this process only a hundredth of a processor.
constexpr Duration kHangs = seconds(60);

using Made = Result<std::shared_ptr<Communicator>>;

struct Member {
  std::shared_ptr<Engine> engine;
  std::shared_ptr<Communicator> communicator;
};

inline Made connect(std::shared_ptr<Engine> engine, membership::Store& store,
                    int32_t rank, int32_t size, Duration timeout = kHangs,
                    const std::string& agreed = "a=1;b=2") {
  engine::GroupOptions options;
  options.name = "tcp";
  options.self = Rank(rank);
  options.size = size;
  options.operation.chunk_bytes = 64 << 10;
  return Communicator::connect(std::move(engine), store, options, agreed, timeout);
}

inline std::shared_ptr<Engine> start_engine(Duration handshake = seconds(5),
                                            size_t shared_memory_bytes = 0) {
  auto engine = Engine::start("127.0.0.1", handshake, shared_memory_bytes, 0);
  REQUIRE(engine.is_ok());
  return *engine;
}

inline std::vector<Member> connect_all(int32_t size, MemoryStore& store,
                                       Duration handshake = seconds(5),
                                       size_t shared_memory_bytes = 0) {
  std::vector<Member> members(static_cast<size_t>(size));
  std::vector<std::future<Made>> made;
  for (int32_t r = 0; r < size; ++r) {
    auto engine = members[static_cast<size_t>(r)].engine =
        start_engine(handshake, shared_memory_bytes);
    made.push_back(std::async(std::launch::async, [&store, engine, r, size] {
      return connect(engine, store, r, size);
    }));
  }
  for (size_t r = 0; r < made.size(); ++r) {
    auto result = made[r].get();
    INFO(result.status().message());
    REQUIRE(result.is_ok());
    members[r].communicator = *result;
  }
  return members;
}

inline std::vector<Member> connect_all(int32_t size) {
  MemoryStore store;
  return connect_all(size, store);
}

struct End {
  Status status;
  collectives::Outcome outcome;
};

inline std::future<End> allreduce(Communicator& c, std::vector<float>& data,
                                  Duration timeout = kHangs,
                                  const straggler::PolicyOptions& policy = {}) {
  collectives::Call call;
  call.policy = policy;
  call.kind = collectives::CallKind::kAllreduce;
  call.dtype = DType::kFloat32;
  call.count = data.size();
  collectives::LocalCall local;
  local.input = reinterpret_cast<std::byte*>(data.data());
  local.output = reinterpret_cast<std::byte*>(data.data());
  auto promise = std::make_shared<std::promise<End>>();
  local.on_done = [promise](const Status& s, const collectives::Outcome& o) {
    promise->set_value({s, o});
  };
  auto future = promise->get_future();
  c.call(std::move(call), std::move(local), timeout);
  return future;
}

}  // namespace aikido::testing

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
// Tests of the heap allocations of calls, from the caller to the sockets and back,
// after a group has made similar calls. They are a program of their own, because they
// replace operator new.
#include <atomic>
#include <string>
#include <vector>

#include "base/recycler.h"
#include "harness/catch.h"
#include "harness/counted_heap.h"
#include "harness/members.h"

using namespace aikido;
using namespace aikido::testing;
using collectives::Call;
using collectives::CallKind;
using collectives::LocalCall;

namespace {

constexpr int32_t kSize = 3;
constexpr int kTimes = 200;

// Members whose calls this thread makes.
class Callers {
 public:
  explicit Callers(size_t shared_memory_bytes)
      : members_(connect_all(kSize, store_, kHangs, shared_memory_bytes)) {}
  ~Callers() {
    for (auto& m : members_) m.communicator->shutdown(seconds(5));
  }

  Communicator& of(int32_t rank) {
    return *members_[static_cast<size_t>(rank)].communicator;
  }
  // Completion of a call that should end well.
  auto on_done() {
    return [this](const Status& status, const auto&) {
      if (status.has_failed()) num_failed_.fetch_add(1);
      num_left_.fetch_sub(1);
      num_left_.notify_one();
    };
  }
  // Makes `num_calls` calls of each member, of which none waits for another, and waits
  // for their ends.
  template <class MakeCall>
  void burst(int num_calls, MakeCall&& call) {
    num_left_ = kSize * num_calls;
    for (int i = 0; i < num_calls; ++i)
      for (int32_t r = 0; r < kSize; ++r) call(r);
    while (const int left = num_left_) num_left_.wait(left);
  }
  // Number of allocations in kTimes repetitions of `calls`, after as many repetitions
  // before. A repetition has `num_calls` calls.
  template <class Calls>
  uint64_t allocations(int num_calls, Calls&& calls) {
    uint64_t before = 0;
    for (int i = 0; i < 2 * kTimes; ++i) {
      if (i == kTimes) before = num_allocations;
      num_left_ = num_calls;
      calls();
      while (const int left = num_left_) num_left_.wait(left);
    }
    const uint64_t during = num_allocations - before;
    CHECK(num_failed_ == 0);
    return during;
  }

 private:
  MemoryStore store_;
  std::vector<Member> members_;
  std::atomic<int> num_left_{0}, num_failed_{0};
};

// Now and then more calls are under way than ever before. An allocation in each call
// would make 200 and more.
constexpr uint64_t kFew = kTimes / 4;

Call floats(CallKind kind, size_t count) {
  Call call;
  call.kind = kind;
  call.dtype = DType::kFloat32;
  call.count = count;
  if (collectives::has_root(kind)) call.root = Rank(0);
  return call;
}

uint64_t allocations_of_allreduce(Callers& callers, size_t count) {
  std::vector<std::vector<float>> data(kSize, std::vector<float>(count));
  return callers.allocations(kSize, [&] {
    for (int32_t r = 0; r < kSize; ++r) {
      LocalCall local;
      local.input = local.output =
          reinterpret_cast<std::byte*>(data[static_cast<size_t>(r)].data());
      local.on_done = callers.on_done();
      callers.of(r).call(floats(CallKind::kAllreduce, count), std::move(local), kHangs);
    }
  });
}

// Each giver sends a block to the other members. In an allgather all members are
// givers, in a broadcast rank 0 is.
uint64_t allocations_of_blocks(Callers& callers, CallKind kind, size_t count) {
  const auto gives = [&](int32_t r) { return kind == CallKind::kAllgather || r == 0; };
  std::vector<std::vector<float>> data(kSize * (kSize + 1), std::vector<float>(count));
  const auto block = [&](int32_t r, int32_t of) {
    return reinterpret_cast<std::byte*>(
        data[static_cast<size_t>(r * (kSize + 1) + of)].data());
  };
  return callers.allocations(kSize, [&] {
    for (int32_t r = 0; r < kSize; ++r) {
      LocalCall local;
      {
        const NotCounted by_the_caller;
        for (int32_t other = 0; other < kSize; ++other) {
          if (other == r) continue;
          if (gives(r))
            local.out_blocks.push_back({Rank(other), block(r, kSize), 4 * count});
          if (gives(other))
            local.in_blocks.push_back({Rank(other), block(r, other), 4 * count});
        }
      }
      local.on_done = callers.on_done();
      callers.of(r).call(floats(kind, count), std::move(local), kHangs);
    }
  });
}

uint64_t allocations_of_message(Callers& callers, size_t count, bool is_early) {
  std::vector<float> data(count), received(count);
  const auto send = [&] {
    collectives::SendCall call;
    call.to = Rank(1);
    call.data = reinterpret_cast<const std::byte*>(data.data());
    call.bytes = 4 * count;
    call.deadline = TimePoint::max();
    call.on_done = callers.on_done();
    callers.of(0).send(std::move(call));
  };
  const auto receive = [&] {
    collectives::ReceiveCall call;
    call.from = Rank(0);
    call.data = reinterpret_cast<std::byte*>(received.data());
    call.bytes = 4 * count;
    call.deadline = TimePoint::max();
    call.on_done = callers.on_done();
    callers.of(1).receive(std::move(call));
  };
  return callers.allocations(2, [&] {
    if (is_early) receive();
    send();
    if (!is_early) receive();
  });
}

}  // namespace

TEST_CASE("calls do not allocate in the steady state", "[tcp]") {
  if (!Recycler::kKeepsBlocks) return;
  const size_t shared_memory_bytes = GENERATE(size_t{0}, size_t{1} << 20);
  INFO(shared_memory_bytes << " bytes of shared memory");
  Callers callers(shared_memory_bytes);
  for (const size_t count : {size_t{1} << 10, size_t{256} << 10}) {
    INFO(count << " floats");
    CHECK(allocations_of_allreduce(callers, count) < kFew);
    CHECK(allocations_of_blocks(callers, CallKind::kAllgather, count) < kFew);
    CHECK(allocations_of_message(callers, count, true) < kFew);
    CHECK(allocations_of_message(callers, count, false) < kFew);
  }
  CHECK(allocations_of_blocks(callers, CallKind::kBroadcast, 1 << 10) < kFew);
}

TEST_CASE("calls do not allocate after many calls at once", "[tcp]") {
  if (!Recycler::kKeepsBlocks) return;
  Callers callers(size_t{1} << 20);
  std::vector<std::vector<float>> data(kSize, std::vector<float>(1 << 10));
  callers.burst(1000, [&](int32_t r) {
    LocalCall local;
    local.input = local.output =
        reinterpret_cast<std::byte*>(data[static_cast<size_t>(r)].data());
    local.on_done = callers.on_done();
    callers.of(r).call(floats(CallKind::kAllreduce, 1 << 10), std::move(local), kHangs);
  });
  CHECK(allocations_of_message(callers, 1 << 10, true) < kFew);
  CHECK(allocations_of_blocks(callers, CallKind::kAllgather, 1 << 10) < kFew);
}

TEST_CASE("allocations on the heap are counted") {
  const uint64_t before = num_allocations;
  auto number = std::make_unique<int>(7);
  CHECK(num_allocations - before == 1);
  {
    const NotCounted here;
    number = std::make_unique<int>(8);
  }
  CHECK(*number == 8);
}

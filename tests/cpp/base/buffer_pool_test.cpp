// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "base/buffer_pool.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <set>
#include <thread>
#include <vector>

#include "harness/catch.h"

using aikido::Buffer;
using aikido::BufferPool;

TEST_CASE("a block is as large as asked, aligned and writable to its end") {
  BufferPool pool(1 << 20);
  for (const size_t bytes : {1u, 63u, 4096u, 4097u, 100'000u, 1'000'001u}) {
    Buffer b = pool.take(bytes);
    REQUIRE(b.size() == bytes);
    REQUIRE(reinterpret_cast<uintptr_t>(b.data()) % 64 == 0);
    std::memset(b.data(), 1, bytes);
  }
}

TEST_CASE("a block of zero bytes needs no memory") {
  BufferPool pool(1 << 20);
  Buffer b = pool.take(0);
  CHECK_FALSE(b);
  CHECK(b.data() == nullptr);
  b.reset();
}

TEST_CASE("a returned block is used again for about the same size") {
  BufferPool pool(1 << 20);
  Buffer b = pool.take(100'000);
  const auto* where = b.data();
  b.reset();
  CHECK(pool.idle_bytes() >= 100'000);
  CHECK(pool.idle_bytes() <= 100'000 * 9 / 8);
  Buffer again = pool.take(99'000);
  CHECK(again.data() == where);
  CHECK(again.size() == 99'000);
  CHECK(pool.idle_bytes() == 0);
}

TEST_CASE("idle blocks take no more memory than the limit") {
  BufferPool pool(10'000);
  { Buffer a = pool.take(8000), b = pool.take(8000); }
  CHECK(pool.idle_bytes() > 0);
  CHECK(pool.idle_bytes() <= 10'000);
  BufferPool none(0);
  none.take(100).reset();
  CHECK(none.idle_bytes() == 0);
}

TEST_CASE("a block can be moved, and outlives its pool") {
  Buffer kept;
  {
    BufferPool pool(1 << 20);
    Buffer a = pool.take(100), b = pool.take(200);
    const auto* where = b.data();
    a = std::move(b);
    CHECK(a.data() == where);
    CHECK_FALSE(b);
    CHECK(pool.idle_bytes() > 0);
    kept = std::move(a);
  }
  std::memset(kept.data(), 1, kept.size());
}

TEST_CASE("a shared block may be released on another thread, and is used again") {
  BufferPool pool(1 << 20);
  std::shared_ptr<std::byte> block = pool.take_shared(100'000);
  const std::byte* const where = block.get();
  CHECK(reinterpret_cast<uintptr_t>(where) % 64 == 0);
  std::shared_ptr<std::byte> other = block;
  block.reset();
  CHECK(pool.take(100'000).data() != where);
  std::thread([&other] { other.reset(); }).join();
  CHECK(pool.take_shared(100'000).get() == where);
  CHECK(pool.take_shared(0) == nullptr);
}

TEST_CASE("many threads may release shared blocks at the same time") {
  BufferPool pool(64 << 20);
  std::set<const std::byte*> before;
  for (int round = 0; round < 20; ++round) {
    std::vector<std::shared_ptr<std::byte>> blocks;
    std::set<const std::byte*> taken;
    for (int i = 0; i < 8; ++i)
      taken.insert(blocks.emplace_back(pool.take_shared(5000)).get());
    CHECK(taken.size() == 8);
    CHECK((before.empty() || taken == before));
    before = taken;
    std::vector<std::thread> threads;
    for (auto& block : blocks)
      threads.emplace_back([block = std::move(block)]() mutable { block.reset(); });
    for (std::thread& thread : threads) thread.join();
  }
}

TEST_CASE("a shared block outlives its pool") {
  std::shared_ptr<std::byte> kept;
  {
    BufferPool pool(1 << 20);
    kept = pool.take_shared(100);
  }
  std::memset(kept.get(), 1, 100);
  const std::byte* const block = kept.get();
  CHECK(std::count(block, block + 100, std::byte{1}) == 100);
}

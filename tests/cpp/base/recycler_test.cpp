// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "base/recycler.h"

#include <array>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <utility>
#include <vector>

#include "harness/catch.h"

using namespace aikido;

TEST_CASE("a block that was given back is the next block of its size") {
  if (!Recycler::kKeepsBlocks) return;
  Recycler recycler(1 << 10);
  Recycling<uint64_t> words(recycler);
  uint64_t* const first = words.allocate(3);
  uint64_t* const second = words.allocate(3);
  CHECK(recycler.idle_bytes() == 0);
  words.deallocate(first, 3);
  CHECK(recycler.idle_bytes() == 64);
  uint64_t* const larger = words.allocate(9);  // of the next size
  CHECK(larger != first);
  Recycling<uint8_t> bytes(words);
  uint8_t* const again = bytes.allocate(64);
  CHECK(again == reinterpret_cast<uint8_t*>(first));
  CHECK(recycler.idle_bytes() == 0);
  bytes.deallocate(again, 64);
  words.deallocate(second, 3);
  CHECK(recycler.idle_bytes() == 128);
  words.deallocate(larger, 9);
  CHECK(recycler.idle_bytes() == 256);
}

TEST_CASE("kept bytes are limited, and large blocks are not kept") {
  if (!Recycler::kKeepsBlocks) return;
  Recycler recycler(128);
  Recycling<std::byte> bytes(recycler);
  std::array<std::byte*, 3> blocks{};
  for (auto& block : blocks) block = bytes.allocate(64);
  for (auto* block : blocks) bytes.deallocate(block, 64);
  CHECK(recycler.idle_bytes() == 128);

  Recycler large(2 * Recycler::kLargest);
  Recycling<std::byte> from_large(large);
  from_large.deallocate(from_large.allocate(Recycler::kLargest), Recycler::kLargest);
  CHECK(large.idle_bytes() == Recycler::kLargest);
  const size_t more = Recycler::kLargest + 1;
  from_large.deallocate(from_large.allocate(more), more);
  CHECK(large.idle_bytes() == Recycler::kLargest);
}

TEST_CASE("idle blocks of other sizes are freed to make room") {
  if (!Recycler::kKeepsBlocks) return;
  Recycler recycler(256);
  Recycling<std::byte> bytes(recycler);
  const auto give_back = [&](std::initializer_list<size_t> sizes) {
    std::vector<std::pair<std::byte*, size_t>> blocks;
    for (const size_t size : sizes) blocks.emplace_back(bytes.allocate(size), size);
    for (const auto& [block, size] : blocks) bytes.deallocate(block, size);
  };
  give_back({64, 64, 128});
  CHECK(recycler.idle_bytes() == 256);
  // Frees one block of each other size in turn: the first block of 64, and the block of
  // 128.
  give_back({192});
  CHECK(recycler.idle_bytes() == 256);
  std::byte* const small = bytes.allocate(64);
  CHECK(recycler.idle_bytes() == 192);
  std::byte* const large = bytes.allocate(192);
  CHECK(recycler.idle_bytes() == 0);
  bytes.deallocate(large, 192);
  bytes.deallocate(small, 64);
  // Larger than the limit: no other block is freed for it.
  give_back({320});
  CHECK(recycler.idle_bytes() == 256);
  // No idle block is freed for a block of the same size.
  give_back({256});
  CHECK(recycler.idle_bytes() == 256);
  give_back({256, 256});
  CHECK(recycler.idle_bytes() == 256);
}

TEST_CASE("containers reuse their memory, and keep it when they move") {
  if (!Recycler::kKeepsBlocks) return;
  Recycler recycler(4 << 10);
  {
    RecycledMap<int, int> map(recycler);
    RecycledHashMap<int, int> hash_map(recycler);
    RecycledList<int> list(recycler);
    RecycledDeque<int> deque(recycler);
    for (int round = 0; round < 3; ++round) {
      map.emplace(round, round);
      hash_map.emplace(round, round);
      list.push_back(round);
      deque.push_back(round);
      const size_t idle = recycler.idle_bytes();
      map.clear();
      hash_map.clear();
      list.clear();
      deque.pop_front();
      CHECK(recycler.idle_bytes() >= idle + 3 * 64);
    }
    RecycledVector<int> vector({1, 2, 3}, recycler);
    const int* const data = vector.data();
    Recycler other(4 << 10);
    RecycledVector<int> taken(other);
    taken = std::move(vector);
    CHECK(taken.data() == data);
  }
  CHECK(recycler.idle_bytes() > 0);
}

TEST_CASE("blocks outlive their recycler") {
  auto recycler = std::make_unique<Recycler>(1 << 10);
  auto number = std::allocate_shared<int>(Recycling<int>(*recycler), 7);
  std::weak_ptr<int> weak = number;
  { const auto kept = std::allocate_shared<int>(Recycling<int>(*recycler), 8); }
  CHECK((recycler->idle_bytes() > 0) == Recycler::kKeepsBlocks);
  recycler.reset();
  CHECK(*number == 7);
  number.reset();
  CHECK(weak.expired());  // its block is freed with the last reference
}

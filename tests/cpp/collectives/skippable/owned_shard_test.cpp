// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "collectives/skippable/owned_shard.h"

#include <cstring>

#include "harness/catch.h"
#include "harness/views.h"

using namespace aikido;
using namespace aikido::collectives;
using namespace aikido::testing;

namespace {

constexpr size_t kBytes = 16;  // four floats

struct Shard {
  BufferPool pool{0};
  OwnedShard shard{Rank(1), 3, kBytes};

  // `values` are the next bytes of `from`. Returns false if they have no place.
  bool give(int32_t from, uint64_t offset, const std::vector<float>& values) {
    std::byte* place = shard.place(Rank(from), offset, pool);
    if (place == nullptr) return false;
    std::memcpy(place, values.data(), values.size() * sizeof(float));
    shard.arrived(Rank(from), values.size() * sizeof(float));
    return true;
  }
};

const RankSet kAll = RankSet::full(3);
const auto kSum = kernels::find_reduce(ReduceOp::kSum, DType::kFloat32);

}  // namespace

TEST_CASE("a contribution is complete when its last byte arrives, and only once") {
  Shard s;
  std::byte* place = s.shard.place(Rank(0), 0, s.pool);
  REQUIRE(place != nullptr);
  CHECK_FALSE(s.shard.arrived(Rank(0), 8));
  CHECK_FALSE(s.shard.has(Rank(0)));
  CHECK(s.shard.place(Rank(0), 8, s.pool) == place + 8);
  CHECK(s.shard.arrived(Rank(0), 8));
  CHECK(s.shard.has(Rank(0)));
  // Repeated bytes are not taken.
  CHECK(s.shard.place(Rank(0), 0, s.pool) == nullptr);
  CHECK_FALSE(s.shard.arrived(Rank(0), 8));
  CHECK(s.shard.has(Rank(0)));
  CHECK_FALSE(s.shard.has(Rank(2)));
}

TEST_CASE("bytes arrive in order, and from the beginning when they are sent again") {
  Shard s;
  CHECK(s.shard.place(Rank(0), 4, s.pool) == nullptr);  // without its beginning
  CHECK_FALSE(s.shard.arrived(Rank(0), 4));             // and nothing has come
  CHECK(s.give(0, 0, {1, 2}));
  CHECK_FALSE(s.give(0, 4, {9}));
  CHECK_FALSE(s.give(0, 12, {9}));
  CHECK(s.give(0, 0, {3}));  // sent again, in another view
  CHECK(s.shard.ready(set_of(3, {0}), nullptr) == 4);
  CHECK(s.give(0, 4, {4, 5, 6}));
  CHECK(s.shard.has(Rank(0)));
  s.shard.forget(Rank(0));
  CHECK_FALSE(s.shard.has(Rank(0)));
  CHECK(s.shard.ready(set_of(3, {0}), nullptr) == 0);
  CHECK(s.give(0, 0, {7, 8, 9, 10}));
  CHECK(s.shard.has(Rank(0)));
}

TEST_CASE("data that is kept where it lies is folded like copied data") {
  Shard s;
  const std::vector<float> theirs{1, 2, 3, 4}, others{10, 20, 30, 40};
  std::vector<float> own{100, 200, 300, 400}, sum(4);
  // Pieces of rank 0: the number of elements, and true if the piece is kept where it
  // lies.
  const auto pieces =
      GENERATE(std::vector<std::pair<int, bool>>{{4, true}},
               std::vector<std::pair<int, bool>>{{1, true}, {3, true}},
               std::vector<std::pair<int, bool>>{{2, false}, {2, true}},
               std::vector<std::pair<int, bool>>{{1, true}, {2, false}, {1, true}});
  BufferPool lent{0};
  size_t at = 0;
  for (const auto& [count, is_kept] : pieces) {
    const size_t bytes = static_cast<size_t>(count) * sizeof(float);
    std::byte* lies = nullptr;
    std::byte* const place =
        s.shard.place(Rank(0), at * sizeof(float), s.pool, [&, kept = is_kept] {
          Buffer block = kept ? lent.take(bytes) : Buffer();
          lies = block.data();
          return block;
        });
    REQUIRE(place != nullptr);
    CHECK((place == lies) == is_kept);
    std::memcpy(place, theirs.data() + at, bytes);
    at += static_cast<size_t>(count);
    CHECK(s.shard.arrived(Rank(0), bytes) == (at == 4));
  }
  REQUIRE(s.give(2, 0, others));
  const auto begin = GENERATE(size_t{0}, size_t{1});
  s.shard.fold(reinterpret_cast<std::byte*>(sum.data()), kSum, {kAll, {}},
               reinterpret_cast<std::byte*>(own.data()), begin * sizeof(float), kBytes,
               DType::kFloat32, 1.0);
  std::vector<float> expected{111, 222, 333, 444};
  std::fill_n(expected.begin(), begin, 0.0F);
  CHECK(sum == expected);
}

TEST_CASE("a contribution that begins again drops the data from before") {
  Shard s;
  BufferPool lent{0};
  const auto keep = [&] { return lent.take(8); };
  REQUIRE(s.shard.place(Rank(0), 0, s.pool, keep) != nullptr);
  s.shard.arrived(Rank(0), 8);
  int num_asked = 0;
  const auto count = [&] {
    ++num_asked;
    return Buffer();
  };
  CHECK(s.shard.place(Rank(0), 4, s.pool, count) == nullptr);
  CHECK(num_asked == 0);  // these are not the next bytes
  REQUIRE(s.give(0, 0, {5, 6, 7, 8}));
  std::vector<float> copy(4);
  s.shard.fold(reinterpret_cast<std::byte*>(copy.data()), kSum, {set_of(3, {0}), {}},
               nullptr, 0, kBytes, DType::kFloat32, 1.0);
  CHECK(copy == std::vector<float>{5, 6, 7, 8});
}

TEST_CASE("an empty contribution is complete at once") {
  BufferPool pool(0);
  OwnedShard shard(Rank(0), 2, 0);
  CHECK(shard.place(Rank(1), 0, pool) != nullptr);
  CHECK(shard.arrived(Rank(1), 0));
  CHECK(shard.has(Rank(1)));
}

TEST_CASE(
    "ready() counts the bytes that all ranks of the mask have given, ours with our "
    "call") {
  Shard s;
  const std::vector<float> mine(4, 1.0f);
  const auto* own = reinterpret_cast<const std::byte*>(mine.data());
  CHECK(s.shard.ready(set_of(3, {1}), own) == kBytes);
  CHECK(s.shard.ready(set_of(3, {1}), nullptr) == 0);
  CHECK(s.give(0, 0, {1, 2, 3}));
  CHECK(s.give(2, 0, {1}));
  CHECK(s.shard.ready(kAll, own) == 4);
  CHECK(s.shard.ready(set_of(3, {0, 1}), own) == 12);
  CHECK(s.shard.ready(kAll, nullptr) == 0);
}

TEST_CASE("the fold contains the mask only, in rank order") {
  const std::vector<float> mine = {1e8f, 1, 2, 3};
  const auto* own = reinterpret_cast<const std::byte*>(mine.data());
  struct Row {
    std::initializer_list<int32_t> mask;
    double scale;
    std::vector<float> expected;
  };
  for (const bool is_last_first : {false, true}) {
    Shard s;
    const std::vector<float> of_0 = {-1e8f, 10, 20, 30}, of_2 = {1, 100, 200, 300};
    for (const int32_t r : is_last_first ? std::vector{2, 0} : std::vector{0, 2})
      CHECK(s.give(r, 0, r == 0 ? of_0 : of_2));
    for (const Row& row : {
             // In another order the first element would be 0.
             Row{{0, 1, 2}, 1.0, {1, 111, 222, 333}},
             Row{{0, 2}, 0.5, {-5e7f, 55, 110, 165}},
             Row{{1}, 2.0, {2e8f, 2, 4, 6}},
             Row{{1, 2}, 1.0, {1e8f, 101, 202, 303}},
         }) {
      std::vector<float> out(4, -1.0f);
      auto* bytes = reinterpret_cast<std::byte*>(out.data());
      // In two parts, as in a fold that runs ahead.
      s.shard.fold(bytes, kSum, {set_of(3, row.mask)}, own, 0, 8, DType::kFloat32,
                   row.scale);
      CHECK(out[2] == -1.0f);
      s.shard.fold(bytes, kSum, {set_of(3, row.mask)}, own, 8, 16, DType::kFloat32,
                   row.scale);
      s.shard.fold(bytes, kSum, {set_of(3, row.mask)}, own, 16, 16, DType::kFloat32,
                   row.scale);
      CHECK(out == row.expected);
    }
  }
}

TEST_CASE(
    "a stand-in is folded at the place of its data shard, instead of the primary") {
  const std::vector<float> mine = {1e8f};
  const auto* own = reinterpret_cast<const std::byte*>(mine.data());
  BufferPool pool(0);
  OwnedShard shard(Rank(3), 5, sizeof(float));  // three data shards, backups 3 and 4
  const std::vector<float> values = {-1e8f, 1, 2, 0, 3};
  for (const int32_t r : {4, 2, 1, 0}) {
    std::memcpy(shard.place(Rank(r), 0, pool), &values[static_cast<size_t>(r)], 4);
    CHECK(shard.arrived(Rank(r), 4));
  }
  const std::vector<straggler::StandIn> other{{Rank(1), Rank(4)}};
  const std::vector<straggler::StandIn> two{{Rank(0), Rank(3)}, {Rank(1), Rank(4)}};
  const std::vector<straggler::StandIn> last{{Rank(2), Rank(3)}};
  float sum = 0;
  const auto fold = [&](const RankSet& mask,
                        const std::vector<straggler::StandIn>& stand_ins) {
    shard.fold(reinterpret_cast<std::byte*>(&sum), kSum, {mask, stand_ins}, own, 0, 4,
               DType::kFloat32, 1.0);
    return sum;
  };
  CHECK(fold(set_of(5, {1, 2}), {}) == 3);
  CHECK(fold(set_of(5, {1, 2}), other) == 5);
  CHECK(fold(set_of(5, {0, 1, 2}), two) == 1e8f);
  // In another order the small value would be lost.
  CHECK(fold(set_of(5, {0, 2}), last) == 0);
  CHECK(fold(set_of(5, {0, 1, 2}), last) == 0);
}

TEST_CASE("a weighted fold follows its mask and the weights of its contributors") {
  Shard s;
  REQUIRE(s.give(0, 0, {1, 1, 1, 1}));
  REQUIRE(s.give(2, 0, {5, 5, 5, 5}));
  const std::vector<float> mine(4, 2.0f);
  const auto* own = reinterpret_cast<const std::byte*>(mine.data());
  const double own_weight = 3;
  const auto check = [&](const RankSet& mask, float value, double total) {
    const Counted counted{mask, {}, &own_weight};
    std::vector<float> out(4);
    auto* bytes = reinterpret_cast<std::byte*>(out.data());
    const auto mean = kernels::find_reduce(ReduceOp::kAvg, DType::kFloat32);
    // In two parts. The scale has no effect.
    s.shard.fold(bytes, mean, counted, own, 0, 8, DType::kFloat32, 7);
    s.shard.fold(bytes, mean, counted, own, 8, 16, DType::kFloat32, 7);
    for (const float element : out) CHECK(element == Approx(value));
    CHECK(s.shard.total_weight(counted) == total);
  };
  s.shard.set_weight(Rank(0), 1);
  s.shard.set_weight(Rank(2), 0.5);
  check(set_of(3, {0, 1}), 1.75f, 4);
  check(set_of(3, {0, 2}), 7.0f / 3, 1.5);
  check(kAll, 9.5f / 4.5f, 4.5);
  s.shard.set_weight(Rank(2), 4);  // sent again
  check(kAll, 27.0f / 8, 8);
  check(set_of(3, {1}), 2, 3);
  const RankSet mask = kAll;
  CHECK(s.shard.total_weight({mask}) == std::nullopt);  // without weights
}

TEST_CASE("more than 64 contributions can be folded") {
  constexpr int32_t kMany = 130;
  BufferPool pool(0);
  OwnedShard shard(Rank(0), kMany, sizeof(float));
  const float mine = 1;
  for (int32_t r = 1; r < kMany; ++r) {
    const auto value = static_cast<float>(r + 1);
    std::memcpy(shard.place(Rank(r), 0, pool), &value, sizeof value);
    CHECK(shard.arrived(Rank(r), sizeof value));
  }
  float sum = 0;
  shard.fold(reinterpret_cast<std::byte*>(&sum),
             kernels::find_reduce(ReduceOp::kSum, DType::kFloat32),
             {RankSet::full(kMany)}, reinterpret_cast<const std::byte*>(&mine), 0, 4,
             DType::kFloat32, 1.0);
  CHECK(sum == kMany * (kMany + 1) / 2);
}

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "collectives/skippable/partial_shards.h"

#include "harness/catch.h"
#include "harness/views.h"

using namespace aikido;
using namespace aikido::testing;
using collectives::Call;
using collectives::PartialShard;
using collectives::PartialShards;
using membership::View;

namespace {

constexpr int32_t kSize = 4;
constexpr size_t kLeast = 64;

Call call_of(int32_t backups = 0) {
  Call call;
  call.dtype = DType::kFloat32;
  call.count = kSize * 96;
  call.policy.kind = straggler::Kind::kSkip;
  call.policy.backups = backups;
  return call;
}

// The shards of operation 1 on rank 1, in a view.
struct Sample {
  explicit Sample(int32_t backups = 0, const View& in = View::first_of(kSize))
      : view(in), call(call_of(backups)), shards(Rank(1), kSize, Seq(1), call) {
    shards.cut(view, kLeast);
    divide();
  }
  // Follows the view. Shards stay whole if `stays` is true for them.
  void divide(bool stays = false) {
    shards.divide(
        view, [&](int32_t s) { return stays || !shards.at(s).is_live; },
        [&](int32_t s) { replaced.push_back(s); });
  }
  void close(int32_t s, std::vector<int32_t> ranks) {
    shards.at(s).mask = RankSet(kSize);
    for (const int32_t r : ranks) shards.at(s).mask.insert(Rank(r));
  }

  View view;
  Call call;
  PartialShards shards;
  std::vector<int32_t> replaced;
};

// View 2: rank 3 owns nothing, and its shard belongs to the others in parts.
View divided_view() {
  View view = View::first_of(kSize);
  view.number = 2;
  view.cuts.front().divisions = {{3, ranks_of({0, 1, 2})}};
  view.cuts.push_back({Seq(2), ranks_of({0, 1, 2}), RankSet(kSize)});
  return view;
}

}  // namespace

TEST_CASE("each owner has one live shard at first, without a result") {
  const Sample s;
  CHECK(s.shards.live() == std::vector<int32_t>{0, 1, 2, 3});
  CHECK(s.shards.num_left() == 4);
  CHECK(s.shards.in_turn(0) == 2);
  CHECK(s.shards.in_turn(3) == 1);
  CHECK(s.replaced.empty());
  for (int32_t i = 0; i < kSize; ++i) CHECK(s.shards.at(i).owner == Rank(i));
  CHECK_FALSE(s.shards.has_one_owner());
}

TEST_CASE("a divided shard is replaced by its parts, and its owner has lost a shard") {
  Sample s;
  s.shards.note_received(0);
  s.view = divided_view();
  s.shards.extend(s.shards.plan_in(s.view, kLeast));
  SECTION("it is replaced") {
    s.divide();
    CHECK(s.replaced == std::vector<int32_t>{3});
    CHECK(s.shards.live() == std::vector<int32_t>{0, 1, 2, 4, 5, 6});
    CHECK(s.shards.num_left() == 5);
    CHECK(s.shards.divided() == std::vector<int32_t>{3});
    CHECK(s.shards.at(5).owner == Rank(1));
    CHECK(s.shards.late_elsewhere() == set_of(kSize, {3}));
  }
  SECTION("it stays") {
    s.divide(true);
    CHECK(s.replaced.empty());
    CHECK(s.shards.live() == std::vector<int32_t>{0, 1, 2, 3});
    CHECK(s.shards.num_left() == 3);
    CHECK(s.shards.divided().empty());
  }
}

TEST_CASE("the only missing result belongs to another member and is not here") {
  Sample s;
  CHECK_FALSE(s.shards.only_missing());
  s.shards.note_received(0);
  s.shards.note_received(2);
  CHECK_FALSE(s.shards.only_missing());
  s.shards.at(1).own = std::make_unique<collectives::OwnedShard>(Rank(1), kSize, 4);
  CHECK(s.shards.only_missing() == 3);
  s.shards.note_received(3);
  CHECK_FALSE(s.shards.only_missing());
}

TEST_CASE("an excluded member forgets its results and their masks") {
  Sample s;
  s.close(0, {0, 1, 2, 3});
  s.shards.note_received(0);
  s.shards.forget_results();
  CHECK(s.shards.num_left() == 4);
  CHECK_FALSE(s.shards.at(0).is_received);
  CHECK(s.shards.at(0).mask.count() == 0);
}

TEST_CASE("a member outside of a mask was late, and waited for once") {
  Sample s;
  CHECK_FALSE(s.shards.is_late(Rank(2)));
  s.close(0, {0, 1, 3});
  CHECK(s.shards.is_late(Rank(2)));
  CHECK_FALSE(s.shards.is_late(Rank(3)));
  CHECK_FALSE(s.shards.is_full(s.shards.at(0)));
  CHECK(s.shards.late_elsewhere() == set_of(kSize, {2}));
}

TEST_CASE(
    "a primary with a stand-in was late, although its data shard is in the mask") {
  Sample s(1);
  REQUIRE(s.shards.is_backup(Rank(3)));
  s.close(0, {0, 1, 2});
  CHECK(s.shards.is_full(s.shards.at(0)));
  s.shards.at(0).stand_ins = {{Rank(2), Rank(3)}};
  CHECK_FALSE(s.shards.is_full(s.shards.at(0)));
  CHECK(s.shards.is_late(Rank(2)));
  CHECK_FALSE(s.shards.is_late(Rank(3)));
}

TEST_CASE("results with other masks, stand-ins or cuts have other fingerprints") {
  Sample s(1);
  s.close(0, {0, 1, 2});
  const uint64_t full = s.shards.fingerprint(0);
  s.shards.at(0).stand_ins = {{Rank(2), Rank(3)}};
  CHECK(s.shards.fingerprint(0) != full);
  s.shards.at(0).stand_ins.clear();
  CHECK(s.shards.fingerprint(0) == full);
  s.close(0, {0, 1});
  CHECK(s.shards.fingerprint(0) != full);
}

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "engine/policy_table.h"

#include "harness/catch.h"

using namespace aikido;
using engine::PolicyTable;

namespace {

constexpr int32_t kSize = 4;

straggler::PolicyOptions skips(uint32_t most) {
  straggler::PolicyOptions options;
  options.kind = straggler::Kind::kSkip;
  options.max_consecutive_skips = most;
  return options;
}

RankSet ranks(std::initializer_list<int32_t> values) {
  RankSet set(kSize);
  for (const int32_t r : values) set.insert(Rank(r));
  return set;
}

}  // namespace

TEST_CASE("each set of options has one policy") {
  PolicyTable table(kSize, 1000);
  CHECK(table.is_empty());
  CHECK(table.find(skips(10)) == nullptr);
  const auto* first = &table.add(skips(10));
  const auto* second = &table.add(skips(20));
  CHECK(table.size() == 2);
  CHECK(table.find(skips(10)) == first);
  CHECK(table.find(skips(20)) == second);
}

TEST_CASE("all policies share one log") {
  PolicyTable table(kSize, 1000);
  auto& first = table.add(skips(10));
  auto& second = table.add(skips(20));
  CHECK(&first.history().log() == &second.history().log());
}

TEST_CASE("the histories of all policies learn of calls") {
  PolicyTable table(kSize, 1000);
  auto& first = table.add(skips(10));
  auto& second = table.add(skips(20));
  table.on_called(Rank(2), Seq(7), TimePoint(Duration(1)));
  CHECK(first.history().called(Rank(2)) == Seq(7));
  CHECK(second.history().called(Rank(2)) == Seq(7));
}

TEST_CASE("the skips of a member are the most of any policy until they are forgotten") {
  PolicyTable table(kSize, 1000);
  table.add(skips(10));
  auto& second = table.add(skips(20));
  CHECK(table.consecutive_skips(Rank(3)) == 0);
  for (uint64_t seq = 1; seq <= 3; ++seq)
    second.history().on_committed(Seq(seq), ranks({0, 1, 2}), 10);
  CHECK(table.consecutive_skips(Rank(3)) == 3);
  CHECK(table.consecutive_skips(Rank(0)) == 0);
  table.forget_skips(Rank(3));
  CHECK(table.consecutive_skips(Rank(3)) == 0);
}

TEST_CASE("one policy suffices for a property of the table") {
  PolicyTable table(kSize, 1000);
  table.add(skips(10));
  CHECK_FALSE(table.may_leave());
  CHECK_FALSE(table.has_full_sums());
  auto leaves = skips(10);
  leaves.log_full = straggler::LogFull::kLeave;
  table.add(leaves);
  CHECK(table.may_leave());
  straggler::PolicyOptions full;
  full.rebalance = true;
  table.add(full);
  CHECK(table.has_full_sums());
}

TEST_CASE("members suffice if every policy has enough contributors among them") {
  PolicyTable table(kSize, 1000);
  CHECK(table.would_suffice(ranks({})));
  auto two = skips(10);
  two.min_contributors = 2;
  table.add(two);
  CHECK_FALSE(table.would_suffice(ranks({0})));
  CHECK(table.would_suffice(ranks({0, 1})));
  two.min_contributors = 3;
  table.add(two);
  CHECK_FALSE(table.would_suffice(ranks({0, 1})));
  CHECK(table.would_suffice(ranks({0, 1, 2})));
}

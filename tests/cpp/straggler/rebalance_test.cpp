// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "straggler/rebalance.h"

#include <string>

#include "harness/catch.h"
#include "straggler/play.h"

namespace aikido::straggler {
namespace {

using testing::Dice;
using testing::ms;

// Consecutive operations with one number per member: ms from the start of the operation
// to the arrival of the member's contribution.
class Played {
 public:
  explicit Played(int32_t size) : rebalance(size), owners(RankSet::full(size)) {}

  void operation(const std::vector<double>& arrivals) {
    std::vector<TimePoint> at;
    double longest = 0;
    for (const double a : arrivals) {
      at.push_back(now + ms(a));
      longest = std::max(longest, a);
    }
    rebalance.on_operation(at, owners);
    now += ms(longest + 10);
  }
  void operations(int count, const std::vector<double>& arrivals) {
    for (int i = 0; i < count; ++i) operation(arrivals);
  }
  // Ranks of the slow members.
  std::string slow() const {
    std::string text;
    for (int32_t r = 0; r < owners.world_size(); ++r)
      if (rebalance.is_slow(Rank(r))) text += std::to_string(r);
    return text;
  }
  uint32_t run(int32_t rank) const { return rebalance.in_time_run(Rank(rank)); }
  void move(int32_t rank) {
    owners.erase(Rank(rank));
    rebalance.on_moved(Rank(rank));
  }

  Rebalance rebalance;
  RankSet owners;
  TimePoint now{};
};

TEST_CASE("a member late in most of the last operations is slow") {
  struct Row {
    const char* what;
    std::vector<double> arrivals;
    const char* slow;
  };
  const Row rows[] = {
      {"nobody", {0, 100, 105, 110}, ""},
      {"one caller is 300 ms late", {0, 126, 126, 552}, "3"},
      {"a link has half the rate", {0, 126, 126, 252}, "3"},
      {"an owner is late itself", {300, 100, 110, 120}, "0"},
      {"everybody is slow", {900, 1000, 950, 1000}, ""},
      {"a spread as TCP makes it", {0, 60, 80, 130}, ""},
      {"as many are late as are not", {0, 0, 300, 300}, ""},
      {"two of five are", {0, 0, 5, 300, 310}, "34"},
      {"a millisecond is nothing", {0, 1, 1, 4}, ""},
      {"the other of two", {0, 300}, ""},
      {"one of three", {0, 10, 300}, "2"},
      {"alone", {0}, ""},
  };
  for (const Row& row : rows) {
    INFO(row.what);
    Played played(static_cast<int32_t>(row.arrivals.size()));
    played.operations(3, row.arrivals);
    CHECK(played.slow().empty());
    played.operation(row.arrivals);
    CHECK(played.slow() == row.slow);
  }
}

TEST_CASE("a member that is late in half of the operations is not slow") {
  Played played(4);
  for (int i = 0; i < 100; ++i) {
    played.operation({0, 100, 100, i % 4 == 0 || i % 4 == 1 ? 400.0 : 110.0});
    CHECK(played.slow().empty());
  }
}

TEST_CASE("a step that is late with all its buckets is late once") {
  Played played(3);
  for (int step = 0; step < 3; ++step) {
    std::vector<TimePoint> at(3, played.now);
    for (int bucket = 0; bucket < 25; ++bucket) {
      at[0] = at[1] = played.now + ms(bucket);
      at[2] = played.now + ms(300 + 5 * bucket);
      played.rebalance.on_operation(at, played.owners);
    }
    CHECK(played.slow().empty());
    played.now = at[2] + ms(10);
  }
  played.operation({0, 0, 300});
  CHECK(played.slow() == "2");
}

TEST_CASE("a member without shards has more to send and is not late for that") {
  Played played(4);
  played.operations(4, {0, 126, 126, 400});
  REQUIRE(played.slow() == "3");
  played.move(3);
  // Member 3 is as healthy as the others: it has S to send, where they have two thirds
  // of S.
  played.operations(20, {0, 112, 112, 168});
  CHECK(played.slow().empty());
  CHECK(played.run(3) == 20);
  // A member whose link has half the rate stays slow.
  played.operations(4, {0, 112, 112, 336});
  CHECK(played.slow() == "3");
  CHECK(played.run(3) == 0);
}

TEST_CASE("facts about a member from before a move do not count after it") {
  Played played(4);
  played.operations(4, {0, 100, 100, 400});
  played.move(3);
  CHECK(played.slow().empty());
  played.operations(3, {0, 100, 100, 400});
  CHECK(played.slow().empty());
  played.operation({0, 100, 100, 400});
  CHECK(played.slow() == "3");
}

TEST_CASE(
    "being in time is more than not being late, and is counted anew after a move") {
  Played played(4);
  played.operations(5, {0, 100, 100, 100});
  CHECK(played.run(3) == 5);
  played.operations(5, {0, 70, 70, 100});  // neither healthy nor slow
  CHECK(played.run(3) == 5);
  played.operation({0, 50, 50, 100});
  CHECK(played.run(3) == 0);
  played.operations(5, {0, 1, 1, 1});  // all arrive almost at once
  CHECK(played.run(3) == 5);
  played.move(3);
  CHECK(played.run(3) == 0);
}

TEST_CASE("an operation that ends at once counts neither against a member nor for it") {
  Played played(4);
  played.operations(4, {0, 100, 100, 400});
  played.operations(50, {0, 1, 1, 2});
  CHECK(played.slow() == "3");
}

TEST_CASE("fewer than half of the members are slow, for any arrivals") {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    Dice dice(seed);
    const auto size = static_cast<int32_t>(1 + dice.below(9));
    Played played(size);
    for (int i = 0; i < 40; ++i) {
      std::vector<double> arrivals;
      for (int32_t r = 0; r < size; ++r)
        arrivals.push_back(dice.exponential(r % 2 == 0 ? 10 : 200));
      const uint32_t before = played.run(0);
      played.operation(arrivals);
      // Fewer than half of the members are late in one operation. Each slow member
      // takes four of the places in the last five operations.
      CHECK(4 * played.slow().size() <= 5 * ((static_cast<size_t>(size) - 1) / 2));
      CHECK(played.run(0) <= before + 1);
    }
  }
}

TEST_CASE("an operation without an arrival of each member is a defect of its maker") {
  Rebalance rebalance(3);
  CHECK_THROWS_AS(rebalance.on_operation(std::vector<TimePoint>(2), RankSet::full(3)),
                  InternalError);
}

}  // namespace
}  // namespace aikido::straggler

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "straggler/deadline.h"

#include "harness/catch.h"
#include "straggler/play.h"

namespace aikido::straggler {
namespace {

using testing::Dice;
using testing::kBytes;
using testing::ms;
using testing::skip_options;

std::vector<Duration> lags(std::vector<std::pair<int, double>> counts) {
  std::vector<Duration> all;
  for (auto [count, lag_ms] : counts)
    all.insert(all.end(), static_cast<size_t>(count), ms(lag_ms));
  std::sort(all.begin(), all.end());
  return all;
}

TEST_CASE("a lost contribution costs the n-th part of a period, at least the floor") {
  CHECK(price_of_loss(ms(400), 4, ms(20)) == ms(100));
  CHECK(price_of_loss(ms(400), 8, ms(20)) == ms(50));
  CHECK(price_of_loss(ms(0.3), 8, ms(20)) == ms(20));
}

TEST_CASE("the deadline is what would have cost least") {
  struct Row {
    const char* name;
    std::vector<Duration> lags;
    double price_ms, deadline_ms;
  };
  const Row rows[] = {
      {"nothing but zero", lags({{64, 0}}), 20, 20},
      {"the grace grows with the price", lags({{64, 0}}), 100, 25},
      {"up to the ceiling", lags({{64, 0}}), 50'000, 10'000},
      {"below the floor", lags({{60, 1}, {4, 19}}), 20, 28.5},
      {"ties go to the longer", lags({{60, 1}, {4, 16}}), 20, 24},
      {"one long lag is not worth it", lags({{63, 1}, {1, 300}}), 100, 25},
      {"one lag that is", lags({{63, 1}, {1, 100}}), 100, 150},
      {"always too late", lags({{64, 300}}), 100, 0},
      {"always late, but worth it", lags({{64, 90}}), 100, 135},
      {"the price decides", lags({{64, 90}}), 80, 0},
      {"three late: the grace stays", lags({{61, 1}, {3, 300}}), 100, 25},
      {"late within the grace is not late", lags({{40, 1}, {21, 25}, {3, 300}}), 100,
       25},
      {"four late: regularly", lags({{60, 1}, {4, 300}}), 100, 1.5},
      {"mostly late, sometimes just so", lags({{54, 300}, {10, 0.5}}), 100, 0.75},
      {"mostly late, else among the first", lags({{54, 300}, {10, 0}}), 100, 0},
      {"none is taken only if cheaper", lags({{5, 20}, {16, 300}}), 100, 25},
      {"the ceiling", lags({{8, 9000}}), 20'000, 10'000},
      {"beyond the ceiling", lags({{8, 12'000}}), 20'000, 0},
  };
  for (const Row& row : rows) {
    INFO(row.name);
    CHECK(to_ms(cheapest_deadline(row.lags, ms(row.price_ms), skip_options())) ==
          Approx(row.deadline_ms));
  }
}

Duration cost(const std::vector<Duration>& all, Duration d, Duration price) {
  Duration sum{0};
  for (Duration lag : all) sum += lag > d ? d + price : lag;
  return sum;
}

TEST_CASE("no other allowed deadline is cheaper, for lags of any kind") {
  Dice dice(7);
  const PolicyOptions options = skip_options();
  for (int i = 0; i < 2000; ++i) {
    std::vector<Duration> all;
    const double late = dice.uniform();
    for (uint64_t k = dice.below(64) + 1; k > 0; --k)
      all.push_back(ms(dice.exponential(3) +
                       (dice.uniform() < late ? dice.exponential(150) : 0)));
    std::sort(all.begin(), all.end());
    const Duration price = ms(20 + dice.exponential(50));
    const Duration best = cheapest_deadline(all, price, options);
    const Duration grace = std::max(price / kGraceDivisor, options.floor);
    const auto beyond = all.end() - std::upper_bound(all.begin(), all.end(), grace);
    std::vector<Duration> others = {grace};
    for (Duration lag : all) {
      const auto d = Duration(static_cast<int64_t>(1.5 * double(lag.count())));
      if (d >= grace || beyond >= kRegularlyLate) others.push_back(d);
    }
    if (beyond >= kRegularlyLate) others.push_back(Duration::zero());
    bool is_best = best <= options.ceiling;
    for (Duration d : others) is_best &= cost(all, best, price) <= cost(all, d, price);
    CHECK(is_best);
    // On average nobody costs the others more than grace + price.
    CHECK(cost(all, best, price) / static_cast<int64_t>(all.size()) <= grace + price);
  }
}

TEST_CASE("slack and floor scale the answer") {
  PolicyOptions options = skip_options();
  options.slack = 3;
  CHECK(cheapest_deadline(lags({{64, 50}}), ms(100), options) == ms(150));
  options.floor = ms(500);
  CHECK(cheapest_deadline(lags({{64, 50}}), ms(500), options) == ms(500));
}

struct Fed {
  PolicyOptions options = skip_options();
  History history{4, UINT64_MAX};
  Deadlines deadlines{options, history};
  uint64_t seq = 0;
  TimePoint now{};

  // An operation to whose owner member 3 never delivers.
  void feed_without_3(double period_ms) {
    RankSet first(4);
    for (int32_t r = 0; r < 3; ++r) first.insert(Rank(r));
    history.on_quorum(Seq(++seq), kBytes, now += ms(period_ms), first);
  }

  void feed(double lag_ms, double period_ms, uint64_t bytes = kBytes) {
    RankSet first(4);
    for (int32_t r = 0; r < 3; ++r) first.insert(Rank(r));
    now += ms(period_ms);
    history.on_quorum(Seq(++seq), bytes, now, first);
    history.on_arrival(Seq(seq), Rank(3), now + ms(lag_ms));
  }
};

TEST_CASE("a member has the ceiling until enough lags of the class are known") {
  Fed fed;
  for (int i = 0; i < 8; ++i) {
    const auto answer = fed.deadlines.of(Rank(3), kBytes);
    CHECK(answer.is_warming_up);
    CHECK(answer.deadline == fed.options.ceiling);
    fed.feed(1, 400);
  }
  CHECK_FALSE(fed.deadlines.of(Rank(3), kBytes).is_warming_up);
  CHECK(fed.deadlines.of(Rank(3), kBytes).deadline == ms(25));
  CHECK(fed.deadlines.of(Rank(3), kBytes * 4).is_warming_up);
  CHECK(fed.deadlines.of(Rank(3), kBytes / 4).is_warming_up);
}

TEST_CASE("deadlines follow new lags, new periods, and the size class asked for") {
  Fed fed;
  for (int i = 0; i < 64; ++i) fed.feed(60, 400);
  CHECK(fed.deadlines.of(Rank(3), kBytes).deadline == ms(90));
  for (int i = 0; i < 64; ++i) fed.feed(300, 400);
  CHECK(fed.deadlines.of(Rank(3), kBytes).deadline == ms(0));
  for (int i = 0; i < 64; ++i) fed.feed(300, 2000);
  CHECK(fed.deadlines.of(Rank(3), kBytes).deadline == ms(450));
  for (int i = 0; i < 64; ++i) fed.feed(2, 400, 16);
  CHECK(fed.deadlines.of(Rank(3), 16).deadline == ms(25));
  CHECK(fed.deadlines.of(Rank(3), kBytes).deadline == ms(450));
  CHECK(fed.deadlines.of(Rank(2), kBytes).deadline == ms(125));
}

TEST_CASE("a new period changes the deadline of a member without new lags") {
  Fed fed;
  for (int i = 0; i < 64; ++i) fed.feed(1, 400);
  CHECK(fed.deadlines.of(Rank(3), kBytes).deadline == ms(25));
  for (int i = 0; i < 64; ++i) fed.feed_without_3(800);
  CHECK(fed.deadlines.of(Rank(3), kBytes).deadline == ms(50));
}

TEST_CASE("equally long histories of two size classes are kept apart") {
  Fed fed;
  for (int i = 0; i < 64; ++i) fed.feed(60, 400, 16);
  for (int i = 0; i < 64; ++i) fed.feed(1, 400);
  CHECK(fed.deadlines.of(Rank(3), 16).deadline == ms(90));
  CHECK(fed.deadlines.of(Rank(3), kBytes).deadline == ms(25));
}

}  // namespace
}  // namespace aikido::straggler

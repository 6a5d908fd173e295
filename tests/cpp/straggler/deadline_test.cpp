// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "straggler/deadline.h"

#include "harness/catch.h"
#include "straggler/play.h"

namespace aikido::straggler {
namespace {

using testing::Dice;
using testing::kBytes;
using testing::log_of;
using testing::ms;
using testing::skip_options;

std::vector<Duration> lags(std::vector<std::pair<int, double>> counts) {
  std::vector<Duration> all;
  for (auto [count, lag_ms] : counts)
    all.insert(all.end(), static_cast<size_t>(count), ms(lag_ms));
  std::sort(all.begin(), all.end());
  return all;
}

TEST_CASE(
    "a lost contribution costs half the n-th part of a period, at least the floor") {
  CHECK(price_of_loss(ms(400), 4, ms(20)) == ms(50));
  CHECK(price_of_loss(ms(400), 8, ms(20)) == ms(25));
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
      {"the grace is the price", lags({{64, 0}}), 100, 100},
      {"up to the ceiling", lags({{64, 0}}), 50'000, 10'000},
      {"worth it", lags({{60, 1}, {4, 19}}), 20, 20},
      {"one long lag is not", lags({{63, 1}, {1, 300}}), 100, 1.5},
      {"always too late", lags({{64, 300}}), 100, 0},
      {"always late, but worth it", lags({{64, 90}}), 100, 100},
      {"the price decides", lags({{64, 90}}), 80, 0},
      {"mostly late, sometimes just so", lags({{54, 300}, {10, 0.5}}), 100, 0.75},
      {"mostly late, else among the first", lags({{54, 300}, {10, 0}}), 100, 0},
      {"nothing beyond the grace", lags({{40, 1}, {21, 60}}), 100, 100},
      {"ties go to the grace", lags({{1, 20}}), 20, 20},
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
    const Duration grace = grace_of(price, options);
    std::vector<Duration> others = {grace, Duration::zero()};
    for (Duration lag : all) {
      const auto d = Duration(static_cast<int64_t>(1.5 * double(lag.count())));
      if (d < grace) others.push_back(d);
    }
    bool is_best = best <= grace;
    for (Duration d : others) is_best &= cost(all, best, price) <= cost(all, d, price);
    CHECK(is_best);
    // On average nobody costs the others more than that.
    CHECK(cost(all, best, price) / static_cast<int64_t>(all.size()) <= 2 * price);
  }
}

TEST_CASE("late again and again, until it is in time for long") {
  const auto window = [](std::vector<std::pair<int, double>> counts) {
    Window all;
    for (auto [count, lag_ms] : counts)
      for (int i = 0; i < count; ++i) all.push(ms(lag_ms));
    return all;
  };
  CHECK_FALSE(is_regularly_late(window({}), ms(20)));
  CHECK_FALSE(is_regularly_late(window({{40, 20}}), ms(20)));
  CHECK_FALSE(is_regularly_late(window({{40, 1}, {3, 300}}), ms(20)));
  CHECK(is_regularly_late(window({{40, 1}, {4, 300}}), ms(20)));
  CHECK(is_regularly_late(window({{60, 300}, {15, 1}}), ms(20)));
  CHECK_FALSE(is_regularly_late(window({{60, 300}, {16, 1}}), ms(20)));
  CHECK(is_regularly_late(window({{60, 300}, {16, 1}, {1, 300}}), ms(20)));
  Window forgiven = window({{60, 300}});
  const auto version = forgiven.version();
  forgiven.forgive();
  CHECK(forgiven.version() != version);
  CHECK_FALSE(is_regularly_late(forgiven, ms(20)));
  for (int i = 0; i < 15; ++i) forgiven.push(ms(1));
  CHECK_FALSE(is_regularly_late(forgiven, ms(20)));
  forgiven.push(ms(300));
  CHECK(is_regularly_late(forgiven, ms(20)));
}

TEST_CASE("slack and floor scale the answer") {
  PolicyOptions options = skip_options();
  options.slack = 3;
  const auto mostly_late = lags({{54, 300}, {10, 20}});
  CHECK(cheapest_deadline(mostly_late, ms(2000), options) == ms(2000));
  CHECK(cheapest_deadline(lags({{30, 300}, {30, 20}}), ms(100), options) == ms(60));
  options.floor = ms(500);
  CHECK(cheapest_deadline(lags({{64, 50}}), ms(500), options) == ms(500));
}

struct Fed {
  PolicyOptions options = skip_options();
  History history{log_of(4, UINT64_MAX)};
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
  CHECK(fed.deadlines.of(Rank(3), kBytes).deadline == ms(50));
  CHECK(fed.deadlines.of(Rank(3), kBytes * 4).is_warming_up);
  CHECK(fed.deadlines.of(Rank(3), kBytes / 4).is_warming_up);
}

TEST_CASE("deadlines follow new lags, new periods, and the size class asked for") {
  Fed fed;
  for (int i = 0; i < 64; ++i) fed.feed(40, 400);
  CHECK(fed.deadlines.of(Rank(3), kBytes).deadline == ms(50));
  for (int i = 0; i < 64; ++i) fed.feed(300, 400);
  CHECK(fed.deadlines.of(Rank(3), kBytes).deadline == ms(0));
  for (int i = 0; i < 64; ++i) fed.feed(300, 4000);
  CHECK(fed.deadlines.of(Rank(3), kBytes).deadline == ms(500));
  for (int i = 0; i < 64; ++i) fed.feed(2, 400, 16);
  CHECK(fed.deadlines.of(Rank(3), 16).deadline == ms(50));
  CHECK(fed.deadlines.of(Rank(3), kBytes).deadline == ms(500));
  CHECK(fed.deadlines.of(Rank(2), kBytes).deadline == ms(500));
}

TEST_CASE("a new period changes the deadline of a member without new lags") {
  Fed fed;
  for (int i = 0; i < 64; ++i) fed.feed(1, 400);
  CHECK(fed.deadlines.of(Rank(3), kBytes).deadline == ms(50));
  for (int i = 0; i < 64; ++i) fed.feed_without_3(800);
  CHECK(fed.deadlines.of(Rank(3), kBytes).deadline == ms(100));
}

TEST_CASE("equally long histories of two size classes are kept apart") {
  Fed fed;
  for (int i = 0; i < 64; ++i) fed.feed(60, 400, 16);
  for (int i = 0; i < 64; ++i) fed.feed(1, 400);
  CHECK(fed.deadlines.of(Rank(3), 16).deadline == ms(0));
  CHECK(fed.deadlines.of(Rank(3), kBytes).deadline == ms(50));
}

}  // namespace
}  // namespace aikido::straggler

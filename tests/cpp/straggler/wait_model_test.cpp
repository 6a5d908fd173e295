// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "straggler/wait_model.h"

#include <limits>

#include "harness/catch.h"
#include "straggler/play.h"

namespace aikido::straggler {
namespace {

using testing::Dice;
using testing::ms;

constexpr double kNeverOld = std::numeric_limits<double>::infinity();
constexpr double kPeriod = 100;

// A window of operations of kPeriod whose delays are `delays_ms(operation, rank)`, as
// an owner sees them that waits for all members.
RecentOperations window(int32_t n, int count,
                        const std::function<double(int, int32_t)>& delays_ms) {
  RecentOperations recent(n);
  double now_ms = 0;
  for (int i = 0; i < count; ++i) {
    const Seq seq(static_cast<uint64_t>(i) + 1);
    now_ms += kPeriod;
    double longest = 0;
    for (int32_t r = 0; r < n; ++r) longest = std::max(longest, delays_ms(i, r));
    recent.on_quorum(seq, 100, TimePoint{} + ms(now_ms));
    for (int32_t r = 0; r < n; ++r) {
      recent.on_called(Rank(r), seq, TimePoint{} + ms(now_ms + delays_ms(i, r)));
      recent.on_lag(seq, Rank(r), ms(delays_ms(i, r)));
    }
    now_ms += longest;
    recent.on_closed(seq, RankSet::full(n), RankSet::full(n), TimePoint{} + ms(now_ms));
  }
  return recent;
}

// A model in which all operations count the same.
WaitModel model_of(const RecentOperations& recent, double worth = 1) {
  return WaitModel(recent, ms(25), worth, 1.5, 2, kNeverOld);
}

TEST_CASE("WaitAll has all contributions and the longest delay of each operation") {
  const auto recent = window(4, 20, [](int i, int32_t r) {
    return r == 3 ? 50.0 : r == 2 && i % 2 == 0 ? 80.0 : 0.0;
  });
  const Predicted all = model_of(recent).wait_all();
  CHECK(all.contributions == 20 * 100);
  CHECK(to_ms(all.time) == Approx(19 * kPeriod + 10 * 80 + 10 * 50));
}

TEST_CASE("a rule that drops a member loses its contributions and no time") {
  const auto recent = window(4, 20, [](int, int32_t r) { return r == 3 ? 50.0 : 0.0; });
  RankSet dropped(4);
  dropped.insert(Rank(3));
  const Predicted some = model_of(recent).predict({ms(25), dropped});
  CHECK(some.contributions == Approx(20 * 75));
  CHECK(to_ms(some.time) == Approx(19 * kPeriod));
  CHECK(model_of(recent, 0.5).predict({ms(25), dropped}).contributions ==
        Approx(20 * 87.5));
}

TEST_CASE("a skip costs its consequences") {
  // The member is late once, by two and a half operations. It misses this operation and
  // the next two. Then it is granted one wait, of its late start and the grace.
  const auto recent =
      window(4, 20, [](int i, int32_t r) { return r == 3 && i == 5 ? 250.0 : 0.0; });
  const Predicted some = model_of(recent).predict({ms(25), RankSet(4)});
  CHECK(some.contributions == Approx(20 * 100 - 3 * 25));
  CHECK(to_ms(some.time) == Approx(19 * kPeriod + 25 + 25));
}

TEST_CASE("an operation counts half as much as an operation 32 later") {
  // Late in the older half of the window, or in the younger half.
  const auto rule = [](bool is_late_now) {
    const auto recent = window(4, 64, [=](int i, int32_t r) {
      return r == 3 && (i >= 32) == is_late_now ? 70.0 : 0.0;
    });
    return WaitModel(recent, ms(25), 1, 1.5, 2).best(ms(10'000));
  };
  CHECK(rule(true).dropped.contains(Rank(3)));
  CHECK_FALSE(rule(false).dropped.contains(Rank(3)));
}

TEST_CASE("the best rule waits for a delay as long as that makes more progress") {
  for (const auto& [delay_ms, waits] :
       {std::pair(10.0, true), std::pair(30.0, true), std::pair(40.0, false),
        std::pair(300.0, false)}) {
    INFO(delay_ms << " ms");
    const auto recent =
        window(4, 64, [d = delay_ms](int, int32_t r) { return r == 3 ? d : 0.0; });
    const WaitRule rule = model_of(recent).best(ms(10'000));
    const bool is_waited_for =
        !rule.dropped.contains(Rank(3)) && rule.deadline >= ms(delay_ms);
    CHECK(is_waited_for == waits);
  }
}

TEST_CASE("members that share a wait are waited for together") {
  // Sixteen of 32 members come 10 ms after the others. A wait for one member costs a
  // tenth of a period, more than the 32nd part that one contribution is worth. All
  // sixteen together are worth the wait.
  const auto recent =
      window(32, 64, [](int, int32_t r) { return r < 16 ? 10.0 : 0.0; });
  const WaitRule rule = WaitModel(recent, ms(3), 1, 1.5, 17).best(ms(10'000));
  CHECK(rule.deadline >= ms(10));
  CHECK(rule.dropped.count() == 0);
}

TEST_CASE("the rule with the most contributions is taken among equal rules") {
  // 4 / 133.3 = 3 / 100.
  const auto recent = window(4, 64, [](int, int32_t r) { return r == 3 ? 33.4 : 0.0; });
  const WaitRule rule = model_of(recent).best(ms(10'000));
  CHECK(rule.deadline >= ms(33.4));
  CHECK(rule.dropped.count() == 0);
}

TEST_CASE("no other deadline or dropped set does better than the best by much") {
  Dice dice(3);
  for (int k = 0; k < 60; ++k) {
    const int32_t n = 3 + static_cast<int32_t>(dice.below(4));
    std::vector<double> delays;
    const double late = 200 * dice.uniform(), share = dice.uniform();
    for (int i = 0; i < 64 * n; ++i)
      delays.push_back(dice.exponential(2) + (dice.uniform() < share / n ? late : 0));
    const auto recent = window(n, 64, [&](int i, int32_t r) {
      return delays[static_cast<size_t>(i * n + r)];
    });
    const WaitModel model = model_of(recent);
    const double best = model.predict(model.best(ms(10'000))).rate();
    CHECK(best >= 0.97 * model.wait_all().rate());
    for (double d = 0; d < 400; d += 7) {
      INFO("world " << k << ", deadline " << d << " ms");
      CHECK(best >= 0.96 * model.predict({ms(d), RankSet(n)}).rate());
    }
  }
}

TEST_CASE("an unknown delay is taken from the fair delays, in turns") {
  RecentOperations recent(3);
  double now = 0;
  for (uint64_t seq = 1; seq <= 12; ++seq) {
    now += 100;
    const bool is_known = seq <= 5;
    const double delay = seq % 2 == 0 ? 40 : 0;
    recent.on_quorum(Seq(seq), 100, TimePoint{} + ms(now));
    for (const int32_t r : {0, 1}) recent.on_lag(Seq(seq), Rank(r), ms(0));
    if (is_known) recent.on_lag(Seq(seq), Rank(2), ms(delay));
    RankSet mask = RankSet::full(3);
    if (!is_known) mask.erase(Rank(2));
    recent.on_closed(Seq(seq), mask, RankSet::full(mask.world_size()),
                     TimePoint{} + ms(now += is_known ? delay : 0));
  }
  const WaitModel model(recent, ms(33), 1, 1.5, 2);
  // The fair delays are 40, 0, 40 and 0 ms.
  for (size_t i = 5; i < 12; ++i)
    CHECK(model.delay(i, 2) == ms((i - 5) % 4 % 2 == 0 ? 40 : 0));
}

}  // namespace
}  // namespace aikido::straggler

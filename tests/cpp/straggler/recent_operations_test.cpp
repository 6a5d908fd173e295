// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "straggler/recent_operations.h"

#include "harness/catch.h"
#include "straggler/play.h"

namespace aikido::straggler {
namespace {

using testing::ms;

TimePoint at(double t_ms) {
  return TimePoint{} + ms(t_ms);
}

RankSet ranks(std::initializer_list<int32_t> some) {
  RankSet set(3);
  for (const int32_t r : some) set.insert(Rank(r));
  return set;
}

// Members 0 and 1 call and arrive at `t_q`, member 2 is `lag` later.
void play(RecentOperations& recent, uint64_t seq, double t_q_ms, double lag_ms,
          double close_ms, bool is_in) {
  for (const int32_t r : {0, 1}) recent.on_called(Rank(r), Seq(seq), at(t_q_ms));
  recent.on_quorum(Seq(seq), 100, at(t_q_ms));
  for (const int32_t r : {0, 1}) recent.on_lag(Seq(seq), Rank(r), ms(0));
  if (is_in) {
    recent.on_called(Rank(2), Seq(seq), at(t_q_ms + lag_ms));
    recent.on_lag(Seq(seq), Rank(2), ms(lag_ms));
  }
  recent.on_closed(Seq(seq), is_in ? ranks({0, 1, 2}) : ranks({0, 1}), RankSet::full(3),
                   at(close_ms));
  if (!is_in) {
    recent.on_called(Rank(2), Seq(seq), at(t_q_ms + lag_ms));
    recent.on_lag(Seq(seq), Rank(2), ms(lag_ms));
  }
}

TEST_CASE("an operation has its time until the quorum, and its wait") {
  RecentOperations recent(3);
  play(recent, 1, 100, 5, 105, true);
  play(recent, 2, 205, 30, 220, false);
  const auto all = recent.all();
  REQUIRE(all.size() == 2);
  CHECK(all[0].to_quorum == ms(0));  // earlier times are unknown
  CHECK(all[1].to_quorum == ms(100));
  CHECK(all[1].waited == ms(15));
  CHECK(all[0].num_missing == 0);
  CHECK(all[1].num_missing == 1);
  CHECK(recent.num_closed() == 2);
  CHECK_FALSE(recent.is_complete());
  CHECK(recent.longest_lag() == ms(30));
}

TEST_CASE("a late start is no delay of the operation that it is in") {
  RecentOperations recent(3);
  play(recent, 1, 100, 0, 100, true);
  play(recent, 2, 200, 60, 200, false);  // calls 60 ms after the close
  CHECK(recent.late_start(Rank(2), Seq(3)) == ms(60));
  play(recent, 3, 300, 65, 365, true);
  const auto all = recent.all();
  REQUIRE(all.size() == 3);
  CHECK(recent.delay(Seq(2), Rank(2)) == ms(60));
  CHECK(recent.delay(Seq(3), Rank(2)) == ms(5));
  CHECK(recent.late_start(Rank(2), Seq(3)) == ms(60));
  CHECK(recent.late_start(Rank(2), Seq(4)) == ms(0));  // it was waited for
  CHECK(recent.late_start(Rank(0), Seq(4)) == ms(0));
}

TEST_CASE("an operation that a member did not compute shows nothing about its delays") {
  RecentOperations recent(3);
  play(recent, 1, 100, 0, 100, true);
  for (const uint64_t seq : {2, 3}) {
    const double t_ms = 100.0 * static_cast<double>(seq);
    for (const int32_t r : {0, 1}) recent.on_called(Rank(r), Seq(seq), at(t_ms));
    recent.on_quorum(Seq(seq), 100, at(t_ms));
    recent.on_closed(Seq(seq), ranks({0, 1}), RankSet::full(3), at(t_ms));
  }
  CHECK_FALSE(recent.delay(Seq(2), Rank(2)).has_value());
  CHECK_FALSE(recent.delay(Seq(3), Rank(2)).has_value());
}

TEST_CASE("a delay counts once in operations that are called behind each other") {
  RecentOperations recent(3);
  play(recent, 1, 100, 0, 100, true);
  // Two buckets of one step: the second is called before the first is closed.
  for (const int32_t r : {0, 1}) recent.on_called(Rank(r), Seq(2), at(200));
  for (const int32_t r : {0, 1}) recent.on_called(Rank(r), Seq(3), at(210));
  recent.on_quorum(Seq(2), 100, at(201));
  recent.on_quorum(Seq(3), 100, at(211));
  recent.on_called(Rank(2), Seq(2), at(240));
  recent.on_called(Rank(2), Seq(3), at(250));
  recent.on_lag(Seq(2), Rank(2), ms(40));
  recent.on_lag(Seq(3), Rank(2), ms(42));
  recent.on_closed(Seq(2), ranks({0, 1, 2}), RankSet::full(3), at(251));
  recent.on_closed(Seq(3), ranks({0, 1, 2}), RankSet::full(3), at(253));
  CHECK(recent.delay(Seq(2), Rank(2)) == ms(40));
  CHECK(recent.delay(Seq(3), Rank(2)) == ms(2));
}

TEST_CASE("fair delays are delays of operations that were begun with the others") {
  RecentOperations recent(3);
  play(recent, 1, 100, 0, 100, true);
  play(recent, 2, 200, 60, 200, false);  // begun with the others
  play(recent, 3, 300, 65, 365, true);   // begun late
  play(recent, 4, 465, 7, 472, true);    // begun with the others
  const FairDelays& fair = recent.fair_delays(Rank(2));
  REQUIRE(fair.size() == 2);
  CHECK(fair[0] == ms(60));
  CHECK(fair[1] == ms(7));
}

TEST_CASE("the period is shared out by bytes") {
  RecentOperations recent(3);
  CHECK(recent.period(100) == ms(0));
  for (uint64_t seq = 1; seq <= 101; ++seq)
    play(recent, seq, 100.0 * static_cast<double>(seq), 0,
         100.0 * static_cast<double>(seq), true);
  CHECK(recent.period(100) == ms(100));
  CHECK(recent.period(50) == ms(50));
  CHECK(recent.num_closed(100) == 101);
  CHECK(recent.num_closed(1 << 20) == 0);
}

TEST_CASE("operations leave the window with everything that was kept of them") {
  RecentOperations recent(3);
  play(recent, 1, 100, 500, 100, false);
  for (uint64_t seq = 2; seq <= RecentOperations::kMost; ++seq)
    play(recent, seq, 100.0 * static_cast<double>(seq), 1,
         100.0 * static_cast<double>(seq) + 1, true);
  CHECK(recent.all().size() == RecentOperations::kMost);
  CHECK(recent.longest_lag() == ms(500));
  play(recent, RecentOperations::kMost + 1, 7000, 1, 7001, true);
  CHECK(recent.all().size() == RecentOperations::kMost);
  CHECK(recent.longest_lag() == ms(1));
  CHECK(recent.is_complete());
}

TEST_CASE("the last few lags are forgiven at once") {
  RecentOperations recent(3);
  for (uint64_t seq = 1; seq <= 6; ++seq)
    play(recent, seq, 100.0 * static_cast<double>(seq), 70,
         100.0 * static_cast<double>(seq) + 70, true);
  CHECK(recent.longest_of_few(Rank(2)) == ms(70));
  recent.forgive(Rank(2));
  CHECK(recent.longest_of_few(Rank(2)) == ms(0));
}

}  // namespace
}  // namespace aikido::straggler

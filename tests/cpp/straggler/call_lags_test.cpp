// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "straggler/call_lags.h"

#include "harness/catch.h"
#include "straggler/play.h"

namespace aikido::straggler {
namespace {

using testing::ms;

constexpr Rank kLate{3};
constexpr double kPeriodMs = 1000;

// In operation `seq`, the first three of four members call at once, and the last calls
// `lag_ms` later.
void play(CallLags& lags, uint64_t seq, double lag_ms) {
  const TimePoint start(ms(kPeriodMs * static_cast<double>(seq)));
  for (int32_t r = 0; r < 3; ++r) lags.on_called(Rank(r), Seq(seq), start);
  lags.on_called(kLate, Seq(seq), start + ms(lag_ms));
}

TEST_CASE("the rest of a lateness is half of it at most") {
  struct Row {
    double before_ms, lag_ms;
    bool is_rest;
  };
  const Row rows[] = {
      {400, 200, true},                                     // half
      {400, 201, false}, {400, 0, true},  {20, 10, false},  // it was not late
      {21, 10, true},    {0, 300, false}, {300, 300, false},
  };
  for (const Row& row : rows) {
    INFO(row.before_ms << " ms, then " << row.lag_ms);
    CallLags lags(4);
    play(lags, 1, row.before_ms);
    CHECK_FALSE(lags.is_rest(kLate, Seq(1), ms(20)));
    play(lags, 2, row.lag_ms);
    CHECK(lags.is_rest(kLate, Seq(2), ms(20)) == row.is_rest);
    // No other member was late, and no other operation is the last.
    CHECK_FALSE(lags.is_rest(Rank(2), Seq(2), ms(20)));
    CHECK_FALSE(lags.is_rest(kLate, Seq(1), ms(20)));
    CHECK_FALSE(lags.is_rest(kLate, Seq(3), ms(20)));
  }
}

TEST_CASE("a lag counts from the call of the second of four") {
  CallLags lags(4);
  lags.on_called(Rank(0), Seq(1), TimePoint(ms(0)));
  lags.on_called(Rank(1), Seq(1), TimePoint(ms(100)));
  lags.on_called(kLate, Seq(1), TimePoint(ms(130)));
  play(lags, 2, 15);
  CHECK(lags.is_rest(kLate, Seq(2), ms(29)));
  CHECK_FALSE(lags.is_rest(kLate, Seq(2), ms(30)));
}

TEST_CASE("one notice of several calls is a lag in each, and counts once") {
  CallLags lags(4);
  for (uint64_t seq = 1; seq <= 3; ++seq)
    for (int32_t r = 0; r < 3; ++r)
      lags.on_called(Rank(r), Seq(seq), TimePoint(ms(100.0 * double(seq))));
  lags.on_called(kLate, Seq(3), TimePoint(ms(350)));  // 250, 150 and 50 ms
  lags.on_called(kLate, Seq(3), TimePoint(ms(900)));
  CHECK(lags.is_rest(kLate, Seq(3), ms(149)));
  CHECK_FALSE(lags.is_rest(kLate, Seq(3), ms(150)));
}

TEST_CASE("a member far behind finds only the remembered operations") {
  CallLags lags(4);
  constexpr uint64_t kMany = 1000;
  for (uint64_t seq = 1; seq <= kMany; ++seq)
    for (int32_t r = 0; r < 3; ++r)
      lags.on_called(Rank(r), Seq(seq), TimePoint(ms(double(seq))));
  lags.on_called(kLate, Seq(10), TimePoint(ms(2000)));  // forgotten: no lag
  lags.on_called(kLate, Seq(kMany), TimePoint(ms(2000)));
  CHECK_FALSE(lags.is_rest(kLate, Seq(kMany), ms(20)));  // 1000 ms, before 1001
  play(lags, kMany + 1, 400);
  CHECK(lags.is_rest(kLate, Seq(kMany + 1), ms(20)));
}

}  // namespace
}  // namespace aikido::straggler

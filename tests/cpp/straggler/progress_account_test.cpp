// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "straggler/progress_account.h"

#include "harness/catch.h"
#include "straggler/play.h"

namespace aikido::straggler {
namespace {

using testing::ms;

constexpr double kPeriod = 100;

// Four members. Members 0 to 2 arrive kPeriod after the previous close.
struct Ledger {
  RecentOperations recent{4};
  ProgressAccount account{1};
  RankSet members = RankSet::full(4);
  uint64_t seq = 0;
  double now_ms = 0;

  TimePoint at(double t_ms) const { return TimePoint{} + ms(t_ms); }
  void late_call(uint64_t of, double t_ms, double lag_ms) {
    recent.on_called(Rank(3), Seq(of), at(t_ms));
    recent.on_lag(Seq(of), Rank(3), ms(lag_ms));
  }
  // Member 3 is `lag_ms` late. It is waited for if `is_in`; otherwise it calls later.
  void operation(double lag_ms, bool is_in, double period_ms = kPeriod) {
    const double t_q = now_ms + period_ms;
    ++seq;
    for (const int32_t r : {0, 1, 2}) recent.on_called(Rank(r), Seq(seq), at(t_q));
    recent.on_quorum(Seq(seq), 100, at(t_q));
    for (const int32_t r : {0, 1, 2}) recent.on_lag(Seq(seq), Rank(r), ms(0));
    RankSet mask = RankSet::full(4);
    now_ms = t_q;
    if (is_in) {
      late_call(seq, t_q + lag_ms, lag_ms);
      now_ms += lag_ms;
    } else {
      mask.erase(Rank(3));
    }
    recent.on_closed(Seq(seq), mask, members, at(now_ms));
    account.update(recent, at(now_ms));
  }
  void in_step(int count) {
    for (int i = 0; i < count; ++i) operation(0, true);
  }
};

TEST_CASE("without a skip only what may be lost is added") {
  Ledger ledger;
  ledger.in_step(100);
  CHECK(ledger.account.lost() == Approx(-1.5).margin(0.05));
  for (int i = 0; i < 20; ++i) ledger.operation(50, true);
  CHECK(ledger.account.lost() == Approx(-1.8).margin(0.2));
}

TEST_CASE("the operations are replayed as they were and under WaitAll") {
  Ledger ledger;
  ledger.in_step(10);
  for (int i = 0; i < 20; ++i) ledger.operation(50, true);
  const ReplayedOperations& waits = ledger.account.replayed();
  CHECK(waits.operations == 30);
  CHECK(waits.bytes == 3000);
  CHECK(waits.bytes_in == 3000);
  CHECK(waits.time == waits.time_of_wait_all);
  // The time before the first operation counts as 0.
  CHECK(to_ms(waits.time) == Approx(29 * kPeriod + 20 * 50));
}

TEST_CASE("a skipped operation lacks a contribution and saves the wait") {
  Ledger ledger;
  ledger.in_step(10);
  for (int i = 0; i < 10; ++i) {
    ledger.operation(0, false);
    ledger.late_call(ledger.seq, ledger.now_ms + 40, 40);
    ledger.operation(0, true);
  }
  ledger.in_step(10);
  const ReplayedOperations& sums = ledger.account.replayed();
  CHECK(sums.operations == 40);
  CHECK(sums.bytes_in == Approx(4000 - 10 * 25));
  CHECK(to_ms(sums.time_of_wait_all - sums.time) == Approx(10 * 40).margin(1));
}

TEST_CASE("gains count for a few operations at most") {
  Ledger ledger;
  ledger.in_step(300);
  CHECK(ledger.account.lost() == Approx(-ProgressAccount::kMostCredit));
}

TEST_CASE("a skip is charged at the close, and its saving as time passes") {
  Ledger ledger;
  ledger.in_step(60);
  const double before = ledger.account.lost();
  ledger.operation(0, false);
  CHECK(ledger.account.lost() - before == Approx(0.25).margin(0.03));
  // The member has not called yet. So it is at least one operation late, and is missing
  // in that operation as well.
  ledger.operation(0, false);
  CHECK(ledger.account.lost() - before == Approx(0.5 - 1).margin(0.08));
  ledger.operation(0, false);
  CHECK(ledger.account.lost() - before == Approx(0.75 - 2).margin(0.15));
}

TEST_CASE("a skip that is followed by a wait of the same length saves nothing") {
  Ledger ledger;
  ledger.in_step(100);
  const double before = ledger.account.lost();
  ledger.operation(40, false);
  ledger.late_call(ledger.seq, ledger.now_ms + 40, 40);
  ledger.operation(40, true);  // it has begun 40 ms later than the others
  CHECK(ledger.account.lost() - before == Approx(0.25).margin(0.05));
}

TEST_CASE("the saving of an operation that was not computed is a fair delay") {
  Ledger ledger;
  for (int i = 0; i < 8; ++i) ledger.operation(60, true);
  const double before = ledger.account.lost();
  ledger.operation(0, false);
  ledger.operation(0, false);
  // Two operations late, the member calls both at once. The first has the delay.
  ledger.recent.on_called(Rank(3), Seq(9), ledger.at(ledger.now_ms));
  ledger.recent.on_lag(Seq(9), Rank(3), ms(100));
  ledger.recent.on_called(Rank(3), Seq(10), ledger.at(ledger.now_ms));
  ledger.account.update(ledger.recent, ledger.at(ledger.now_ms));
  CHECK(ledger.account.lost() - before == Approx(0.5 - 160.0 / 160).margin(0.06));
}

TEST_CASE("a saving in a cheap phase is priced at the mean of all operations") {
  Ledger ledger;
  for (int i = 0; i < 100; ++i) ledger.operation(0, true, 900);
  for (int i = 0; i < 100; ++i) ledger.operation(0, true, 100);
  const double before = ledger.account.lost();
  ledger.operation(90, false);
  ledger.late_call(ledger.seq, ledger.now_ms + 90, 90);
  ledger.account.update(ledger.recent, ledger.at(ledger.now_ms + 90));
  CHECK(ledger.account.lost() - before == Approx(0.25 - 90.0 / 500).margin(0.03));
}

TEST_CASE("a member that is in no view is not lost") {
  Ledger ledger;
  ledger.in_step(10);
  const double before = ledger.account.lost();
  ledger.members.erase(Rank(3));
  for (int i = 0; i < 10; ++i) ledger.operation(0, false);
  CHECK(ledger.account.lost() <= before);
  CHECK(ledger.recent.delay(Seq(15), Rank(3)) == ms(0));
  CHECK(ledger.recent.is_complete());
}

TEST_CASE("operations of many bytes weigh more than small operations") {
  Ledger ledger;
  ledger.in_step(60);
  const double before = ledger.account.lost();
  ++ledger.seq;
  RankSet mask = RankSet::full(4);
  mask.erase(Rank(3));
  const TimePoint t_q = ledger.at(ledger.now_ms + kPeriod);
  for (int32_t r = 0; r < 4; ++r) ledger.recent.on_called(Rank(r), Seq(61), t_q);
  ledger.recent.on_quorum(Seq(61), 200, t_q);
  for (int32_t r = 0; r < 4; ++r) ledger.recent.on_lag(Seq(61), Rank(r), ms(0));
  ledger.recent.on_closed(Seq(61), mask, RankSet::full(4), t_q);
  ledger.account.update(ledger.recent, t_q);
  CHECK(ledger.account.lost() - before == Approx(0.5).margin(0.06));
}

}  // namespace
}  // namespace aikido::straggler

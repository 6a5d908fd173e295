// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "straggler/deadline.h"

#include "harness/catch.h"
#include "straggler/play.h"

namespace aikido::straggler {
namespace {

using testing::kBytes;
using testing::log_of;
using testing::ms;
using testing::skip_options;
using Why = Deadlines::Why;

TEST_CASE("a lost contribution costs its worth of a period, at least the floor") {
  CHECK(price_of_loss(ms(400), 4, ms(20), 1) == ms(100));
  CHECK(price_of_loss(ms(400), 4, ms(20), 0.5) == ms(50));
  CHECK(price_of_loss(ms(400), 8, ms(20), 1) == ms(50));
  CHECK(price_of_loss(ms(0.3), 8, ms(20), 1) == ms(20));
  CHECK(price_of_loss(ms(400), 8, ms(20), 0) == ms(20));
}

// Four members, of which three are the quorum. Member 3 calls with them, and its
// contribution arrives `lag` later, as over a slow link.
struct Fed {
  explicit Fed(const PolicyOptions& of = skip_options()) : options(of) {}

  PolicyOptions options;
  History history{log_of(4, UINT64_MAX), options.floor, options.worth};
  Deadlines deadlines{options, history};
  uint64_t seq = 0;
  TimePoint closed_at{};

  // Each operation takes `period_ms` until the quorum. The owner waits for member 3 up
  // to its deadline.
  Deadlines::Answer feed(double lag_ms, double period_ms, uint64_t bytes = kBytes) {
    RankSet mask(4);
    for (int32_t r = 0; r < 3; ++r) mask.insert(Rank(r));
    const TimePoint t_q = closed_at + ms(period_ms);
    ++seq;
    for (int32_t r = 0; r < 4; ++r) history.on_called(Rank(r), Seq(seq), t_q);
    history.on_quorum(Seq(seq), bytes, t_q, mask);
    const auto answer = deadlines.of(Rank(3), Seq(seq), bytes);
    const bool is_in = ms(lag_ms) <= answer.deadline;
    closed_at = t_q + std::min(ms(lag_ms), answer.deadline);
    if (is_in) {
      history.on_arrival(Seq(seq), Rank(3), t_q + ms(lag_ms));
      mask.insert(Rank(3));
    }
    if (answer.why == Why::kReEntry)
      deadlines.on_re_entry(Rank(3), Seq(seq), bytes, is_in);
    history.on_own_close(Seq(seq), bytes, mask, t_q, closed_at);
    if (!is_in) history.on_too_slow(Seq(seq), Rank(3), ms(lag_ms));
    deadlines.choose(bytes, closed_at);
    history.on_committed(Seq(seq), mask, bytes);
    return answer;
  }
  void feed_many(int count, double lag_ms, double period_ms) {
    for (int i = 0; i < count; ++i) feed(lag_ms, period_ms);
  }
};

TEST_CASE("the first operations of a size wait up to the ceiling") {
  Fed fed;
  for (int i = 0; i < 3; ++i) {
    const auto answer = fed.feed(1, 400);
    CHECK(answer.why == Why::kWarmingUp);
    CHECK(answer.deadline == fed.options.ceiling);
  }
  CHECK(fed.feed(1, 400).why == Why::kGrace);
  for (const uint64_t bytes : {kBytes * 4, kBytes / 4}) {
    INFO(bytes);
    CHECK(fed.deadlines.of(Rank(3), Seq(9), bytes).why == Why::kWarmingUp);
  }
}

TEST_CASE("three full operations behind a bad link are lost, and no more") {
  Fed fed;
  double waited_ms = 0;
  for (int i = 0; i < 20; ++i)
    waited_ms += std::min(2266.0, to_ms(fed.feed(2266, 234).deadline));
  CHECK(waited_ms <=
        3 * 2266 + 20 * 78);  // and a grace in each of the other operations
  CHECK(waited_ms >= 3 * 2266);
}

TEST_CASE("one long lag in the first operations skips no member afterwards") {
  Fed fed;
  fed.feed(5000, 400);
  for (int i = 0; i < 30; ++i) {
    const auto answer = fed.feed(60, 400);
    CHECK(answer.deadline >= ms(60));
  }
}

TEST_CASE("while no member is later than the grace, the grace is the deadline") {
  Fed fed;
  fed.feed_many(64, 1, 400);
  const auto answer = fed.feed(1, 400);
  CHECK(answer.why == Why::kGrace);
  CHECK(to_ms(answer.deadline) == Approx(100).epsilon(0.02));
  fed.feed_many(64, 1, 800);
  CHECK(to_ms(fed.feed(1, 800).deadline) == Approx(200).epsilon(0.02));
}

TEST_CASE("the grace of a small operation is less than that of a large one") {
  Fed fed;
  for (int i = 0; i < 64; ++i) {
    fed.feed(0, 300, 16 * kBytes);
    fed.feed(0, 300, kBytes);
  }
  const auto large = fed.deadlines.of(Rank(3), Seq(fed.seq + 1), 16 * kBytes);
  const auto small = fed.deadlines.of(Rank(3), Seq(fed.seq + 1), kBytes);
  CHECK(to_ms(large.deadline) == Approx(600 * 16.0 / 17 / 4).epsilon(0.02));
  CHECK(small.deadline == fed.options.floor);
}

TEST_CASE("a member that is always late is waited for when that makes more progress") {
  struct Row {
    double lag_ms;
    bool is_waited_for;
  };
  // 4 members and a period of 400 ms: 4 / (400 + lag) is compared with 3 / 400.
  for (const Row& row : {Row{48, true}, Row{100, true}, Row{120, true}, Row{150, false},
                         Row{200, false}, Row{400, false}, Row{4000, false}}) {
    INFO(row.lag_ms << " ms");
    Fed fed;
    fed.feed_many(100, row.lag_ms, 400);
    const auto answer = fed.feed(row.lag_ms, 400);
    CHECK((answer.deadline >= ms(row.lag_ms)) == row.is_waited_for);
    if (!row.is_waited_for) {
      CHECK(answer.why == Why::kDropped);
      CHECK(answer.deadline == Duration::zero());
    }
  }
}

TEST_CASE("a member behind a slow link gets little time until its link works again") {
  Fed fed;
  fed.feed_many(40, 1, 400);
  const auto time = [&](uint64_t ahead, uint64_t bytes = kBytes) {
    return fed.deadlines.of(Rank(3), Seq(fed.seq + ahead), bytes).deadline;
  };
  const Duration grace = fed.deadlines.grace(kBytes), little = grace / 4;
  CHECK(time(1) == grace);
  fed.deadlines.on_cut_off(Rank(3), Seq(fed.seq), kBytes, ms(150));
  CHECK(time(1) == grace);  // a lag of less than half of an operation
  fed.deadlines.on_cut_off(Rank(3), Seq(fed.seq), kBytes, ms(1000));
  CHECK(time(1) == little);              // the 16th part of an operation
  CHECK(time(1, kBytes - 4) != little);  // of a smaller operation
  CHECK(time(Deadlines::kSlowFor) == little);
  CHECK(time(Deadlines::kSlowFor + 1) == grace);
  SECTION("for twice as many operations after each further time") {
    fed.deadlines.on_cut_off(Rank(3), Seq(fed.seq + Deadlines::kSlowFor), kBytes,
                             ms(1000));
    CHECK(time(3 * Deadlines::kSlowFor) == little);
    CHECK(time(3 * Deadlines::kSlowFor + 1) == grace);
  }
  SECTION("a contribution nearly in time") {
    fed.deadlines.on_cut_off(Rank(3), Seq(fed.seq + 1), kBytes, ms(50));
    CHECK(time(2) == grace);
  }
  SECTION("a contribution in a result") {
    fed.feed(1, 400);
    CHECK(time(1) == fed.deadlines.grace(kBytes));
  }
}

TEST_CASE("with half the worth, waiting pays for half of the lag") {
  for (const auto& [lag_ms, is_waited_for] :
       {std::pair(45.0, true), std::pair(90.0, false)}) {
    INFO(lag_ms << " ms");
    PolicyOptions options = skip_options();
    options.worth = 0.5;
    Fed fed(options);
    fed.feed_many(64, lag_ms, 400);
    int num_waits = 0;  // in eight operations, of which one may have a probe
    for (int i = 0; i < 8; ++i)
      num_waits += fed.feed(lag_ms, 400).deadline >= ms(lag_ms) ? 1 : 0;
    CHECK((is_waited_for ? num_waits == 8 : num_waits <= 1));
  }
}

TEST_CASE("a member that has recovered has the grace after a few lags") {
  Fed fed;
  fed.feed_many(64, 1000, 400);
  CHECK(fed.feed(1000, 400).why == Why::kDropped);
  fed.feed_many(RecentOperations::kFew, 0.5, 400);
  CHECK(fed.feed(0.5, 400).deadline > ms(50));
}

TEST_CASE("a member that gets a new chance is waited for at once") {
  Fed fed;
  fed.feed_many(64, 1000, 400);
  fed.history.forgive(Rank(3), Seq(fed.seq));
  CHECK(fed.feed(1000, 400).deadline > ms(50));
}

TEST_CASE("a probe comes sooner after a useful probe than after one in vain") {
  Fed fed;
  fed.feed_many(40, 4000, 400);
  const auto until_probe = [&] {
    uint64_t num = 1;
    while (fed.feed(4000, 400).why != Why::kReEntry) ++num;
    return num;
  };
  until_probe();
  const uint64_t after_one = until_probe();
  const uint64_t after_two = until_probe();
  CHECK(after_two >= 3 * after_one / 2);
  // The member is in time for a while after the next probe, and then as late as before.
  while (fed.deadlines.of(Rank(3), Seq(fed.seq + 1), kBytes).why != Why::kReEntry)
    fed.feed(4000, 400);
  fed.feed_many(RecentOperations::kFew + 2, 0.5, 400);
  const uint64_t until_next = until_probe();
  CHECK(until_probe() < after_two);
  CHECK(until_next > RecentOperations::kFew);
}

TEST_CASE("a question changes no answer") {
  Fed fed;
  fed.feed_many(100, 4000, 400);
  for (int i = 0; i < 100; ++i) {
    const auto asked = fed.deadlines.of(Rank(3), Seq(fed.seq + 1), kBytes);
    CHECK(fed.deadlines.of(Rank(3), Seq(fed.seq + 1), kBytes).why == asked.why);
    CHECK(fed.feed(4000, 400).why == asked.why);
  }
}

TEST_CASE("no deadline is longer than its limit") {
  Fed fed;
  fed.deadlines.limit(ms(30));
  for (int i = 0; i < 20; ++i) CHECK(fed.feed(1, 400).deadline == ms(30));
}

// Member 3 stalls once. It calls the missed operation `late_ms` after the close, and
// then computes as fast as the others.
struct Returning : Fed {
  Deadlines::Answer miss_then_ask(double late_ms) {
    ++seq;
    end(false);
    history.on_called(Rank(3), Seq(seq), closed_at + ms(late_ms));
    ++seq;  // it computes this operation together with the others
    return deadlines.of(Rank(3), Seq(seq), kBytes);
  }
  void end(bool is_in) {
    RankSet mask(4), first(4);
    for (int32_t r = 0; r < 3; ++r) first.insert(Rank(r));
    const TimePoint t_q = closed_at + ms(400);
    first.for_each([&](Rank r) { history.on_called(r, Seq(seq), t_q); });
    history.on_quorum(Seq(seq), kBytes, t_q, first);
    mask = first;
    if (is_in) {
      mask.insert(Rank(3));
      history.on_arrival(Seq(seq), Rank(3), t_q);
    }
    closed_at = t_q;
    if (deadlines.of(Rank(3), Seq(seq), kBytes).why == Why::kReEntry)
      deadlines.on_re_entry(Rank(3), Seq(seq), kBytes, is_in);
    history.on_own_close(Seq(seq), kBytes, mask, t_q, closed_at);
    deadlines.choose(kBytes, closed_at);
    history.on_committed(Seq(seq), mask, kBytes);
  }
};

TEST_CASE("a member that was skipped and starts late is granted one wait") {
  Returning fed;
  fed.feed_many(32, 1, 400);
  const auto answer = fed.miss_then_ask(250);
  CHECK(answer.why == Why::kReEntry);
  CHECK(answer.deadline >= ms(250));
  CHECK(answer.deadline <= ms(500));
}

TEST_CASE("a grant in vain is not given again for a while") {
  Returning fed;
  fed.feed_many(32, 1, 400);
  REQUIRE(fed.miss_then_ask(250).why == Why::kReEntry);
  fed.end(false);
  CHECK(fed.miss_then_ask(250).why != Why::kReEntry);
  fed.end(false);
  fed.feed_many(Deadlines::kGrantAfter, 1, 400);
  CHECK(fed.miss_then_ask(250).deadline >= ms(250));
  fed.end(true);
  CHECK(fed.miss_then_ask(250).deadline >= ms(250));  // after a wait that has paid
}

TEST_CASE("a member that computes longer in each operation is granted nothing") {
  Fed fed;
  fed.feed_many(100, 300, 400);
  for (int i = 0; i < 20; ++i) CHECK(fed.feed(300, 400).why != Why::kReEntry);
}

}  // namespace
}  // namespace aikido::straggler

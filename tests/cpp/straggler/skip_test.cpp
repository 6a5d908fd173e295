// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
// Tables of arrivals, with the expected decision, reason and deadline. Members 0, 1 and
// 2 arrive 0, 1 and 2 ms after the start, and are the quorum of four. Member 3 is
// tested.
#include "straggler/skip.h"

#include <functional>
#include <string>

#include "harness/catch.h"
#include "straggler/play.h"

namespace aikido::straggler {
namespace {

using testing::Delays;
using testing::kBytes;
using testing::log_of;
using testing::ms;
using testing::num_skips;
using testing::play;
using testing::play_all;
using testing::Played;
using testing::skip_options;

constexpr uint64_t kNoLogLimit = UINT64_MAX;

// Delays with this lag of member 3. A healthy lag is 1 ms.
Delays with_lag(double lag_ms) {
  return {ms(0), ms(1), ms(2), ms(2 + lag_ms)};
}

struct Row {
  std::string name;
  double compute_ms;
  std::function<double(int)> lag_ms;  // of member 3, by operation
  int64_t skips_from, skips_to;  // number of skips in 200 operations after the warm-up
  Reason late_reason;            // reason of the last close without member 3
};

TEST_CASE("each kind of lateness is waited for as long as that pays") {
  const Row rows[] = {
      {"steady", 400, [](int) { return 1.0; }, 0, 0, Reason::kComplete},
      {"hiccups below the floor", 400, [](int i) { return i % 9 ? 0.5 : 13; }, 0, 0,
       Reason::kComplete},
      {"a long hiccup now and then", 400, [](int i) { return i % 90 == 89 ? 300 : 1; },
       2, 3, Reason::kDeadline},
      {"always late, but for some probes", 400, [](int) { return 300.0; }, 196, 199,
       Reason::kExpectedLate},
      {"late in a fifth", 400, [](int i) { return i % 5 == 4 ? 300 : 1; }, 0, 0,
       Reason::kDeadline},
      {"late in a third of tiny operations", 0.3,
       [](int i) { return i % 3 == 2 ? 150 : 0.2; }, 66, 135, Reason::kDeadline},
      {"late by less than a contribution is worth", 400, [](int) { return 45.0; }, 0, 0,
       Reason::kComplete},
      {"two-point, both too late", 400, [](int i) { return i % 2 ? 300 : 150; }, 195,
       200, Reason::kExpectedLate},
      {"two-point, one late by a whole operation", 400,
       [](int i) { return i % 2 ? 400 : 15; }, 195, 200, Reason::kExpectedLate},
      {"bursts of ten", 400, [](int i) { return i % 100 >= 90 ? 300 : 1; }, 2, 22,
       Reason::kDeadline},
  };
  for (const Row& row : rows) {
    INFO(row.name);
    PolicyOptions options = skip_options();
    options.max_consecutive_skips = 1000;
    GroupPolicy group(options, log_of(4, kNoLogLimit));
    const auto all = play_all(group, 208, ms(row.compute_ms),
                              [&](int i) { return with_lag(row.lag_ms(i)); });
    CHECK(num_skips(all, 3, 8) >= row.skips_from);
    CHECK(num_skips(all, 3, 8) <= row.skips_to);
    CHECK(num_skips(all, 0) + num_skips(all, 1) + num_skips(all, 2) == 0);
    Reason late_reason = Reason::kComplete;
    for (const Played& p : all) {
      if (p.skipped(3)) late_reason = p.decision.reason;
      CHECK(p.looks_were_exact);
    }
    CHECK(late_reason == row.late_reason);
  }
}

TEST_CASE(
    "lateness that goes from rank to rank is waited for if each skip leads to the "
    "next") {
  GroupPolicy group(skip_options(), log_of(4, kNoLogLimit));
  const auto all = play_all(group, 408, ms(400), [](int i) {
    Delays d = {ms(0), ms(1), ms(2), ms(3)};
    d[static_cast<size_t>(i % 4)] += ms(300);
    return d;
  });
  for (int32_t r = 0; r < 4; ++r) CHECK(num_skips(all, r, 208) == 0);
}

TEST_CASE("if all members are slow together none is skipped") {
  GroupPolicy group(skip_options(), log_of(4, kNoLogLimit));
  const auto all = play_all(group, 100, ms(100), [](int i) {
    Delays d = with_lag(1);
    for (Duration& delay : d) delay += i >= 50 ? ms(5000) : ms(0);
    return d;
  });
  for (const Played& p : all) CHECK(p.decision.reason == Reason::kComplete);
}

TEST_CASE("a drift is followed while waiting pays, given up, and taken back") {
  PolicyOptions options = skip_options();
  options.max_consecutive_skips = 1000;
  GroupPolicy group(options, log_of(4, kNoLogLimit));
  const auto lag = [](int i) {  // up by 1 ms per operation to 300 ms, then down
    return i < 300 ? i : i < 600 ? 600.0 - i : 1.0;
  };
  const auto all =
      play_all(group, 700, ms(400), [&](int i) { return with_lag(lag(i)); });
  CHECK(num_skips(all, 3, 0, 54) == 0);
  CHECK(num_skips(all, 3, 250, 350) >= 98);  // all operations except probes
  CHECK(all[300].decision.reason == Reason::kExpectedLate);
  CHECK(num_skips(all, 3, 566, 700) == 0);
}

TEST_CASE("while warming up a member has up to the ceiling") {
  PolicyOptions options = skip_options();
  options.warmup_operations = 3;
  options.ceiling = ms(500);
  GroupPolicy group(options, log_of(4, kNoLogLimit));
  TimePoint start{};
  for (uint64_t seq = 1; seq <= 3; ++seq) {
    auto policy = group.start(Seq(seq), kBytes);
    start += ms(10'000);
    for (int32_t r = 0; r < 3; ++r) policy->on_arrival(Rank(r), start);
    const Decision waits = policy->decide(start + ms(499.9));
    CHECK(waits.verdict == Verdict::kWait);
    CHECK(waits.reason == Reason::kWarmingUp);
    CHECK(waits.deadline == ms(500));
    CHECK(waits.rank == Rank(3));
    CHECK(policy->next_look() == start + ms(500));
    const Decision closes = policy->decide(start + ms(500));
    CHECK(closes.closes());
    CHECK(closes.reason == Reason::kDeadline);
    group.history().on_committed(Seq(seq), policy->arrived(), kBytes);
    group.history().on_late_arrival(Seq(seq), Rank(3), start + ms(600));
  }
  CHECK(play(group, 4, start + ms(10'000), with_lag(1)).decision.reason ==
        Reason::kComplete);
  CHECK(play(group, 5, start + ms(20'000), with_lag(30)).waited <= ms(30));
  // Nothing is known yet about another size class.
  auto policy = group.start(Seq(6), kBytes * 16);
  for (int32_t r = 0; r < 3; ++r) policy->on_arrival(Rank(r), start + ms(30'000));
  CHECK(policy->decide(start + ms(30'000)).reason == Reason::kWarmingUp);
}

TEST_CASE("at the limit of skips in a row the group waits without a deadline") {
  PolicyOptions options = skip_options();
  options.max_consecutive_skips = 3;
  GroupPolicy group(options, log_of(4, kNoLogLimit));
  const auto all = play_all(group, 100, ms(400), [](int) { return with_lag(300); });
  // Three of four operations skip the member, except probes, and never more than three
  // in a row.
  CHECK(num_skips(all, 3, 8) >= 67);
  for (size_t i = 11; i < all.size(); ++i) {
    size_t num_in = 0;
    for (size_t back = 0; back < 4; ++back) num_in += all[i - back].skipped(3) ? 0 : 1;
    CHECK(num_in >= 1);
  }

  for (uint64_t seq = 101; seq <= 103; ++seq)
    group.history().on_committed(Seq(seq), RankSet(4), kBytes);
  auto policy = group.start(Seq(104), kBytes);
  const TimePoint now = all.back().closed_at;
  for (int32_t r = 0; r < 3; ++r) policy->on_arrival(Rank(r), now);
  const Decision waits = policy->decide(now + std::chrono::hours(1));
  CHECK(waits.verdict == Verdict::kWait);
  CHECK(waits.reason == Reason::kLimiter);
  CHECK(waits.rank == Rank(3));
  CHECK(waits.deadline == Duration::zero());
  CHECK_FALSE(policy->next_look());
}

// Members 0 to 2 complete operation `seq` at `now`. There is no news of member 3.
std::unique_ptr<Policy> without_3(GroupPolicy& group, uint64_t seq, TimePoint now) {
  auto policy = group.start(Seq(seq), kBytes);
  for (int32_t r = 0; r < 3; ++r) policy->on_arrival(Rank(r), now);
  return policy;
}

TEST_CASE("a member that has not called an operation it was skipped in gets no time") {
  GroupPolicy group(skip_options(), log_of(4, kNoLogLimit));
  TimePoint now =
      play_all(group, 20, ms(100), [](int) { return with_lag(1); }).back().closed_at;
  History& history = group.history();

  now += ms(100);
  auto policy = without_3(group, 21, now);
  CHECK(policy->decide(now).reason == Reason::kWithinDeadline);
  CHECK(policy->decide(now + ms(30)).reason == Reason::kDeadline);
  history.on_committed(Seq(21), policy->arrived(), kBytes);
  // A skip in another shard of the same operation is no news about the member's call.
  CHECK(without_3(group, 21, now)->decide(now).reason == Reason::kWithinDeadline);

  for (uint64_t seq = 22; seq <= 25; ++seq) {
    policy = without_3(group, seq, now += ms(100));
    const Decision closes = policy->decide(now);
    CHECK(closes.closes());
    CHECK(closes.reason == Reason::kKnownBehind);
    CHECK(closes.deadline == Duration::zero());
    CHECK(closes.rank == Rank(3));
    CHECK(policy->next_look() == now);
    history.on_committed(Seq(seq), policy->arrived(), kBytes);
  }
  // The member calls again, and its contribution may come soon, although it has not
  // called all missed operations.
  history.on_called(Rank(3), Seq(24), now);
  policy = without_3(group, 26, now);
  CHECK(policy->decide(now).reason == Reason::kWithinDeadline);
  CHECK(policy->decide(now += ms(30)).reason == Reason::kDeadline);
  history.on_committed(Seq(26), policy->arrived(), kBytes);
  CHECK(without_3(group, 27, now)->decide(now).reason == Reason::kKnownBehind);
}

TEST_CASE("a member that is back after a long stall is waited for at once") {
  GroupPolicy group(skip_options(), log_of(4, kNoLogLimit));
  TimePoint now =
      play_all(group, 70, ms(100), [](int) { return with_lag(10); }).back().closed_at;
  for (uint64_t seq = 71; seq <= 150; ++seq) {
    auto policy = without_3(group, seq, now += ms(100));
    CHECK(policy->decide(now + ms(30)).closes());
    group.history().on_committed(Seq(seq), policy->arrived(), kBytes);
  }
  for (uint64_t seq = 71; seq <= 150; ++seq)
    group.history().on_late_arrival(Seq(seq), Rank(3), now + ms(50));
  for (uint64_t seq = 151; seq <= 200; ++seq)
    CHECK_FALSE(play(group, seq, now += ms(100), with_lag(10)).skipped(3));
}

TEST_CASE(
    "a member that is known to be late takes no time from another missing member") {
  PolicyOptions options = skip_options();
  options.min_contributors = 2;
  GroupPolicy group(options, log_of(4, kNoLogLimit));
  const auto all = play_all(group, 30, ms(400), [](int) { return with_lag(300); });
  TimePoint now = all.back().closed_at + ms(400);
  auto policy = group.start(Seq(31), kBytes);
  policy->on_arrival(Rank(0), now);
  policy->on_arrival(Rank(1), now);
  const Decision waits = policy->decide(now);
  CHECK(waits.reason ==
        Reason::kWithinDeadline);  // for member 2; member 3 is expected late
  CHECK(waits.rank == Rank(2));
  CHECK(to_ms(waits.deadline) == Approx(402.0 / 4).epsilon(0.05));
  policy->on_arrival(Rank(2), now + ms(1));
  CHECK(policy->decide(now + ms(1)).reason == Reason::kExpectedLate);
}

TEST_CASE("the member that might have come is the reason if two members have no time") {
  PolicyOptions options = skip_options();
  options.min_contributors = 2;
  GroupPolicy group(options, log_of(4, kNoLogLimit));
  TimePoint now = play_all(group, 30, ms(400),
                           [](int) {
                             return Delays{ms(0), ms(1), ms(300), ms(2)};
                           })
                      .back()
                      .closed_at;
  RankSet all_but_3(4);
  for (int32_t r = 0; r < 3; ++r) all_but_3.insert(Rank(r));
  group.history().on_committed(Seq(31), all_but_3, kBytes);
  auto policy = group.start(Seq(32), kBytes);
  policy->on_arrival(Rank(0), now);
  policy->on_arrival(Rank(1), now);
  CHECK(policy->decide(now).reason == Reason::kExpectedLate);
  CHECK(policy->decide(now).rank == Rank(2));

  // The same with the ranks swapped.
  GroupPolicy other(options, log_of(4, kNoLogLimit));
  now =
      play_all(other, 30, ms(400), [](int) { return with_lag(300); }).back().closed_at;
  RankSet all_but_2(4);
  for (int32_t r : {0, 1, 3}) all_but_2.insert(Rank(r));
  other.history().on_committed(Seq(31), all_but_2, kBytes);
  policy = other.start(Seq(32), kBytes);
  policy->on_arrival(Rank(0), now);
  policy->on_arrival(Rank(1), now);
  CHECK(policy->decide(now).reason == Reason::kExpectedLate);
  CHECK(policy->decide(now).rank == Rank(3));
}

TEST_CASE("a member whose log is full is waited for") {
  GroupPolicy group(skip_options(), log_of(4, 2 * kBytes + kBytes / 2));
  TimePoint now =
      play_all(group, 20, ms(100), [](int) { return with_lag(1); }).back().closed_at;
  for (uint64_t seq = 21; seq <= 22; ++seq) {
    auto policy = without_3(group, seq, now);
    CHECK(policy->decide(now += ms(30)).closes());
    group.history().on_committed(Seq(seq), policy->arrived(), kBytes);
  }
  auto policy = without_3(group, 23, now);
  const Decision waits = policy->decide(now + std::chrono::hours(1));
  CHECK(waits.verdict == Verdict::kWait);
  CHECK(waits.reason == Reason::kLogFull);
  CHECK(waits.rank == Rank(3));
  CHECK_FALSE(policy->next_look());
  group.history().on_called(Rank(3), Seq(21), now);  // frees one result of the log
  CHECK(policy->decide(now).reason == Reason::kWithinDeadline);
}

TEST_CASE("a member that is excluded for a full log is not waited for") {
  PolicyOptions options = skip_options();
  options.log_full = LogFull::kLeave;
  GroupPolicy group(options, log_of(4, 2 * kBytes + kBytes / 2));
  TimePoint now =
      play_all(group, 20, ms(100), [](int) { return with_lag(1); }).back().closed_at;
  for (uint64_t seq = 21; seq <= 22; ++seq) {
    auto policy = without_3(group, seq, now);
    CHECK(policy->decide(now += ms(30)).closes());
    group.history().on_committed(Seq(seq), policy->arrived(), kBytes);
  }
  auto policy = without_3(group, 23, now);
  const Decision closes = policy->decide(now);
  CHECK(closes.closes());
  CHECK(closes.reason == Reason::kLogFull);
  CHECK(closes.deadline == Duration::zero());
  CHECK(explain(closes).find("left out") != std::string::npos);
  // If the exclusion takes too long, a full log still stops the skipping.
  group.history().on_committed(Seq(23), policy->arrived(), kBytes);
  CHECK_FALSE(without_3(group, 24, now)->decide(now + std::chrono::hours(1)).closes());
  // The same if no member can be spared.
  GroupPolicy two(options, log_of(4, kBytes / 2));
  RankSet left(4);
  left.insert(Rank(0));
  left.insert(Rank(3));
  two.history().set_members(left);
  auto waits = without_3(two, 1, now);
  CHECK_FALSE(waits->decide(now + std::chrono::hours(1)).closes());
}

TEST_CASE("the quorum has the requested size, in groups of two to eight") {
  for (int32_t n = 2; n <= 8; ++n) {
    for (int32_t k = 0; k <= n; ++k) {
      PolicyOptions options = skip_options();
      options.min_contributors = k;
      options.warmup_operations = 1;
      GroupPolicy group(options, log_of(n, kNoLogLimit));
      const int32_t quorum = k == 0 ? n / 2 + 1 : k;
      TimePoint now{};
      for (uint64_t seq = 1; seq <= 2; ++seq) {  // the first operation warms up
        auto policy = group.start(Seq(seq), kBytes);
        const int32_t fewest = seq == 1 ? quorum : fewest_of(options, n);
        for (int32_t r = 0; r < n; ++r) {
          const Decision d = policy->decide(now + std::chrono::hours(1));
          CHECK(d.num_arrived == r);
          CHECK(d.world_size == n);
          CHECK(d.closes() == (r >= fewest));
          if (r < fewest) CHECK(d.reason == Reason::kNoQuorum);
          CHECK(policy->quorum_time().has_value() == (r >= quorum));
          CHECK(policy->next_look().has_value() == (r >= fewest));
          policy->on_arrival(Rank(r), now += ms(1));
          policy->on_arrival(Rank(r), now);
        }
        CHECK(policy->decide(now).reason == Reason::kComplete);
        CHECK_FALSE(policy->next_look());
        policy->on_close({}, kBytes, now);
        group.history().on_committed(Seq(seq), policy->arrived(), kBytes);
        for (int32_t r = 0; r < n; ++r)
          CHECK(group.history().recent().delay(Seq(seq), Rank(r)) ==
                ms(std::max(0, r + 1 - quorum)));
      }
    }
  }
}

TEST_CASE(
    "a member that is not expected is not waited for, but a quorum is still needed") {
  GroupPolicy group(skip_options(), log_of(4, kNoLogLimit));
  const auto policy = group.start(Seq(1), kBytes);
  RankSet members = RankSet::full(4);
  members.erase(Rank(3));
  policy->expect(members);
  const TimePoint t{ms(1)};
  for (const int32_t r : {0, 1}) policy->on_arrival(Rank(r), t);
  CHECK_FALSE(policy->decide(t).closes());
  policy->on_arrival(Rank(2), t);
  CHECK(policy->decide(t).closes());
  CHECK(policy->decide(t).reason == Reason::kComplete);
  CHECK_FALSE(policy->next_look());
  // Below the quorum the policy waits, even if members are expected late.
  PolicyOptions options = skip_options();
  options.min_contributors = 3;
  GroupPolicy strict(options, log_of(4, kNoLogLimit));
  const auto few = strict.start(Seq(1), kBytes);
  members.erase(Rank(2));
  few->expect(members);
  for (const int32_t r : {0, 1}) few->on_arrival(Rank(r), t);
  CHECK_FALSE(few->decide(t).closes());
}

TEST_CASE("a member that has used up its time in one shard gets none in another") {
  GroupPolicy group(skip_options(), log_of(4, kNoLogLimit));
  play_all(group, 20, ms(400), [](int) { return with_lag(1); });
  const auto at = [](double after_ms) {
    return TimePoint(std::chrono::hours(1)) + ms(after_ms);
  };
  RankSet had_time(4);
  had_time.insert(Rank(3));
  for (const bool is_here : {false, true}) {
    const auto policy = group.start_again(Seq(21), kBytes, had_time);
    if (is_here) policy->on_arrival(Rank(3), at(0));
    for (int32_t r = 0; r < 2; ++r) policy->on_arrival(Rank(r), at(1));
    if (!is_here) {
      CHECK_FALSE(policy->decide(at(1)).closes());
      policy->on_arrival(Rank(2), at(2));
      const Decision decision = policy->decide(at(2));
      CHECK(decision.closes());
      CHECK(decision.reason == Reason::kDeadline);
      CHECK(decision.rank == Rank(3));
      continue;
    }
    // The deadline of the other members has not passed.
    CHECK_FALSE(policy->decide(at(2)).closes());
    CHECK(policy->arrived().contains(Rank(3)));
  }
}

TEST_CASE("the rate of a contribution shortens or extends its time") {
  struct Look {
    const char* name;
    std::optional<double> here[2];  // received bytes of the contribution at each look
    uint64_t bytes = 1'000'000;
    double second_look = 0.5;  // time of the second look, as a share of the deadline
    bool is_too_slow = false;
    bool is_coming = false;
  };
  const Look rows[] = {
      {.name = "slow", .here = {0.1, 0.11}, .is_too_slow = true},
      {.name = "held up", .here = {0.1, 0.1}, .is_too_slow = true},
      {.name = "just too slow", .here = {0, 0.19}, .is_too_slow = true},
      {.name = "just fast enough", .here = {0, 0.21}, .is_coming = true},
      {.name = "nearly here", .here = {0.9, 0.93}, .is_coming = true},
      {.name = "nothing at all", .here = {0, 0}},
      {.name = "between two turns", .here = {0.9, 0.9}},
      {.name = "begun again", .here = {0.5, 0.1}, .is_too_slow = true},
      {.name = "too small to tell", .here = {0.1, 0.1}, .bytes = 32'000},
      {.name = "looked at too soon", .here = {0.1, 0.1}, .second_look = 0.3},
      {.name = "looked at too late", .here = {0.1, 0.1}, .second_look = 0.65},
      {.name = "behind something else", .here = {0.1, std::nullopt}},
      {.name = "that was behind something else", .here = {std::nullopt, 0.1}},
  };
  for (const Look& row : rows) {
    INFO(row.name);
    GroupPolicy group(skip_options(), log_of(4, kNoLogLimit));
    play_all(group, 20, ms(400), [](int) { return with_lag(1); });
    const TimePoint t_q = TimePoint(std::chrono::hours(1)) + ms(2);
    const auto policy = group.start(Seq(21), kBytes);
    for (int32_t r = 0; r < 3; ++r) policy->on_arrival(Rank(r), t_q - ms(2 - r));
    policy->on_called(Rank(3), t_q - ms(2));
    const Duration deadline = *policy->next_look() - t_q;
    REQUIRE(deadline > ms(40));
    const auto at = [&](double part) {
      return t_q + Duration(static_cast<int64_t>(
                       part * static_cast<double>(deadline.count())));
    };
    const auto look = [&](std::optional<double> share, double part) {
      std::optional<uint64_t> here;
      if (share) here = static_cast<uint64_t>(*share * static_cast<double>(row.bytes));
      policy->on_progress({row.bytes, row.bytes, row.bytes, here}, row.bytes, at(part));
    };
    CHECK(policy->progress_due() == t_q + deadline / 4);
    look(row.here[0], 0.25);
    CHECK(policy->progress_due() == t_q + deadline / 2);
    CHECK_FALSE(policy->decide(at(0.49)).closes());
    look(row.here[1], row.second_look);
    const double then = std::max(row.second_look, 0.51);
    const Decision decision = policy->decide(at(then));
    CHECK(decision.closes() == row.is_too_slow);
    CHECK(decision.rank == Rank(3));
    const double part = row.is_too_slow ? 0.5 : row.is_coming ? 1.5 : 1;
    CHECK(policy->progress_due() == at(part));
    CHECK(decision.deadline == at(part) - t_q);
    CHECK(policy->decide(at(0.99)).closes() == row.is_too_slow);
    CHECK(policy->decide(at(1)).closes() != row.is_coming);
    CHECK(policy->decide(at(1.5)).reason == Reason::kDeadline);
    // An early call of the next operation does not make the member count as in time.
    const auto longest = [&] {
      return group.history().recent().longest_of_few(Rank(3));
    };
    CHECK((longest() > deadline) == row.is_too_slow);
    if (!row.is_too_slow) {
      policy->on_arrival(Rank(3), at(then));
      CHECK(policy->decide(at(then)).reason == Reason::kComplete);
      continue;
    }
    group.history().on_committed(Seq(21), policy->arrived(), kBytes);
    group.history().on_called(Rank(3), Seq(22), at(0.6));
    CHECK(longest() > deadline);
    CHECK(group.history().late_run(Rank(3)) == 1);
  }
}

TEST_CASE("a contribution that is nearly here at the end of the wait is waited for") {
  struct End {
    const char* name;
    double called;  // before the quorum, in parts of the grace
    double here;    // share of the contribution at the end of the wait
    double waits;   // longer, in parts of the grace
  };
  // The wait is as long as the grace, and slack is 1.5.
  const End rows[] = {
      {"nearly here", 1, 0.9, 1.5 * 2 / 9},
      {"in time, and later at a lower rate", 1, 0.81, 0.5},
      {"too late", 1, 0.79, 0},
      {"nothing is here", 1, 0, 0},
  };
  for (const End& row : rows) {
    INFO(row.name);
    GroupPolicy group(skip_options(), log_of(4, kNoLogLimit));
    play_all(group, 20, ms(400), [](int) { return with_lag(1); });
    const TimePoint t_q = TimePoint(std::chrono::hours(1)) + ms(2);
    const auto policy = group.start(Seq(21), kBytes);
    const Duration grace = group.grace(kBytes);
    for (int32_t r = 0; r < 4; ++r)
      policy->on_called(Rank(r), t_q - scaled(grace, row.called));
    for (int32_t r = 0; r < 3; ++r) policy->on_arrival(Rank(r), t_q);
    const TimePoint end = *policy->next_look();
    REQUIRE(end == t_q + grace);
    const auto at = [&](double part) { return end + scaled(grace, part); };
    const uint64_t total = 1'000'000;
    const auto here = static_cast<uint64_t>(row.here * static_cast<double>(total));
    policy->on_progress({total, total, total, here}, total, end);
    CHECK(policy->decide(at(row.waits + 0.01)).closes());
    if (row.waits == 0) continue;
    CHECK_FALSE(policy->decide(at(row.waits - 0.01)).closes());
    CHECK(policy->next_look() >= at(row.waits - 0.01));
    // There is no second extension.
    CHECK_FALSE(policy->progress_due());
    policy->on_arrival(Rank(3), at(0.1));
    CHECK(policy->decide(at(0.1)).reason == Reason::kComplete);
  }
}

}  // namespace

}  // namespace aikido::straggler

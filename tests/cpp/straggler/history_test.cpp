// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "straggler/history.h"

#include <initializer_list>
#include <optional>

#include "harness/catch.h"
#include "straggler/play.h"

namespace aikido::straggler {
namespace {

using testing::Dice;
using testing::log_of;
using testing::ms;

constexpr uint64_t kBytes = 1 << 20;
constexpr Rank kLate{3};

RankSet mask_of(std::initializer_list<int32_t> ranks) {
  RankSet set(4);
  for (int32_t r : ranks) set.insert(Rank(r));
  return set;
}

// Lag of a member that began the operation with the others. Empty: unknown.
std::optional<Duration> lag(const History& history, uint64_t seq, Rank rank) {
  return history.recent().delay(Seq(seq), rank);
}

TEST_CASE("a window keeps the last 64 values in order of size") {
  Dice dice(3);
  DurationWindow window;
  CHECK(window.median() == Duration::zero());
  std::vector<Duration> all;
  for (int i = 0; i < 1000; ++i) {
    all.push_back(Duration(static_cast<int64_t>(dice.below(i < 500 ? 5 : 10'000))));
    window.push(all.back());
    std::vector<Duration> expected(
        all.end() - static_cast<ptrdiff_t>(std::min<size_t>(all.size(), 64)),
        all.end());
    std::sort(expected.begin(), expected.end());
    const auto sorted = window.sorted();
    CHECK(std::vector<Duration>(sorted.begin(), sorted.end()) == expected);
    CHECK(window.median() == expected[(expected.size() - 1) / 2]);
  }
}

TEST_CASE("size classes are powers of four") {
  CHECK(straggler::size_class(0) == 0);
  CHECK(straggler::size_class(3) == 0);
  CHECK(straggler::size_class(4) == 1);
  CHECK(straggler::size_class(15) == 1);
  CHECK(straggler::size_class(16) == 2);
  CHECK(straggler::size_class((1 << 20) - 1) == 9);
  CHECK(straggler::size_class(1 << 20) == 10);
  CHECK(straggler::size_class(UINT64_MAX) == 31);
  History history(log_of(4, 0));
  history.on_quorum_after_half(UINT64_MAX, ms(1));
  CHECK(history.median_after_half(UINT64_MAX) == ms(1));
}

TEST_CASE("a lag is counted from the quorum, once, however late it is known") {
  History history(log_of(4, UINT64_MAX));
  const TimePoint t_q(ms(1000));
  history.on_arrival(Seq(1), Rank(0),
                     t_q - ms(30));  // before the quorum: counts as the quorum's time
  CHECK_FALSE(lag(history, 1, Rank(0)));
  history.on_quorum(Seq(1), kBytes, t_q, mask_of({0, 1}));
  history.on_arrival(Seq(1), Rank(2), t_q + ms(7));
  history.on_arrival(Seq(1), Rank(2), t_q + ms(9));
  history.on_committed(Seq(1), mask_of({0, 1, 2}), kBytes);
  history.on_late_arrival(Seq(1), kLate, t_q + ms(300));
  history.on_called(kLate, Seq(1), t_q + ms(400));
  CHECK(lag(history, 1, Rank(0)) == ms(0));
  CHECK(lag(history, 1, Rank(2)) == ms(7));
  CHECK(lag(history, 1, kLate) == ms(300));
  // A second shard of the same operation adds no information.
  history.on_quorum(Seq(1), kBytes, t_q + ms(5), mask_of({0, 1, 2, 3}));
  CHECK(lag(history, 1, kLate) == ms(300));
  CHECK(history.median_period(kBytes) == Duration::zero());
}

TEST_CASE("a late call gives the lag of operations that were closed without it") {
  History history(log_of(4, UINT64_MAX));
  history.on_called(kLate, Seq(2),
                    TimePoint{});  // it has called, but its bytes are slow
  for (uint64_t seq = 1; seq <= 3; ++seq) {
    history.on_quorum(Seq(seq), kBytes, TimePoint(ms(100.0 * double(seq))),
                      mask_of({0, 1, 2}));
    if (seq < 3) history.on_committed(Seq(seq), mask_of({0, 1, 2}), kBytes);
  }
  history.on_called(kLate, Seq(1), TimePoint(ms(500)));
  CHECK(lag(history, 1, kLate) == ms(400));
  CHECK_FALSE(lag(history, 2, kLate));
  // Operation 3 is open. The lag follows from its contribution, which is in flight.
  history.on_called(kLate, Seq(3), TimePoint(ms(1100)));
  CHECK(lag(history, 2, kLate) == ms(900));
  CHECK_FALSE(lag(history, 3, kLate));
  history.on_late_arrival(Seq(2), kLate, TimePoint(ms(1150)));  // known by then
  history.on_arrival(Seq(3), kLate, TimePoint(ms(1200)));
  CHECK(lag(history, 2, kLate) == ms(900));
  CHECK(lag(history, 3, kLate));
}

TEST_CASE("one shard with a contribution shows that its link works") {
  History history(log_of(4, UINT64_MAX));
  const auto mask = mask_of({0, 1, 2});
  for (const uint64_t seq : {1, 2, 3})
    history.on_quorum(Seq(seq), kBytes, TimePoint(ms(100.0 * seq)), mask);
  history.on_committed(Seq(1), mask, 0);
  CHECK(history.last_included(kLate, kBytes) == Seq(0));
  CHECK(history.on_silence(Seq(1), kBytes, kLate, ms(50)) == ms(50));
  CHECK(history.on_silence(Seq(2), kBytes, kLate, ms(50)) == ms(100));
  CHECK(history.on_silence(Seq(2), kBytes / 16, kLate, ms(50)) == ms(50));
  history.on_committed(Seq(2), mask, 0);
  history.on_committed(Seq(2), mask_of({0, 1, 2, 3}), 0);
  CHECK(history.last_included(kLate, kBytes) == Seq(2));
  CHECK(history.last_included(kLate, kBytes / 16) == Seq(0));
  CHECK(history.on_silence(Seq(3), kBytes, kLate, ms(50)) == ms(50));
}

TEST_CASE("one long stall is one lag, however many operations pass meanwhile") {
  History history(log_of(4, UINT64_MAX));
  for (uint64_t seq = 1; seq <= 50; ++seq) {
    history.on_quorum(Seq(seq), kBytes, TimePoint(ms(100.0 * double(seq))),
                      mask_of({0, 1, 2}));
    history.on_committed(Seq(seq), mask_of({0, 1, 2}), kBytes);
  }
  for (uint64_t seq = 1; seq <= 50; ++seq)
    history.on_late_arrival(Seq(seq), kLate, TimePoint(ms(5100)));
  CHECK(lag(history, 1, kLate) == ms(5000));
  for (uint64_t seq = 2; seq <= 50; ++seq) CHECK_FALSE(lag(history, seq, kLate));
  history.on_quorum(Seq(51), kBytes, TimePoint(ms(5200)), mask_of({0, 1, 2}));
  history.on_arrival(Seq(51), kLate, TimePoint(ms(5203)));
  CHECK(lag(history, 51, kLate) == ms(3));
}

TEST_CASE("a forgiven member was not recently late, whenever its lags become known") {
  History history(log_of(4, UINT64_MAX));
  const auto play = [&](uint64_t seq, double lag) {
    const TimePoint t_q(ms(1000.0 * double(seq)));
    history.on_quorum(Seq(seq), kBytes, t_q, mask_of({0, 1, 2}));
    if (lag >= 0) history.on_arrival(Seq(seq), kLate, t_q + ms(lag));
  };
  for (uint64_t seq = 1; seq <= 9; ++seq) play(seq, 80);
  play(10, -1);
  history.forgive(kLate, Seq(10));
  CHECK(history.recent().longest_of_few(kLate) == ms(0));
  history.on_arrival(Seq(10), kLate, TimePoint(ms(10'090)));
  CHECK(history.recent().longest_of_few(kLate) == ms(0));
  play(11, 5);
  CHECK(history.recent().longest_of_few(kLate) == ms(5));
  CHECK(lag(history, 10, kLate));
}

TEST_CASE("skips of forgiven operations count for the limit only") {
  History history(log_of(4, UINT64_MAX));
  const auto commit = [&](uint64_t seq, bool with_it) {
    history.on_committed(Seq(seq), with_it ? mask_of({0, 1, 2, 3}) : mask_of({0, 1, 2}),
                         kBytes);
  };
  for (uint64_t seq = 1; seq <= 6; ++seq) commit(seq, false);
  CHECK(history.late_run(kLate) == 6);
  history.forgive(kLate, Seq(8));
  CHECK(history.late_run(kLate) == 0);
  commit(7, false);
  commit(9, false);
  commit(8, false);  // known after a later operation
  CHECK(history.late_run(kLate) == 1);
  CHECK(history.consecutive_skips(kLate) == 9);
  commit(10, true);
  CHECK(history.late_run(kLate) == 0);
  commit(10, false);  // another shard of the operation
  CHECK(history.late_run(kLate) == 2);
  commit(11, true);
  CHECK(history.consecutive_skips(kLate) == 0);
}

TEST_CASE("a run counts only operations with a lateness above the grace") {
  // With a period of 800 ms among four members, the grace is 100 ms, or the floor if
  // that is more.
  struct Row {
    double floor, lag;
    bool is_first;  // the contribution arrives before the result counts as received
    uint32_t late_run;
  };
  const Row row =
      GENERATE(Row{20, 199, false, 0}, Row{20, 199, true, 0}, Row{20, 201, false, 3},
               Row{20, 201, true, 3}, Row{250, 201, false, 0}, Row{250, 251, true, 3});
  CAPTURE(row.floor, row.lag, row.is_first);
  History history(log_of(4, UINT64_MAX), ms(row.floor));
  const auto play = [&](uint64_t seq, double lag, bool is_first) {
    const TimePoint t_q(ms(800.0 * double(seq)));
    history.on_quorum(Seq(seq), kBytes, t_q, mask_of({0, 1, 2}));
    if (is_first) history.on_arrival(Seq(seq), kLate, t_q + ms(lag));
    history.on_committed(Seq(seq), mask_of({0, 1, 2}), kBytes);
    if (!is_first) history.on_late_arrival(Seq(seq), kLate, t_q + ms(lag));
  };
  for (uint64_t seq = 1; seq <= 3; ++seq) play(seq, 0, true);
  CHECK(history.late_run(kLate) == 0);
  for (uint64_t seq = 4; seq <= 6; ++seq) play(seq, row.lag, row.is_first);
  CHECK(history.late_run(kLate) == row.late_run);
  CHECK(history.consecutive_skips(kLate) == 6);
  // News about an older operation ends the run at that operation. Later operations
  // still count.
  for (uint64_t seq = 7; seq <= 9; ++seq) {
    history.on_quorum(Seq(seq), kBytes, TimePoint(ms(800.0 * double(seq))),
                      mask_of({0, 1, 2}));
    history.on_committed(Seq(seq), mask_of({0, 1, 2}), kBytes);
  }
  CHECK(history.late_run(kLate) == row.late_run + 3);
  history.on_arrival(Seq(7), kLate, TimePoint(ms(5'601)));
  CHECK(history.late_run(kLate) == 2);
}

TEST_CASE("the rest of a lateness is no lateness of its own") {
  // The late member calls 600 ms after the others, then twice 250 ms after them.
  for (const bool is_known_first : {false, true}) {
    CAPTURE(is_known_first);
    History history(log_of(4, UINT64_MAX), ms(20));
    const auto play = [&](uint64_t seq, double lag) {
      const TimePoint start(ms(800.0 * double(seq)));
      for (int32_t r = 0; r < 3; ++r) history.on_called(Rank(r), Seq(seq), start);
      history.on_quorum(Seq(seq), kBytes, start, mask_of({0, 1, 2}));
      const auto call = [&] { history.on_called(kLate, Seq(seq), start + ms(lag)); };
      if (is_known_first) call();
      history.on_committed(Seq(seq), mask_of({0, 1, 2}), kBytes);
      if (!is_known_first) call();
    };
    uint64_t seq = 0;
    for (uint32_t stalls = 1; stalls <= 3; ++stalls) {
      play(++seq, 600);
      CHECK(history.late_run(kLate) == stalls);
      play(++seq, 250);
      CHECK(history.late_run(kLate) == stalls);
    }
    CHECK(history.consecutive_skips(kLate) == 6);
    play(++seq, 250);  // as late as before
    CHECK(history.late_run(kLate) == 4);
  }
}

TEST_CASE("periods are kept per size class") {
  History history(log_of(4, UINT64_MAX));
  for (uint64_t seq = 1; seq <= 9; ++seq) {
    const bool is_small = seq % 3 == 0;  // 3, 6, 9
    const TimePoint t_q(ms(10.0 * double(seq)));
    history.on_quorum(Seq(seq), is_small ? 16 : kBytes, t_q, mask_of({0, 1, 2}));
  }
  CHECK(history.median_period(16) == ms(30));
  CHECK(history.median_period(kBytes) == ms(10));  // 10, 20, 10, 20, 10
  CHECK(history.median_period(1 << 30) == Duration::zero());
}

TEST_CASE("operations too old to be remembered leave no trace") {
  History history(log_of(4, UINT64_MAX));
  for (uint64_t seq = 1; seq <= History::kNumRecent + 10; ++seq) {
    history.on_quorum(Seq(seq), kBytes, TimePoint(ms(double(seq))), mask_of({0, 1}));
    history.on_committed(Seq(seq), mask_of({0, 1}), 0);
  }
  history.on_late_arrival(Seq(1), kLate, TimePoint(ms(1000)));
  CHECK_FALSE(lag(history, 1, kLate));
  // A contribution to an operation whose slot is reused does not change the newer
  // operation.
  const Seq newest(History::kNumRecent + 11);
  history.on_quorum(newest, kBytes, TimePoint(ms(2000)), mask_of({0, 1}));
  history.on_quorum(Seq(11), kBytes, TimePoint(ms(2010)), mask_of({0, 1}));
  history.on_arrival(newest, Rank(2), TimePoint(ms(2038)));
  CHECK(lag(history, newest.value, Rank(2)) == ms(38));
}

TEST_CASE(
    "an arrival before the quorum of another shard has no lag, and none below 0") {
  History history(log_of(4, UINT64_MAX));
  history.on_quorum(Seq(1), kBytes, TimePoint(ms(100)), mask_of({0, 1, 2}));
  history.on_arrival(Seq(1), kLate, TimePoint(ms(90)));
  CHECK(lag(history, 1, kLate) == ms(0));
}

TEST_CASE("skips in a row are counted by operation and end with an inclusion") {
  History history(log_of(4, UINT64_MAX));
  const auto commit = [&](uint64_t seq, bool is_in) {
    history.on_committed(Seq(seq), is_in ? mask_of({0, 1, 2, 3}) : mask_of({0, 1, 2}),
                         10);
    return history.consecutive_skips(kLate);
  };
  CHECK(commit(1, false) == 1);
  CHECK(commit(2, false) == 2);
  CHECK(commit(2, false) == 2);  // its second shard
  CHECK(commit(2, true) == 2);   // in one shard, but not in all
  CHECK(history.last_skipped(kLate) == Seq(2));
  CHECK(commit(3, true) == 0);
  CHECK(commit(3, false) == 3);  // skipped in the second shard after all
  CHECK(commit(4, true) == 0);
  CHECK(commit(6, false) == 1);
  CHECK(commit(5, false) == 2);  // known after a later operation: added
  CHECK(commit(6, false) == 2);
  CHECK(history.last_skipped(kLate) == Seq(6));
  CHECK(history.consecutive_skips(Rank(0)) == 0);
  CHECK(history.last_skipped(Rank(0)) == Seq(0));
}

TEST_CASE("a member is behind while it has not called its skipped operations") {
  History history(log_of(4, UINT64_MAX));
  history.on_committed(Seq(5), mask_of({0, 1, 2}), 10);
  CHECK(history.is_behind(kLate, Seq(6)));
  CHECK_FALSE(history.is_behind(
      kLate, Seq(5)));  // another shard of the operation is still open
  CHECK(history.is_behind(
      kLate, Seq(4)));  // later operations are decided, and it has not arrived
  CHECK_FALSE(history.is_behind(Rank(0), Seq(6)));
  history.on_called(kLate, Seq(4), TimePoint{});
  // It has called since, so its contribution is in flight.
  CHECK_FALSE(history.is_behind(kLate, Seq(4)));
  CHECK_FALSE(history.is_behind(kLate, Seq(6)));
  history.on_committed(Seq(6), mask_of({0, 1, 2}), 10);
  CHECK(history.is_behind(kLate, Seq(6)));
  history.on_arrival(Seq(6), kLate, TimePoint{});
  CHECK(history.called(kLate) == Seq(6));
  CHECK_FALSE(history.is_behind(kLate, Seq(7)));
  history.on_called(kLate, Seq(2), TimePoint{});  // an older call
  CHECK(history.called(kLate) == Seq(6));
}

TEST_CASE("results of uncalled operations are kept in one log for all policies") {
  const auto log = log_of(4, 100);
  History first(log), second(log);
  first.on_committed(Seq(1), mask_of({0, 1, 2}), 30);
  first.on_committed(Seq(1), mask_of({0, 1, 2}), 10);  // its second shard
  second.on_closed(Seq(2), 20);
  second.on_committed(Seq(2), mask_of({0, 1}), 5);
  CHECK(log->outstanding_bytes(kLate) == 65);
  CHECK(log->outstanding_bytes(Rank(2)) == 25);
  CHECK(log->outstanding_bytes(Rank(0)) == 0);
  CHECK(&first.log() == &second.log());
  first.on_called(kLate, Seq(1), TimePoint{});
  CHECK(log->outstanding_bytes(kLate) == 25);
  second.on_arrival(Seq(2), kLate, TimePoint{});
  CHECK(log->outstanding_bytes(kLate) == 0);
  // A rejoined member has the results that it missed, in all policies at once.
  first.on_committed(Seq(3), mask_of({0, 1, 2}), 30);
  for (History* history : {&first, &second}) history->set_members(mask_of({0, 1, 2}));
  for (History* history : {&first, &second}) history->set_members(RankSet::full(4));
  CHECK(log->outstanding_bytes(kLate) == 0);
  CHECK(second.called(kLate) == Seq(3));
}

TEST_CASE("skips of an excluded member count for the limit only") {
  History history(log_of(4, 100));
  history.on_committed(Seq(1), mask_of({0, 1, 2}), 30);
  CHECK(history.consecutive_skips(kLate) == 1);
  history.set_members(mask_of({0, 1, 2}));
  for (uint64_t seq = 2; seq <= 5; ++seq)
    history.on_committed(Seq(seq), mask_of({0, 1, 2}), 30);
  history.on_committed(Seq(5), mask_of({0, 1, 2}), 0);  // its second shard
  CHECK(history.consecutive_skips(kLate) == 5);
  CHECK(history.late_run(kLate) == 1);
  CHECK(history.log().outstanding_bytes(kLate) == 30);
  // Members of the view are counted as before.
  history.on_committed(Seq(6), mask_of({0, 1}), 30);
  CHECK(history.consecutive_skips(Rank(2)) == 1);
  CHECK(history.log().outstanding_bytes(Rank(2)) == 30);
  history.set_members(RankSet::full(4));
  CHECK(history.consecutive_skips(kLate) == 6);
  CHECK(history.log().outstanding_bytes(kLate) == 0);
  CHECK(history.consecutive_skips(Rank(2)) == 1);
  // The member has the missed results, and is late again from here.
  history.on_committed(Seq(7), mask_of({0, 1, 2}), 30);
  CHECK(history.consecutive_skips(kLate) == 7);
  CHECK(history.log().outstanding_bytes(kLate) == 30);
  // A member that was excluded for too long is not waited for at once.
  history.forget_skips(kLate);
  CHECK(history.consecutive_skips(kLate) == 0);
  CHECK(history.consecutive_skips(Rank(2)) == 0);
}

TEST_CASE("a healthy run counts each of its consecutive operations once") {
  History history(log_of(4, 0));
  CHECK(history.healthy_run(kLate) == 0);
  for (uint64_t seq = 1; seq <= 3; ++seq) {
    history.on_committed(Seq(seq), RankSet::full(4), 8);
    history.on_committed(Seq(seq), RankSet::full(4), 8);  // its second shard
  }
  CHECK(history.healthy_run(kLate) == 3);
  history.on_committed(Seq(4), mask_of({0, 1, 2}), 8);
  CHECK(history.healthy_run(kLate) == 0);
  CHECK(history.healthy_run(Rank(0)) == 4);
  history.on_committed(Seq(5), RankSet::full(4), 8);
  CHECK(history.healthy_run(kLate) == 1);
}

TEST_CASE("a member covered by a backup was late, and no data were lost") {
  History history(log_of(4, 100));  // rank 3 is a backup
  const RankSet nobody(4);
  for (uint64_t seq = 1; seq <= 4; ++seq) {
    history.on_committed(Seq(seq), mask_of({0, 1}), mask_of({2}), kLate, 1);
    history.on_committed(Seq(seq), mask_of({0, 1}), mask_of({2}), kLate, 1);
  }
  CHECK(history.late_run(Rank(2)) == 4);
  CHECK(history.consecutive_skips(Rank(2)) == 0);
  CHECK(history.is_behind(Rank(2), Seq(5)));
  CHECK(history.healthy_run(Rank(0)) == 4);
  // An operation counts as lost if one shard is lost and the other is covered, in any
  // order.
  history.on_committed(Seq(5), mask_of({0, 1}), mask_of({2}), kLate, 1);
  history.on_committed(Seq(5), mask_of({0, 1}), nobody, kLate, 1);
  CHECK(history.consecutive_skips(Rank(2)) == 1);
  history.on_committed(Seq(6), mask_of({0, 1}), nobody, kLate, 1);
  history.on_committed(Seq(6), mask_of({0, 1}), mask_of({2}), kLate, 1);
  CHECK(history.consecutive_skips(Rank(2)) == 2);
  CHECK(history.late_run(Rank(2)) == 6);
  history.on_committed(Seq(7), mask_of({0, 1}), mask_of({2}), kLate, 1);
  CHECK(history.consecutive_skips(Rank(2)) == 0);
  history.on_committed(Seq(8), mask_of({0, 1, 2}), nobody, kLate, 1);
  CHECK(history.late_run(Rank(2)) == 0);
  CHECK(history.log().outstanding_bytes(kLate) == 14);
}

TEST_CASE("a backup is late only if data were lost, and is never skipped") {
  History history(log_of(4, 100));
  history.on_committed(Seq(1), mask_of({0, 1, 2}), RankSet(4), kLate, 1);
  history.on_committed(Seq(2), mask_of({0, 1}), mask_of({2}), kLate, 1);
  CHECK(history.healthy_run(kLate) == 2);
  CHECK_FALSE(history.is_behind(kLate, Seq(3)));
  CHECK(history.log().outstanding_bytes(kLate) == 2);
  history.on_committed(Seq(3), mask_of({0, 1}), RankSet(4), kLate, 1);
  CHECK(history.is_behind(kLate, Seq(4)));
  CHECK(history.consecutive_skips(kLate) == 0);
  CHECK(history.late_run(kLate) == 0);
  CHECK(history.healthy_run(kLate) == 3);
  history.on_called(kLate, Seq(2), TimePoint{});
  CHECK_FALSE(history.is_behind(kLate, Seq(4)));
  // A member that has called could be asked.
  history.on_called(kLate, Seq(4), TimePoint{});
  history.on_committed(Seq(4), mask_of({0, 1}), RankSet(4), kLate, 1);
  CHECK_FALSE(history.is_behind(kLate, Seq(5)));
}

}  // namespace
}  // namespace aikido::straggler

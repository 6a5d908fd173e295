// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "collectives/strict/relayed_sends.h"

#include <deque>
#include <map>
#include <random>

#include "harness/catch.h"

using namespace aikido;
using namespace aikido::collectives;
using std::chrono::milliseconds;

namespace {

constexpr size_t kKiB = 1 << 10;
constexpr size_t kChunk = 256 * kKiB;
constexpr TimePoint kStart{};

// Feed of a broadcast from rank 0 to ranks 1 to n - 1.
RelayedSends feed_of(int32_t size, size_t bytes) {
  return {size, size - 1, bytes, kChunk};
}

// A pace that was measured at this number of bytes per second, for a second.
RelayPace pace_of(double rate) {
  RelayPace pace;
  if (rate > 0) pace.on_passed(static_cast<size_t>(rate), milliseconds(1000), true);
  return pace;
}

// Bytes that are handed to each rank at once.
std::map<int32_t, size_t> hand_out(RelayedSends& sends, TimePoint now) {
  std::map<int32_t, size_t> handed;
  while (const auto piece = sends.next(now))
    handed[piece->to.value] += piece->end - piece->begin;
  return handed;
}

}  // namespace

TEST_CASE("pieces go to the relays in turn, and each is passed on to the others") {
  RelayedSends sends = feed_of(4, 4096 * kKiB);
  RelayPace pace = pace_of(1e6);
  for (int32_t r = 1; r < 4; ++r) sends.join(Rank(r), &pace);
  size_t begin = 0;
  for (size_t i = 0; i < 3 * RelayedSends::kMostAhead; ++i) {
    const auto piece = sends.next(kStart);
    REQUIRE(piece);
    CHECK(piece->to == Rank(1 + static_cast<int32_t>(i % 3)));
    CHECK(piece->begin == begin);
    begin += 4096 * kKiB / 2 / RelayedSends::kLagShare;
    CHECK(piece->end == begin);
    CHECK_FALSE(piece->was_missed);
    CHECK(piece->pass_to.count() == 2);
    CHECK_FALSE(piece->pass_to.contains(piece->to));
    CHECK_FALSE(piece->pass_to.contains(Rank(0)));
  }
  CHECK_FALSE(sends.next(kStart));
  CHECK(sends.on_passed(Rank(2), 16 * kKiB, kStart + milliseconds(10)));
  CHECK(sends.next(kStart)->to == Rank(2));
  CHECK_FALSE(sends.next(kStart));
}

TEST_CASE("relays of different pace get data for the same time") {
  const auto handed = [](double first, double second) {
    RelayedSends sends = feed_of(4, 768 * kKiB);
    RelayPace first_pace = pace_of(first), second_pace = pace_of(second);
    sends.join(Rank(1), &first_pace);
    sends.join(Rank(2), &second_pace);
    sends.join(Rank(3), &second_pace);
    return hand_out(sends, kStart);
  };
  const size_t most = RelayedSends::kMostAhead * RelayedSends::kLeastPiece;
  // Half of an even share.
  CHECK(handed(1e6, 1e6) == std::map<int32_t, size_t>{{1, most}, {2, most}, {3, most}});
  CHECK(handed(1e6, 2e6)[1] == most / 2);
  CHECK(handed(1e6, 2e6)[2] == most);
  // Always a piece, so that its present pace is measured.
  CHECK(handed(1, 1e6)[1] == RelayedSends::kLeastPiece);
  CHECK(handed(0, 1e6)[1] == RelayedSends::kUnknownAhead * RelayedSends::kLeastPiece);
  // 200 KB in 4 ms, and an even share at most.
  CHECK(handed(5e7, 5e7)[1] > most);
  CHECK(handed(5e7, 5e7)[1] <= 200'000);
  CHECK(handed(1e12, 1e12)[1] == 2 * most);
}

TEST_CASE("a relay gets at most twice as much at once as it ever had") {
  RelayPace pace;
  for (int i = 0; i < 4; ++i) pace.on_passed(200'000, milliseconds(1), true);
  CHECK(pace.bytes_per_second() == Approx(2e8));
  RelayedSends sends = feed_of(3, 4096 * kKiB);
  for (int32_t r = 1; r < 3; ++r) sends.join(Rank(r), &pace);
  // 800 KB in 4 ms.
  const size_t handed = hand_out(sends, kStart)[1];
  CHECK(handed > 300'000);
  CHECK(handed <= 400'000);
}

TEST_CASE(
    "a relay of unknown pace gets more as it passes data on, and finally the usual "
    "amount") {
  RelayedSends sends = feed_of(3, 4096 * kKiB);
  RelayPace pace;
  for (int32_t r = 1; r < 3; ++r) sends.join(Rank(r), &pace);
  const size_t piece = 4096 * kKiB / RelayedSends::kLagShare;
  CHECK(hand_out(sends, kStart)[1] == RelayedSends::kUnknownAhead * piece);
  CHECK(sends.on_passed(Rank(1), piece, kStart + milliseconds(10)));
  CHECK(hand_out(sends, kStart)[1] == (RelayedSends::kMostAhead - 1) * piece);
}

TEST_CASE("the pace of a relay is measured from the time when it got data") {
  RelayedSends sends = feed_of(3, 4096 * kKiB);
  RelayPace pace = pace_of(7), other = pace_of(7);
  sends.join(Rank(1), &pace);
  sends.join(Rank(2), &other);
  const size_t handed = hand_out(sends, kStart)[1];
  // In two parts, the second at the same time as the first.
  CHECK(sends.on_passed(Rank(1), handed / 2, kStart + milliseconds(100)));
  CHECK(sends.on_passed(Rank(1), handed, kStart + milliseconds(100)));
  CHECK(pace.bytes_per_second() == Approx(10.0 * static_cast<double>(handed)));
  // It had no data for a second.
  const auto later = kStart + milliseconds(1100);
  const size_t more = hand_out(sends, later)[1];
  CHECK(sends.on_passed(Rank(1), handed + more, later + milliseconds(50)));
  CHECK(pace.bytes_per_second() == Approx(20.0 * static_cast<double>(more)));
  CHECK(other.bytes_per_second() == 7);
}

TEST_CASE(
    "the first relay alone gets little at first, and the others what they have "
    "missed") {
  RelayedSends sends = feed_of(4, 4096 * kKiB);
  RelayPace pace = pace_of(1e12), unknown;
  sends.join(Rank(2), &pace);
  const auto alone = sends.next(kStart);
  REQUIRE(alone);
  CHECK(alone->to == Rank(2));
  CHECK(alone->end == RelayedSends::kFirstPiece);
  CHECK(alone->pass_to.count() == 0);
  CHECK_FALSE(alone->was_missed);
  CHECK_FALSE(sends.next(kStart));
  // The data that it has passed on counts, so it may have twice as much.
  const auto later = kStart + milliseconds(10);
  CHECK(sends.on_passed(Rank(2), alone->end, later));
  // Its pace is not measured, because it had no member to pass data on to.
  CHECK(pace.bytes_per_second() == 1e12);
  CHECK(hand_out(sends, later)[2] == 2 * RelayedSends::kFirstPiece);

  sends.join(Rank(1), &unknown);
  const auto missed = sends.next(kStart);
  REQUIRE(missed);
  CHECK(missed->to == Rank(1));
  CHECK(missed->was_missed);
  CHECK(missed->begin == 0);
  CHECK(missed->end == 3 * RelayedSends::kFirstPiece);
  // Until it has the missed data, it is a receiver but no relay.
  CHECK(sends.on_passed(Rank(2), 3 * RelayedSends::kFirstPiece, kStart));
  const auto next = sends.next(kStart);
  REQUIRE(next);
  CHECK(next->to == Rank(2));
  CHECK(next->begin == missed->end);
  CHECK(next->pass_to.contains(Rank(1)));
  CHECK(hand_out(sends, kStart).count(1) == 0);
  sends.on_caught_up(Rank(1));
  CHECK(hand_out(sends, kStart).count(1) == 1);
}

TEST_CASE("before all have joined, a relay has no more than it can pass on by then") {
  RelayedSends sends = feed_of(4, 4096 * kKiB);
  RelayPace pace = pace_of(1e6);
  sends.join(Rank(2), &pace);
  size_t passed = 0;
  // A buffer on the way takes the data at once.
  for (int i = 0; i < 8; ++i) {
    passed += hand_out(sends, kStart)[2];
    CHECK(passed == static_cast<size_t>(i + 1) * RelayedSends::kFirstPiece);
    CHECK(sends.on_passed(Rank(2), passed, kStart));
  }
  CHECK(hand_out(sends, kStart + milliseconds(12))[2] == 12'000);
}

TEST_CASE("an impossible report of a relay is refused") {
  RelayedSends sends = feed_of(3, 4096 * kKiB);
  RelayPace pace;
  for (int32_t r = 1; r < 3; ++r) sends.join(Rank(r), &pace);
  const size_t handed = hand_out(sends, kStart)[1];
  CHECK_FALSE(sends.on_passed(Rank(1), handed + 1, kStart));
  CHECK(sends.on_passed(Rank(1), handed, kStart));
  CHECK_FALSE(sends.on_passed(Rank(1), handed, kStart));
  CHECK_FALSE(sends.on_passed(Rank(1), handed - 1, kStart));
}

namespace {

// Bytes per microsecond into a buffer on the way.
constexpr double kFast = 1000;

// Simulation of a broadcast in which each rank has one link for all that it sends. The
// link carries the rank's rate in bytes per microsecond, and kFast for the first
// `burst` bytes. Returns the time of the broadcast and the bytes that each rank has
// passed on. Checks that each rank gets each byte once.
struct Simulated {
  std::chrono::microseconds took{};
  std::map<int32_t, size_t> relayed;
};
Simulated simulate(size_t bytes, const std::vector<double>& rates,
                   const std::vector<int>& joins_at_us,
                   std::vector<RelayPace>* paces = nullptr, double burst = 0) {
  const auto size = static_cast<int32_t>(rates.size());
  RelayedSends sends = feed_of(size, bytes);
  struct Out {
    int32_t to;
    RelayedSends::Piece piece;
    double left;
  };
  std::vector<std::deque<Out>> queues(rates.size());
  std::vector<std::map<size_t, size_t>> got(rates.size());
  std::vector<size_t> num_got(rates.size()), passed(rates.size());
  std::vector<double> left_of_burst(rates.size(), burst);
  std::vector<RelayPace> unknown(rates.size());
  if (paces == nullptr) paces = &unknown;
  Simulated result;
  const auto is_done = [&] {
    for (size_t r = 1; r < rates.size(); ++r)
      if (num_got[r] < bytes) return false;
    return true;
  };
  for (int us = 0; !is_done(); ++us) {
    REQUIRE(us < 60'000'000);
    result.took = std::chrono::microseconds(us);
    const TimePoint now = kStart + result.took;
    for (int32_t r = 1; r < size; ++r)
      if (joins_at_us[static_cast<size_t>(r)] == us)
        sends.join(Rank(r), &(*paces)[static_cast<size_t>(r)]);
    while (const auto piece = sends.next(now)) {
      const auto length = static_cast<double>(piece->end - piece->begin);
      queues[0].push_back({piece->to.value, *piece, length});
      if (!piece->was_missed)
        result.relayed[piece->to.value] += piece->end - piece->begin;
    }
    for (int32_t r = 0; r < size; ++r) {
      auto& queue = queues[static_cast<size_t>(r)];
      if (queue.empty()) continue;
      // On real links data for different receivers takes turns; here it goes one after
      // another.
      double& burst_left = left_of_burst[static_cast<size_t>(r)];
      const double sent = burst_left > 0 ? kFast : rates[static_cast<size_t>(r)];
      burst_left -= sent;
      queue.front().left -= sent;
      if (queue.front().left > 0) continue;
      const Out out = queue.front();
      queue.pop_front();
      const size_t length = out.piece.end - out.piece.begin;
      const auto to = static_cast<size_t>(out.to);
      REQUIRE(got[to].emplace(out.piece.begin, length).second);
      num_got[to] += length;
      if (r != 0) {
        // This was the last copy of a piece.
        if (queue.empty() || queue.front().piece.begin != out.piece.begin) {
          passed[static_cast<size_t>(r)] += length;
          CHECK(sends.on_passed(Rank(r), passed[static_cast<size_t>(r)], now));
        }
      } else if (out.piece.was_missed) {
        sends.on_caught_up(Rank(out.to));
      } else if (out.piece.pass_to.count() == 0) {
        passed[to] += length;
        CHECK(sends.on_passed(Rank(out.to), passed[to], now));
      } else {
        out.piece.pass_to.for_each([&](Rank other) {
          queues[to].push_back({other.value, out.piece, static_cast<double>(length)});
        });
      }
    }
  }
  CHECK(sends.is_handed_out());
  return result;
}

}  // namespace

TEST_CASE("all ranks have all data in little more than the time of the root's link") {
  for (const int32_t size : {3, 4, 8}) {
    const size_t bytes = 4096 * kKiB;
    const std::vector<double> rates(static_cast<size_t>(size), 25);
    const std::vector<int> joins(rates.size(), 0);
    const double least = static_cast<double>(bytes) / 25;
    const auto took = static_cast<double>(simulate(bytes, rates, joins).took.count());
    INFO(size << " ranks, " << took / least << " of the least");
    // Receivers wait for a piece of each relay, at the start and at the end.
    const size_t lag = static_cast<size_t>(size - 2) * RelayedSends::kLeastPiece;
    CHECK(took < 1.02 * least + 2 * static_cast<double>(lag) / 25);
  }
}

TEST_CASE("a member that is a little late costs a little time") {
  const size_t bytes = 4096 * kKiB;
  const double least = static_cast<double>(bytes) / 25;
  const auto took = simulate(bytes, {25, 25, 25, 25}, {0, 0, 300, 700}).took.count();
  CHECK(static_cast<double>(took) < 1.06 * least);
}

TEST_CASE("data that buffers take at first does not make a relay look fast") {
  const size_t bytes = 4096 * kKiB;
  const double least = static_cast<double>(bytes) / 25;
  std::vector<RelayPace> paces(4);
  for (int run = 0; run < 3; ++run) {
    const auto took =
        simulate(bytes, {25, 25, 25, 25}, {0, 0, 300, 700}, &paces, 100'000)
            .took.count();
    INFO("run " << run << ", " << static_cast<double>(took) / least << " of the least");
    // A late member misses the data that buffers take from unknown relays.
    CHECK(static_cast<double>(took) < (run == 0 ? 1.1 : 1.045) * least);
    for (int r = 1; r < 4; ++r) {
      CHECK(paces[static_cast<size_t>(r)].bytes_per_second() > 5e6);
      CHECK(paces[static_cast<size_t>(r)].bytes_per_second() < 20e6);
    }
  }
}

TEST_CASE("a relay with a slow uplink gets little data, and all go on without it") {
  const size_t bytes = 4096 * kKiB;
  const Simulated all = simulate(bytes, {25, 25, 25, 2.5}, {0, 0, 0, 0});
  CHECK(all.relayed.at(3) < bytes / 10);
  // It had two pieces before its pace was known. With even parts it would send two
  // thirds of all data at a tenth of the rate, which takes 6.7 times as long. If the
  // root sent all data itself, that would take 3 times as long.
  CHECK(static_cast<double>(all.took.count()) < 1.4 * static_cast<double>(bytes) / 25);
}

TEST_CASE("each rank gets each byte once, for all join times and rates") {
  std::mt19937 random(0);
  // The pace that was measured in one run counts in the next run, which has other
  // rates.
  std::vector<RelayPace> paces(9);
  for (int run = 0; run < 60; ++run) {
    const size_t size = 3 + random() % 6;
    const size_t bytes = 1 + random() % (700 * kKiB);
    std::vector<double> rates;
    std::vector<int> joins;
    for (size_t r = 0; r < size; ++r) {
      rates.push_back(static_cast<double>(20 + random() % 400));
      joins.push_back(static_cast<int>(random() % 3000));
    }
    INFO("run " << run);
    simulate(bytes, rates, joins, run % 2 == 0 ? nullptr : &paces);
  }
}

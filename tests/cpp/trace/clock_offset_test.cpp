// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "trace/clock_offset.h"

#include <cmath>
#include <random>

#include "harness/catch.h"

using namespace aikido;
using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;
using trace::ClockLine;
using trace::ClockOffset;

namespace {

// Another clock beside ours.
struct Other {
  Duration offset{};
  double drift = 0;
  TimePoint at(TimePoint ours) const {
    const auto since = static_cast<double>(ours.time_since_epoch().count());
    return ours + offset + Duration(std::llround(drift * since));
  }
};

double error_ms(const ClockLine& line, const Other& other, TimePoint at) {
  return std::abs(to_ms(line.theirs(at) - other.at(at)));
}

}  // namespace

TEST_CASE("nothing is known before an answer, and nonsense is no answer") {
  ClockOffset clock;
  CHECK_FALSE(clock.line());
  const TimePoint t(seconds(5));
  clock.add({t, t, t - milliseconds(1)});
  CHECK_FALSE(clock.line());
}

TEST_CASE("one answer gives the offset to half of its round trip") {
  ClockOffset clock;
  const TimePoint t(seconds(5));
  clock.add({t, t + seconds(3) + microseconds(100), t + microseconds(200)});
  const auto line = clock.line();
  REQUIRE(line);
  CHECK(line->offset == seconds(3));
  CHECK(line->drift == 0);
  CHECK(line->error == microseconds(100));
  CHECK(line->theirs(t) == t + seconds(3));
}

TEST_CASE("of some answers only the quickest counts") {
  ClockOffset clock;
  TimePoint t(seconds(5));
  for (int i = 0; i < 8; ++i) {
    const bool is_quick = i == 3;
    const Duration there = is_quick ? microseconds(100) : milliseconds(9);
    clock.add({t, t + seconds(3) + there, t + there + microseconds(100)});
    t += milliseconds(10);
  }
  const auto line = clock.line();
  REQUIRE(line);
  CHECK(line->offset == seconds(3));
}

// The bar: 5 s and 100 ppm to under 0.5 ms, whatever the network is like in one
// direction. The worst of all times in the last minutes and the next seconds, from the
// first minute on.
TEST_CASE("offset and drift are found through queues that stand in one direction") {
  double worst_ms = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    std::mt19937_64 random(seed);
    const auto uniform = [&](double from, double to) {
      return std::uniform_real_distribution<double>(from, to)(random);
    };
    const Other other{from_ms(uniform(-5000, 5000)), uniform(-1e-4, 1e-4)};
    const double path_ms = uniform(0.02, 0.2), queue_ms = uniform(0, 20);
    const double share = uniform(0, 0.7);  // of samples that meet a queue
    const auto leg = [&] {
      const bool meets = uniform(0, 1) < share;
      return from_ms(path_ms * uniform(1, 1.3) +
                     (meets ? -std::log(uniform(1e-9, 1)) * queue_ms : 0));
    };
    ClockOffset clock;
    TimePoint t(from_ms(uniform(0, 1e8)));
    const TimePoint begin = t;
    for (int i = 0; i < 16; ++i) {                // as at the start of a group
      const TimePoint there = t + leg() + leg();  // that direction is the busy one
      const TimePoint heard = there + from_ms(path_ms * uniform(1, 1.3));
      clock.add({t, other.at(there), heard});
      t = heard;
    }
    for (int i = 0; i < 600; ++i) {
      const TimePoint there = t + leg();
      const TimePoint heard = there + from_ms(path_ms * uniform(1, 1.3));
      clock.add({t, other.at(there), heard});
      t = heard + seconds(1);
      if (i < 60 || i % 10 != 9) continue;
      const auto line = clock.line();
      for (TimePoint at = std::max(begin, t - seconds(300)); at < t + seconds(2);
           at += seconds(7))
        worst_ms = std::max(worst_ms, error_ms(*line, other, at));
    }
  }
  CAPTURE(worst_ms);
  CHECK(worst_ms < 0.5);
}

TEST_CASE("a drift that no clock has is not believed") {
  ClockOffset clock;
  TimePoint t(seconds(5));
  for (int i = 0; i < 40; ++i) {
    clock.add({t, t + milliseconds(200 * i), t + microseconds(10)});
    t += seconds(1);
  }
  CHECK(clock.line()->drift == ClockOffset::kMostDrift);
}

TEST_CASE("what is long past is forgotten") {
  ClockOffset clock;
  TimePoint t(seconds(5));
  const size_t kept = ClockOffset::kBlocks * ClockOffset::kPerBlock;
  for (size_t i = 0; i < 3 * kept; ++i) {
    const Duration offset = i < 2 * kept ? seconds(3) : seconds(4);
    clock.add({t, t + offset + microseconds(5), t + microseconds(10)});
    t += seconds(1);
  }
  CHECK(std::abs(to_ms(clock.line()->theirs(t) - t - seconds(4))) < 0.001);
}

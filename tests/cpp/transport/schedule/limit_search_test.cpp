// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "transport/schedule/limit_search.h"

#include "harness/catch.h"

using namespace aikido;
using namespace aikido::transport;

namespace {

constexpr double kRate = 1e6;  // bytes per second

struct Search {
  LimitSearch search;
  TimePoint now{std::chrono::seconds(100)};

  void samples(int num, double bytes_per_s, bool is_excused = false) {
    for (int i = 0; i < num; ++i) {
      now += std::chrono::milliseconds(5);
      search.on_time(now);
      search.on_sample(bytes_per_s, is_excused, now);
    }
  }
  // The link has this rate, and the limit is in its normal state.
  void learn(double bytes_per_s) {
    samples(4 * LimitSearch::kSamples, bytes_per_s);
    REQUIRE(search.has_learnt());
    REQUIRE(search.steps() == 1);
  }
  // Low rates until a larger limit is tried. Returns the number of samples.
  int until_a_try(double bytes_per_s) {
    int num = 0;
    for (; search.steps() == 1 && num < 10'000; ++num) samples(1, bytes_per_s);
    REQUIRE(search.steps() > 1);
    return num;
  }
};

}  // namespace

TEST_CASE("the rate is learnt when it grows no more") {
  Search s;
  CHECK_FALSE(s.search.has_learnt());
  s.samples(2 * LimitSearch::kSamples, kRate);
  CHECK_FALSE(s.search.has_learnt());
  s.samples(2 * LimitSearch::kSamples, 2 * kRate);
  CHECK_FALSE(s.search.has_learnt());
  s.samples(2 * LimitSearch::kSamples, 2.1 * kRate);
  CHECK(s.search.has_learnt());
  CHECK(s.search.learnt_bytes_per_s() == Approx(2.1 * kRate));
}

TEST_CASE("a larger limit is tried only after the rate was low for long") {
  Search s;
  s.learn(kRate);
  s.samples(10 * LimitSearch::kLowSamples, 0.8 * kRate);
  CHECK(s.search.steps() == 1);
  // Two times in a row: the first makes the limit suspected.
  CHECK(s.until_a_try(0.5 * kRate) >= LimitSearch::kLowSamples);
  CHECK(s.search.steps() == LimitSearch::kStep);
}

TEST_CASE("low rates do not count while older bytes are in flight") {
  Search s;
  s.learn(kRate);
  s.samples(10 * LimitSearch::kLowSamples, 0.1 * kRate, /*is_excused=*/true);
  CHECK(s.search.steps() == 1);
}

TEST_CASE("a larger limit that does not help is dropped, and the rate falls slowly") {
  Search s;
  s.learn(kRate);
  s.until_a_try(0.5 * kRate);
  s.samples(2 * LimitSearch::kSamples, 0.5 * kRate);
  CHECK(s.search.steps() == 1);
  CHECK(s.search.learnt_bytes_per_s() == Approx(LimitSearch::kLow * kRate));
}

TEST_CASE("a larger limit that helps stays for a time") {
  Search s;
  s.learn(kRate);
  s.until_a_try(0.2 * kRate);
  s.samples(2 * LimitSearch::kSamples, kRate);
  // Still larger ones are tried until the rate does not grow.
  CHECK(s.search.steps() == LimitSearch::kStep * LimitSearch::kStep);
  s.samples(2 * LimitSearch::kSamples, kRate);
  CHECK(s.search.steps() == LimitSearch::kStep);
  CHECK_FALSE(s.search.is_unlimited());
  s.now += LimitSearch::kOpenFirst - std::chrono::milliseconds(1);
  s.search.on_time(s.now);
  CHECK(s.search.steps() == LimitSearch::kStep);
  s.now += std::chrono::milliseconds(1);
  s.search.on_time(s.now);
  CHECK(s.search.steps() == 1);
}

TEST_CASE("if each larger limit helps, there is no limit in the end") {
  Search s;
  s.learn(kRate);
  s.until_a_try(0.001 * kRate);
  double rate = 0.001 * kRate;
  for (int i = 0; i < 10 && !s.search.is_unlimited(); ++i)
    s.samples(2 * LimitSearch::kSamples, rate *= 2);
  CHECK(s.search.is_unlimited());
}

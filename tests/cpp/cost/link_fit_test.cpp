// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
// Fits of links whose alpha and beta are known.
#include "cost/link_fit.h"

#include <array>
#include <cmath>
#include <limits>
#include <random>

#include "harness/catch.h"

namespace aikido::cost {
namespace {

constexpr std::array kSizes = {1e3, 5e5, 2e4, 4e6, 1e5, 1e6, 3e3, 8e6};

LinkFit fit_with(const LinkFitOptions& options = {}) {
  auto made = LinkFit::make(options);
  if (!made) FAIL(made.status().message());
  return *made;
}

bool is_near(double a, double b, double share) {
  return std::abs(a - b) <= share * b;
}

// Adds samples with relative noise up to `noise`, until both estimates are near or 100
// samples were added.
int samples_until_near(LinkFit& fit, const LinkCost& link, double noise,
                       std::mt19937& dice) {
  for (int i = 1; i <= 100; ++i) {
    const double bytes = kSizes[dice() % kSizes.size()];
    const double factor = 1 + noise * (static_cast<double>(dice() % 2001) / 1000 - 1);
    REQUIRE(fit.add(bytes, link.time_s(bytes) * factor).is_ok());
    if (is_near(fit.link()->beta_s, link.beta_s, 0.1) &&
        is_near(fit.link()->alpha_s, link.alpha_s, 0.25))
      return i;
  }
  return 101;
}

TEST_CASE("nothing is known before the first sample") {
  const auto fit = fit_with();
  REQUIRE(!fit.link());
  REQUIRE(fit.size() == 0);
}

TEST_CASE("two sizes give alpha and beta") {
  auto fit = fit_with();
  REQUIRE(fit.add(1000, 3).is_ok());
  REQUIRE(fit.add(3000, 7).is_ok());
  REQUIRE(fit.link()->alpha_s == 1);
  REQUIRE(fit.link()->beta_s == 0.002);
}

TEST_CASE("with one size alpha does not change") {
  auto fit = fit_with();
  REQUIRE(fit.add(1000, 3).is_ok());
  REQUIRE(fit.link()->alpha_s == 0);
  REQUIRE(fit.link()->beta_s == 0.003);
  REQUIRE(fit.add(0, 2).is_ok());
  REQUIRE(is_near(fit.link()->alpha_s, 2, 1e-9));
  // Only one size is left in a window of 4.
  auto small = fit_with({4, 2, 0.25});
  REQUIRE(small.add(0, 2).is_ok());
  REQUIRE(small.add(1000, 3).is_ok());
  for (int i = 0; i < 4; ++i) REQUIRE(small.add(1000, 3).is_ok());
  REQUIRE(small.size() == 4);
  REQUIRE(small.link()->alpha_s == 2);
  REQUIRE(small.link()->beta_s == 0.001);
}

TEST_CASE("a transfer of nothing tells alpha alone") {
  auto fit = fit_with();
  REQUIRE(fit.add(0, 2).is_ok());
  REQUIRE(fit.link()->alpha_s == 2);
  REQUIRE(fit.link()->beta_s == 0);
}

TEST_CASE("neither alpha nor beta is ever negative") {
  auto falling = fit_with();
  REQUIRE(falling.add(1000, 7).is_ok());
  REQUIRE(falling.add(3000, 5).is_ok());
  REQUIRE(falling.link()->beta_s == 0);
  REQUIRE(falling.link()->alpha_s == 7);  // as good as 5; the first of both counts
  auto steep = fit_with();
  REQUIRE(steep.add(1000, 1).is_ok());
  REQUIRE(steep.add(2000, 9).is_ok());
  REQUIRE(steep.link()->alpha_s == 0);
  REQUIRE(steep.link()->beta_s == 0.001);
}

TEST_CASE("a fit is near after few samples, with noise") {
  std::mt19937 dice(3);
  int worst = 0;
  for (int i = 0; i < 50; ++i) {
    auto fit = fit_with();
    worst = std::max(worst, samples_until_near(fit, {300e-6, 8e-9}, 0.03, dice));
  }
  REQUIRE(worst <= 12);
}

TEST_CASE("one stalled transfer in five moves the fit little") {
  std::mt19937 dice(9);
  auto fit = fit_with();
  const LinkCost link{300e-6, 8e-9};
  for (int i = 0; i < 200; ++i) {
    const double bytes = kSizes[dice() % kSizes.size()];
    const double stall =
        i % 5 == 0 ? 0.05 + 1e-3 * static_cast<double>(dice() % 200) : 0;
    REQUIRE(fit.add(bytes, link.time_s(bytes) + stall).is_ok());
    if (i < 20) continue;
    CAPTURE(i, fit.link()->alpha_s, fit.link()->beta_s);
    REQUIRE(is_near(fit.link()->beta_s, link.beta_s, 0.1));
    REQUIRE(is_near(fit.link()->alpha_s, link.alpha_s, 0.5));
  }
  REQUIRE(fit.changes() == 0);
}

TEST_CASE("a rate that changes is followed within a few samples") {
  std::mt19937 dice(21);
  for (const double factor : {0.1, 0.5, 2.0, 10.0})
    for (int i = 0; i < 30; ++i) {
      CAPTURE(factor, i);
      auto fit = fit_with();
      LinkCost link{300e-6, 8e-9};
      for (int k = 0; k < 40; ++k) samples_until_near(fit, link, 0.03, dice);
      link = {link.alpha_s * factor, link.beta_s * factor};
      REQUIRE(samples_until_near(fit, link, 0.03, dice) <= 12);
      REQUIRE(fit.changes() >= 1);
    }
}

TEST_CASE("a change is seen at its fourth sample, and three outliers are no change") {
  auto fit = fit_with();
  for (int i = 0; i < 16; ++i) {
    REQUIRE(fit.add(kSizes[static_cast<size_t>(i) % 8],
                    1e-3 + 1e-8 * kSizes[static_cast<size_t>(i) % 8])
                .is_ok());
  }
  for (int i = 0; i < 3; ++i) REQUIRE(fit.add(1e6, 0.5).is_ok());
  REQUIRE(fit.changes() == 0);
  REQUIRE(is_near(fit.link()->beta_s, 1e-8, 0.01));
  REQUIRE(fit.add(1e6, 0.5).is_ok());
  REQUIRE(fit.changes() == 1);
  REQUIRE(fit.size() == 4);
  REQUIRE(is_near(fit.link()->time_s(1e6), 0.5, 1e-9));
}

TEST_CASE("options and samples that make no sense are refused") {
  const auto refusal = [](LinkFitOptions options) {
    return LinkFit::make(options).status().message();
  };
  REQUIRE(refusal({1, 2, 1}) ==
          "the window has 1 samples; it takes a number from 2 up");
  REQUIRE(
      refusal({8, 5, 1}) ==
      "a change takes 5 samples; it takes a number from 2 to half of the window, 4");
  REQUIRE(refusal({8, 4, 0}) == "the tolerance is 0; it takes a finite number above 0");
  auto fit = fit_with();
  REQUIRE(fit.add(1, -1).message() ==
          "seconds of a transfer is -1; it takes a finite number from 0 up");
  REQUIRE(fit.add(std::numeric_limits<double>::infinity(), 1).message() ==
          "bytes of a transfer is inf; it takes a finite number from 0 up");
  REQUIRE(fit.size() == 0);
}

}  // namespace
}  // namespace aikido::cost

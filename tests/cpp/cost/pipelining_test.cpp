// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
// Pipelining depths, compared with all possible depths.
#include "cost/pipelining.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "harness/catch.h"

namespace aikido::cost {
namespace {

TEST_CASE("over one hop nothing is cut") {
  auto found = pipelining_of(1e6, 1, 100, {1e-3, 1e-9});
  REQUIRE(found->depth == 1);
  REQUIRE(found->time_s == 1e-3 + 1e6 * 1e-9);
}

TEST_CASE("the depth is the best of all, at most as deep as allowed") {
  for (const double bytes : {0.0, 1.0, 1e3, 1e6, 3e8})
    for (const double alpha : {0.0, 1e-6, 3e-4, 0.1})
      for (const int hops : {1, 2, 3, 8})
        for (const int most : {1, 2, 7, 60}) {
          CAPTURE(bytes, alpha, hops, most);
          const LinkCost link{alpha, 1e-9};
          double best = std::numeric_limits<double>::infinity();
          for (int depth = 1; depth <= most; ++depth)
            best = std::min(best, (hops - 1.0 + depth) * link.time_s(bytes / depth));
          auto found = pipelining_of(bytes, hops, most, link);
          REQUIRE(found->time_s <= best * (1 + 1e-12));
          REQUIRE(found->depth <= most);
        }
}

TEST_CASE("the smaller of two equally fast depths is taken") {
  auto found = pipelining_of(2, 2, 9, {1, 1});
  REQUIRE(found->depth == 1);
  REQUIRE(found->time_s == 6);
}

TEST_CASE("ten megabytes over two hops go in ten chunks of a gigabyte a second") {
  auto found = pipelining_of(1e7, 2, 1000, {1e-4, 1e-9});
  REQUIRE(found->depth == 10);
  REQUIRE(std::abs(found->time_s - 11 * 1.1e-3) < 1e-12);
}

TEST_CASE("a pipeline that makes no sense is refused") {
  const auto refusal = [](double bytes, int hops, int most, LinkCost link) {
    return pipelining_of(bytes, hops, most, link).status().message();
  };
  REQUIRE(refusal(-1, 1, 1, {}) == "bytes is -1; it takes a finite number from 0 up");
  REQUIRE(refusal(1, 0, 1, {}) == "hops is 0; it takes a number from 1 up");
  REQUIRE(refusal(1, 1, 0, {}) == "most is 0; it takes a number from 1 up");
  REQUIRE(refusal(1, 1, 1, {-1, 0}) ==
          "alpha of the link is -1; it takes a finite number from 0 up");
}

}  // namespace
}  // namespace aikido::cost

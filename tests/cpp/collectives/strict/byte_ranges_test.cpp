// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "collectives/strict/byte_ranges.h"

#include <random>
#include <vector>

#include "harness/catch.h"

using aikido::collectives::ByteRanges;

TEST_CASE("the first missing byte is known for any order of arrival") {
  ByteRanges here;
  CHECK(here.first_missing() == 0);
  CHECK(here.add(10, 20));
  CHECK(here.first_missing() == 0);
  CHECK(here.add(0, 5));
  CHECK(here.first_missing() == 5);
  CHECK(here.add(5, 10));
  CHECK(here.first_missing() == 20);
  CHECK(here.add(20, 20));
  CHECK(here.first_missing() == 20);
}

TEST_CASE("a range with a byte that was added before is refused") {
  std::mt19937 random(0);
  for (int run = 0; run < 300; ++run) {
    ByteRanges here;
    std::vector<bool> model(24);
    for (int step = 0; step < 20; ++step) {
      const size_t begin = random() % model.size();
      const size_t end = begin + random() % std::min<size_t>(6, model.size() - begin);
      bool is_new = true;
      for (size_t i = begin; i < end; ++i) is_new = is_new && !model[i];
      REQUIRE(here.has_any(begin, end) == !is_new);
      REQUIRE(here.add(begin, end) == is_new);
      for (size_t i = begin; is_new && i < end; ++i) model[i] = true;
      size_t first = 0;
      while (first < model.size() && model[first]) ++first;
      REQUIRE(here.first_missing() == first);
    }
  }
}

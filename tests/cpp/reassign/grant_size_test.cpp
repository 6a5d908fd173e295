// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "reassign/grant_size.h"

#include <vector>

#include "harness/catch.h"

using namespace aikido;
using namespace aikido::reassign;
using namespace std::chrono_literals;

namespace {

GrantOptions exact() {
  GrantOptions options;
  options.move_cost = 0ns;
  options.least_gain = 0;
  return options;
}

struct Case {
  const char* name;
  std::vector<double> costs;
  Load owner, helper;
  std::vector<Load> others;
  uint32_t expected;
};

uint32_t size_of(const Case& one, const GrantOptions& options) {
  GrantQuestion question;
  question.costs = one.costs;
  question.owner = one.owner;
  question.helper = one.helper;
  question.others = one.others;
  return grant_size(question, options);
}

}  // namespace

TEST_CASE("owner and helpers come to an end at the same time") {
  const std::vector<double> eight(8, 1.0);
  const std::vector<Case> cases = {
      {"equally fast: half", eight, {0, 10}, {0, 10}, {}, 4},
      {"owner of half the speed: two thirds",
       {1, 1, 1, 1, 1, 1},
       {0, 20},
       {0, 10},
       {},
       4},
      {"a busy helper takes less", eight, {0, 10}, {40, 10}, {}, 2},
      {"another helper will ask, too", eight, {0, 10}, {0, 10}, {{0, 10}, {0, 10}}, 2},
      {"a helper that is busy for long does not count",
       eight,
       {0, 10},
       {0, 10},
       {{900, 10}},
       4},
      {"the share is rounded down", {1, 1, 1, 1, 1}, {0, 10}, {0, 10}, {}, 2},
      {"at least one item", {1, 1}, {30, 30}, {35, 10}, {{0, 10}}, 1},
      {"costs count, not items", {4, 1, 1, 1, 1}, {0, 10}, {0, 10}, {}, 4},
      {"no item", {}, {50, 10}, {0, 10}, {}, 0},
      {"a late helper gets nothing", eight, {0, 10}, {80, 10}, {}, 0},
      {"a slow helper gets nothing", {1}, {10, 10}, {0, 30}, {}, 0},
      {"a difference of one item is no gain", {1}, {10, 10}, {10, 10}, {}, 0},
  };
  for (const Case& one : cases) {
    INFO(one.name);
    CHECK(size_of(one, exact()) == one.expected);
  }
}

TEST_CASE(
    "a gain must exceed the cost of the move, a share of the work, and the noise") {
  const Case one{"", {1, 1}, {100, 100}, {0, 100}, {}, 0};  // a gain of 100 to 200 ns
  GrantOptions options = exact();
  CHECK(size_of(one, options) == 1);
  options.move_cost = 99ns;
  CHECK(size_of(one, options) == 1);
  options.move_cost = 100ns;
  CHECK(size_of(one, options) == 0);
  options = exact();
  options.least_gain = 0.6;  // of 300 ns, and all moves together gain 150 ns
  CHECK(size_of(one, options) == 0);
  options = exact();
  GrantQuestion question;
  question.costs = one.costs;
  question.owner = one.owner;
  question.helper = one.helper;
  question.deviation = 1.02;  // of 100 ns, for one item
  CHECK(grant_size(question, options) == 0);
  question.deviation = 0.98;
  CHECK(grant_size(question, options) == 1);
  options.noise = 1.1;  // now that of all items is 152 ns
  question.deviation = 0.98;
  CHECK(grant_size(question, options) == 0);
  options.noise = 0;
  CHECK(grant_size(question, options) == 1);
}

TEST_CASE("blocks are a share of the items of the step, and at least one") {
  const std::vector<double> costs(30, 1.0);
  GrantQuestion question;
  question.costs = costs;
  question.owner = {0, 10};
  question.helper = {0, 10};
  question.num_begun_with = 80;
  GrantOptions options = exact();
  options.rule = GrantRule::kBlocks;
  CHECK(grant_size(question, options) == 2);
  question.is_first = false;
  CHECK(grant_size(question, options) == 4);
  question.num_begun_with = 8;
  CHECK(grant_size(question, options) == 1);
  question.helper = {300, 10};
  CHECK(grant_size(question, options) == 0);
}

TEST_CASE("a common end takes only ranks that are ready before it") {
  const std::vector<Load> ranks = {{0, 1}, {10, 1}, {100, 1}};
  CHECK(common_finish_ns(ranks, 6) == Approx(6));
  CHECK(common_finish_ns(ranks, 30) == Approx(20));
  CHECK(common_finish_ns(ranks, 400) == Approx(170));
}

TEST_CASE("options of grants out of their range are refused by name") {
  GrantOptions options;
  CHECK(check(options).is_ok());
  options.next_block = 1.5;
  CHECK(check(options).message().find("next_block is 1.5") == 0);
  options = {};
  options.least_gain = -1;
  CHECK(check(options).message().find("least_gain is -1") == 0);
  options = {};
  options.move_cost = -1ms;
  CHECK(check(options).message().find("move_cost is -1") == 0);
  options = {};
  options.noise = -2;
  CHECK(check(options).message().find("noise is -2") == 0);
}

TEST_CASE("a grant has at most as many items as a message can carry") {
  GrantQuestion question;
  const std::vector<double> hundred(100, 1.0);
  question.costs = hundred;
  question.owner = {0, 10};
  question.helper = {0, 10};
  GrantOptions options = exact();
  CHECK(grant_size(question, options) == 50);
  options.most_items = 28;
  CHECK(grant_size(question, options) == 28);
  for (const uint32_t wrong : {0u, 0x10000u}) {
    options.most_items = wrong;
    CHECK(check(options).message().find("it must be between 1 and 65535") !=
          std::string::npos);
  }
}

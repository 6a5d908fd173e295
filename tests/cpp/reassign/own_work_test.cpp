// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "reassign/own_work.h"

#include "harness/catch.h"

using namespace aikido;
using namespace aikido::reassign;
using namespace std::chrono_literals;

namespace {

constexpr Rank kSelf{0}, kOther{1};
constexpr TimePoint kStart{1s};

// A rank that takes 10 ns per unit of cost, in step 3 with items of cost 1, 2 and 3.
struct Fixture {
  OwnWork work{kSelf};
  Fixture() {
    work.begin(2, {{0, 1}});
    work.start(*work.claim(), kStart);
    work.finish(10ns);
    work.begin(3, {{10, 1}, {11, 2}, {12, 3}});
  }
};

}  // namespace

TEST_CASE_METHOD(Fixture, "blocks come first, in their order, then own items") {
  work.add({kOther, 7, {{77, 1}, {78, 1}}});
  work.add({kSelf, 5, {{55, 1}}});
  for (const uint64_t label : {77, 78, 55, 10, 11, 12}) {
    CHECK(work.has_claimable());
    CHECK(work.claim()->spec.label == label);
  }
  CHECK_FALSE(work.has_claimable());
  CHECK_FALSE(work.claim());
}

TEST_CASE_METHOD(Fixture,
                 "the remaining time has the running item, blocks, own items") {
  CHECK(work.step_ns(kStart) == 60);
  CHECK(work.remaining_ns(kStart) == 60);
  work.start(*work.claim(), kStart);
  work.add({kOther, 7, {{77, 4}}});
  CHECK(work.committed_ns(kStart + 4ns) == 6 + 40);
  CHECK(work.remaining_ns(kStart + 4ns) == 6 + 40 + 50);
  CHECK(work.unclaimed_cost() == 5);
  CHECK(work.step_ns(kStart) == 60);
}

TEST_CASE_METHOD(Fixture, "an overdue item shows a slower rank") {
  CHECK_FALSE(work.next_look());
  work.start(*work.claim(), kStart);
  CHECK(work.next_look() == kStart + 20ns);
  CHECK(work.ns_per_cost(kStart + 20ns) == 10);
  CHECK(work.committed_ns(kStart + 15ns) == 5);
  CHECK(work.ns_per_cost(kStart + 30ns) == 30);
  work.look(kStart + 30ns);
  CHECK(work.next_look() == kStart + 60ns);
  work.stop();
  CHECK_FALSE(work.next_look());
  CHECK(work.ns_per_cost(kStart + 90ns) == 10);
}

TEST_CASE("a slow first item shows that the other own items take longer, too") {
  OwnWork work(kSelf);
  work.begin(1, std::vector<ItemSpec>(8, ItemSpec{0, 1}));
  while (const auto item = work.claim()) {
    work.start(*item, kStart);
    work.finish(10ns);
  }
  work.begin(2, {{10, 1}, {11, 2}, {12, 3}});
  CHECK_FALSE(work.has_finished());
  work.start(*work.claim(), kStart);
  work.finish(40ns);
  CHECK(work.has_finished());
  CHECK(work.ns_per_cost(kStart + 40ns) == 40);
  CHECK(work.remaining_ns(kStart + 40ns) == 5 * 40);
  work.start(*work.claim(), kStart + 40ns);
  CHECK(work.next_look() == kStart + 40ns + 160ns);
}

TEST_CASE("a rank that has computed nothing knows no time") {
  OwnWork work(kSelf);
  work.begin(1, {{0, 1}});
  work.start(*work.claim(), kStart);
  CHECK(work.ns_per_cost(kStart + 9ns) == 0);
  CHECK(work.remaining_ns(kStart + 9ns) == 0);
  CHECK_FALSE(work.next_look());
}

TEST_CASE_METHOD(Fixture, "the last block of an owner gets shorter, until it is gone") {
  work.add({kOther, 7, {{77, 1}}});
  work.add({kOther, 3, {{73, 1}, {74, 1}}});
  CHECK(work.last_block_of(Rank(2)) == nullptr);
  CHECK(work.last_block_of(kOther)->first == 3);
  work.shorten(work.last_block_of(kOther), 1);
  CHECK(work.last_block_of(kOther)->items.size() == 1);
  work.shorten(work.last_block_of(kOther), 1);
  CHECK(work.last_block_of(kOther)->first == 7);
}

TEST_CASE_METHOD(Fixture, "all that is not finished can be taken out") {
  work.start(*work.claim(), kStart);
  work.add({kOther, 7, {{77, 1}}});
  const auto all = work.take_all();
  REQUIRE(all.size() == 3);
  CHECK(all[0].items[0].label == 10);
  CHECK(all[1].owner == kOther);
  CHECK(all[2].first == 1);
  CHECK(all[2].items.size() == 2);
  CHECK_FALSE(work.has_claimable());
  CHECK_FALSE(work.running());
  CHECK(work.take_all().empty());
}

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "straggler/ownership.h"

#include "harness/catch.h"

namespace aikido::straggler {
namespace {

using Change = Ownership::Change;
using Now = Ownership::Now;
using Seen = Ownership::Seen;

const Rank kOther(1), kLate(3);

RankSet owners_but(int32_t size, Rank missing) {
  RankSet owners = RankSet::full(size);
  owners.erase(missing);
  return owners;
}

// Operations of a second each, so that a trial waits for their number.
Now at(uint64_t seq) {
  return {Seq(seq), TimePoint(std::chrono::seconds(seq))};
}

// Changes that rank 0 of four would make, if `seen` is known of rank 3 and all others
// are healthy.
std::vector<Change> changes(const Ownership& ownership, uint64_t now, const Seen& seen,
                            Rank self = Rank(0)) {
  return ownership.changes(self, RankSet::full(4), at(now), [&](Rank r) {
    return r == kLate ? seen : Seen{0, static_cast<uint32_t>(now), false, true};
  });
}

Seen skipped(uint32_t in_a_row, Suits uplink = Suits::kUnknown) {
  return {in_a_row, 0, false, true, uplink};
}

TEST_CASE("a member skipped four times in a row gives its shards away") {
  const Ownership ownership(4);
  CHECK(changes(ownership, 100, skipped(3)).empty());
  CHECK(changes(ownership, 100, skipped(4)) == std::vector{Change{kLate, false}});
  CHECK(changes(ownership, 100, Seen{0, 50, true, true}) ==
        std::vector{Change{kLate, false}});
}

TEST_CASE(
    "a member that was moved once serves before its trial if its link is not slow") {
  Ownership ownership(4);
  ownership.on_owners(owners_but(4, kLate), at(1000));
  CHECK(ownership.would_serve(kLate, Suits::kUnknown));
  CHECK(ownership.would_serve(kLate, Suits::kYes));
  CHECK_FALSE(ownership.would_serve(kLate, Suits::kNo));
  ownership.advise(kLate, Advice::kLink);
  CHECK_FALSE(ownership.would_serve(kLate, Suits::kYes));
  ownership.advise(kLate, Advice::kNone);
  // The member does not return again after a return in vain.
  ownership.on_owners(RankSet::full(4), at(1001));
  ownership.on_owners(owners_but(4, kLate), at(1002));
  CHECK_FALSE(ownership.would_serve(kLate, Suits::kYes));
}

TEST_CASE("a late member that must stay an owner leaves changes to a member in time") {
  Ownership ownership(4);
  RankSet owners(4);
  owners.insert(Rank(0));
  owners.insert(kOther);
  ownership.on_owners(owners, at(10));
  const auto changed_by = [&](Rank self, bool is_other_late) {
    return ownership.changes(self, RankSet::full(4), at(100), [&](Rank r) {
      const bool is_late = r == Rank(0) || (is_other_late && r == kOther);
      return is_late ? skipped(9) : Seen{0, 90, false, true};
    });
  };
  CHECK(changed_by(Rank(0), false).empty());
  CHECK(changed_by(kOther, false).size() == 2);
  CHECK(changed_by(Rank(0), true).size() == 2);
  CHECK(changed_by(kOther, true).empty());
}

TEST_CASE("shards leave a link that is advised as slow, and stay with a late caller") {
  Ownership ownership(4);
  ownership.advise(kLate, Advice::kLink);
  CHECK(changes(ownership, 100, skipped(0)) == std::vector{Change{kLate, false}});
  CHECK(changes(ownership, 100, skipped(0), kOther).empty());
  ownership.advise(kLate, Advice::kCaller);
  CHECK(changes(ownership, 100, skipped(9)).empty());
  // For full sums, the last caller should own nothing, for any reason of its lateness.
  CHECK(changes(ownership, 100, Seen{0, 50, true, true}) ==
        std::vector{Change{kLate, false}});
  ownership.advise(kLate, Advice::kNone);
  CHECK(changes(ownership, 100, skipped(9)) == std::vector{Change{kLate, false}});
}

TEST_CASE(
    "a member with a link advised as slow has no trial, and a late caller has one at "
    "once") {
  Ownership ownership(4);
  ownership.on_owners(owners_but(4, kLate), at(10));
  ownership.advise(kLate, Advice::kLink);
  CHECK(changes(ownership, 100'000, skipped(9, Suits::kYes)).empty());
  CHECK(changes(ownership, 100'000, Seen{0, 99, false, true}).empty());
  ownership.advise(kLate, Advice::kCaller);
  CHECK(changes(ownership, 11, skipped(9)) == std::vector{Change{kLate, true}});
  CHECK(changes(ownership, 11, Seen{9, 0, false, false}).empty());  // far behind
  CHECK(changes(ownership, 11, Seen{0, 0, true, true}).empty());
}

TEST_CASE("half of the members keep their shards, for any advice") {
  Ownership ownership(4);
  for (int32_t r = 0; r < 4; ++r) ownership.advise(Rank(r), Advice::kLink);
  const auto well = [](Rank) { return Seen{}; };
  const RankSet all = RankSet::full(4);
  CHECK(ownership.changes(Rank(2), all, at(100), well) ==
        std::vector{Change{Rank(0), false}, Change{Rank(1), false}});
  CHECK(ownership.changes(Rank(0), all, at(100), well).empty());
}

TEST_CASE("only the first owner in time changes anything") {
  const Ownership ownership(4);
  CHECK(changes(ownership, 100, skipped(4), kOther).empty());
  const auto two_late = [](Rank r) {
    return r.value == 0 || r == kLate ? skipped(9) : Seen{};
  };
  const RankSet all = RankSet::full(4);
  CHECK(ownership.changes(Rank(0), all, at(100), two_late).empty());
  CHECK(ownership.changes(kOther, all, at(100), two_late) ==
        std::vector{Change{Rank(0), false}, Change{kLate, false}});
}

TEST_CASE("no shard is moved for full sums if that gains nothing") {
  Ownership ownership(3);
  const auto slow = [](Rank r) { return Seen{0, 0, r.value == 2, false}; };
  const RankSet all = RankSet::full(3);
  CHECK(ownership.changes(Rank(0), all, at(9), slow).size() == 1);
  ownership.on_owners(owners_but(3, kOther), at(9));
  CHECK(ownership.changes(Rank(0), all, at(10), slow).empty());
}

TEST_CASE(
    "shards come back to a member that has kept up, or is in time for full sums") {
  struct Row {
    const char* name;
    Seen seen;
    uint64_t after;  // operations; 0: never
  };
  for (const Row& row : {
           Row{"in time for full sums",
               {0, 1000, false, false},
               Ownership::kReturnAfter},
           Row{"in time now and then", {0, 15, false, false}, 0},
           Row{"skipped, and keeps up", skipped(1000), 64},
           Row{"skipped, and behind", {1000, 0, false, false}, 0},
           Row{"slow for full sums", {0, 1000, true, true}, 0},
           Row{"an uplink that is too slow", skipped(1000, Suits::kNo), 128},
           Row{"one that would do", skipped(1000, Suits::kYes), 8},
       }) {
    INFO(row.name);
    Ownership ownership(4);
    CHECK(ownership.on_owners(owners_but(4, kLate), at(50)) ==
          std::vector{Change{kLate, false}});
    uint64_t after = 0;
    for (uint64_t now = 50; now < 50 + 10'000 && after == 0; ++now)
      if (!changes(ownership, now, row.seen).empty()) after = now - 50;
    CHECK(after == row.after);
  }
}

TEST_CASE("a trial also waits for some time, except for a member in time") {
  Ownership ownership(4);
  const auto fast = [](uint64_t seq) {
    return Now{Seq(seq), TimePoint(std::chrono::milliseconds(10 * seq))};
  };
  ownership.on_owners(owners_but(4, kLate), fast(50));
  const auto first = [&](const Seen& seen) {
    for (uint64_t now = 50;; ++now)
      if (!ownership
               .changes(Rank(0), RankSet::full(4), fast(now),
                        [&](Rank r) { return r == kLate ? seen : Seen{}; })
               .empty())
        return now - 50;
  };
  CHECK(first(skipped(1000)) == 200);
  CHECK(first(skipped(1000, Suits::kYes)) == 25);
  CHECK(first(skipped(1000, Suits::kNo)) == 400);
  CHECK(first({0, 1000, false, true}) == Ownership::kReturnAfter);
}

// Number of operations for which the member owned nothing, for each time. As an owner
// it is late at once, or after `as_owner` operations.
std::vector<uint64_t> waits(int times, uint64_t as_owner) {
  Ownership ownership(4);
  std::vector<uint64_t> found;
  uint64_t now = 100;
  for (int i = 0; i < times; ++i) {
    ownership.on_owners(owners_but(4, kLate), at(now));
    const uint64_t begin = now;
    while (changes(ownership, now, skipped(1000)).empty()) ++now;
    found.push_back(now - begin);
    ownership.on_owners(RankSet::full(4), at(now));
    now += as_owner;
  }
  return found;
}

TEST_CASE(
    "each trial that fails doubles the wait, to a limit, and one that lasts ends "
    "that") {
  CHECK(waits(5, 4) == std::vector<uint64_t>{64, 128, 256, 512, 1024});
  CHECK(waits(12, 4).back() == uint64_t{64} << Ownership::kMaxDoublings);
  CHECK(waits(4, 32) == std::vector<uint64_t>{64, 64, 64, 64});
  CHECK(waits(4, 31) == std::vector<uint64_t>{64, 128, 256, 512});
}

}  // namespace
}  // namespace aikido::straggler

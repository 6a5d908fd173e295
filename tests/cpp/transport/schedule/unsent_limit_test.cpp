// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "transport/schedule/unsent_limit.h"

#include "harness/catch.h"

namespace aikido::transport {
namespace {

using std::chrono::microseconds;

// A socket that is always full and accepts `bytes` per millisecond, for `ms`
// milliseconds.
int take(UnsentLimit& limit, size_t bytes, int ms, TimePoint& now) {
  int num_changes = 0;
  limit.on_full(now);
  for (int i = 0; i < ms; ++i) {
    now += microseconds(1000);
    if (limit.on_taken(bytes, false, now)) ++num_changes;
  }
  return num_changes;
}

TEST_CASE("the limit is four milliseconds of the link's rate, within bounds") {
  struct Row {
    size_t bytes_per_ms;
    size_t limit;
  };
  for (const Row& row : {Row{400, UnsentLimit::kLeast}, Row{25'000, 100'000},
                         Row{20'000, 80'000}, Row{200'000, UnsentLimit::kMost}}) {
    UnsentLimit limit;
    TimePoint now;
    CHECK(take(limit, row.bytes_per_ms, 100, now) ==
          (row.limit == UnsentLimit::kLeast ? 0 : 1));
    CHECK(limit.bytes() == row.limit);
  }
}

TEST_CASE("the limit follows a link that becomes slow, and then fast again") {
  UnsentLimit limit;
  TimePoint now;
  take(limit, 25'000, 100, now);
  CHECK(take(limit, 1'250, 21, now) == 1);
  CHECK(limit.bytes() == UnsentLimit::kLeast);
  CHECK(take(limit, 25'000, 10, now) == 1);
  CHECK(limit.bytes() == 100'000);
}

TEST_CASE("small changes, and time without waiting data, do not change the limit") {
  UnsentLimit limit;
  TimePoint now;
  take(limit, 25'000, 100, now);
  CHECK(take(limit, 14'000, 100, now) == 0);
  CHECK(take(limit, 45'000, 100, now) == 0);
  now += std::chrono::seconds(5);
  CHECK(take(limit, 25'000, 100, now) == 0);
  CHECK(limit.bytes() == 100'000);
}

TEST_CASE("data that is accepted at once shows no rate") {
  UnsentLimit limit;
  limit.on_full(TimePoint());
  CHECK_FALSE(limit.on_taken(UnsentLimit::kSampleBytes, false, TimePoint()));
  CHECK(limit.bytes() == UnsentLimit::kLeast);
}

TEST_CASE("a socket that runs dry gets a larger limit, and later one by its rate") {
  UnsentLimit limit;
  TimePoint now;
  limit.on_full(now);
  for (const size_t expected :
       {size_t{64 << 10}, size_t{128 << 10}, UnsentLimit::kMost}) {
    now += std::chrono::milliseconds(20);
    CHECK(limit.on_taken(8 << 10, true, now) == expected);
  }
  now += std::chrono::milliseconds(20);
  CHECK_FALSE(limit.on_taken(8 << 10, true, now));
  now += std::chrono::milliseconds(20);
  CHECK(limit.on_taken(8 << 10, false, now) == UnsentLimit::kLeast);
}

TEST_CASE("one dry moment makes the whole sample a lower bound") {
  UnsentLimit limit;
  TimePoint now;
  limit.on_full(now);
  now += std::chrono::milliseconds(1);
  CHECK_FALSE(limit.on_taken(1 << 10, true, now));
  now += std::chrono::milliseconds(20);
  CHECK(limit.on_taken(1 << 10, false, now) == size_t{64 << 10});
}

}  // namespace
}  // namespace aikido::transport

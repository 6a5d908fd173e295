// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "collectives/skippable/paced_sends.h"

#include <random>

#include "harness/catch.h"

using namespace aikido::collectives;
using Piece = PacedSends::Piece;

TEST_CASE("pieces go to all streams in turn, and then wait for the slowest") {
  PacedSends feed(2, 10);
  feed.begin(0, 100);
  feed.begin(1, 100);
  for (size_t i = 0; i < PacedSends::kLead; ++i) {
    CHECK(feed.next() == Piece{0, 10 * i, 10 * i + 10});
    CHECK(feed.next() == Piece{1, 10 * i, 10 * i + 10});
  }
  CHECK_FALSE(feed.next());
  feed.on_left(0);
  CHECK_FALSE(feed.next());
  feed.on_left(1);
  CHECK(feed.next() == Piece{0, 30, 40});
  CHECK(feed.next() == Piece{1, 30, 40});
  CHECK_FALSE(feed.next());
}

TEST_CASE("the last piece is the rest, and a stream without bytes has one piece") {
  PacedSends feed(3, 10);
  feed.begin(0, 11);
  feed.begin(2, 0);
  CHECK(feed.next() == Piece{0, 0, 10});
  CHECK(feed.next() == Piece{2, 0, 0});
  CHECK(feed.next() == Piece{0, 10, 11});
  CHECK_FALSE(feed.next());
}

TEST_CASE("a stream that has ended delays no other stream, and may begin again") {
  PacedSends feed(2, 1);
  feed.begin(0, 1);
  feed.begin(1, 10);
  CHECK(feed.next() == Piece{0, 0, 1});
  for (size_t i = 0; i < PacedSends::kLead; ++i) CHECK(feed.next());
  CHECK_FALSE(feed.next());
  feed.end(0);
  for (size_t i = 0; i < PacedSends::kLead; ++i) feed.on_left(1);
  CHECK(feed.next() == Piece{1, PacedSends::kLead, PacedSends::kLead + 1});
  feed.begin(0, 2);
  CHECK(feed.next() == Piece{0, 0, 1});
  // Pieces from before the new beginning do not count for pieces after it.
  feed.on_left(0);
  feed.on_left(0);
  CHECK(feed.next() == Piece{0, 1, 2});
}

TEST_CASE(
    "in any order of leaving, every byte is sent once and no stream gets far ahead") {
  for (unsigned seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    const auto below = [&](size_t n) { return random() % n; };
    const auto num = static_cast<int32_t>(1 + below(5));
    const size_t piece = 1 + below(20);
    PacedSends feed(num, piece);
    const auto count = static_cast<size_t>(num);
    std::vector<size_t> bytes(count), sent(count), pieces(count), left(count);
    for (int32_t s = 0; s < num; ++s) {
      bytes[static_cast<size_t>(s)] = 1 + below(300);
      feed.begin(s, bytes[static_cast<size_t>(s)]);
    }
    while (true) {
      while (const auto next = feed.next()) {
        const auto s = static_cast<size_t>(next->stream);
        REQUIRE(next->begin == sent[s]);
        REQUIRE(next->end > next->begin);
        sent[s] = next->end;
        ++pieces[s];
        for (size_t other = 0; other < count; ++other)
          if (sent[other] < bytes[other] || left[other] < pieces[other])
            REQUIRE(pieces[s] <= left[other] + PacedSends::kLead);
      }
      std::vector<int32_t> under_way;
      for (size_t s = 0; s < count; ++s)
        if (left[s] < pieces[s]) under_way.push_back(static_cast<int32_t>(s));
      if (under_way.empty()) break;
      const int32_t s = under_way[below(under_way.size())];
      ++left[static_cast<size_t>(s)];
      feed.on_left(s);
    }
    REQUIRE(sent == bytes);
  }
}

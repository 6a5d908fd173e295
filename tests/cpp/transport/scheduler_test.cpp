// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "transport/scheduler.h"

#include <random>
#include <vector>

#include "base/check.h"
#include "harness/catch.h"

using namespace aikido;
using transport::Chunk;
using transport::Scheduler;

TEST_CASE("a message goes in chunks, the last one is marked") {
  Scheduler s(100);
  s.push(1, 0, 250);
  CHECK(s.queued_bytes() == 250);
  const auto a = s.pop(), b = s.pop(), c = s.pop();
  CHECK((a->offset == 0 && a->bytes == 100 && !a->is_last));
  CHECK((b->offset == 100 && b->bytes == 100 && !b->is_last));
  CHECK((c->offset == 200 && c->bytes == 50 && c->is_last));
  CHECK(s.is_empty());
  CHECK_FALSE(s.pop().has_value());
}

TEST_CASE("a message may ask for smaller chunks, not for larger ones") {
  Scheduler s(100);
  s.push(1, 0, 100, 40);
  s.push(2, 0, 150, 400);
  s.push(3, 0, 150, 0);
  std::vector<size_t> sizes;
  while (const auto chunk = s.pop()) sizes.push_back(chunk->bytes);
  CHECK(sizes == std::vector<size_t>{40, 40, 20, 100, 50, 100, 50});
}

TEST_CASE("no bytes are still one chunk") {
  Scheduler s(100);
  s.push(1, 0, 0);
  const auto a = s.pop();
  REQUIRE(a.has_value());
  CHECK((a->bytes == 0 && a->is_last));
  CHECK(s.is_empty());
}

TEST_CASE("an urgent message goes between two chunks, and the other one goes on") {
  Scheduler s(100);
  s.push(1, 0, 200);
  CHECK(s.pop()->message == 1);
  s.push(2, 5, 150);
  CHECK(s.pop()->message == 2);
  CHECK(s.pop()->message == 2);
  const auto rest = s.pop();
  CHECK((rest->message == 1 && rest->offset == 100 && rest->is_last));
}

TEST_CASE("equally urgent messages go in the order of arrival") {
  Scheduler s(100);
  for (transport::MessageId id = 1; id <= 3; ++id) s.push(id, 7, 150);
  std::vector<transport::MessageId> order;
  while (const auto chunk = s.pop()) order.push_back(chunk->message);
  CHECK(order == std::vector<transport::MessageId>{1, 1, 2, 2, 3, 3});
}

TEST_CASE("cancelling forgets the rest and says how much it was") {
  Scheduler s(100);
  s.push(1, 0, 250);
  s.push(2, 0, 10);
  s.pop();
  CHECK(s.cancel(1, 0) == 150);
  CHECK(s.queued_bytes() == 10);
  CHECK_FALSE(s.cancel(1, 0).has_value());
  CHECK(s.pop()->message == 2);
  CHECK_FALSE(s.cancel(2, 0).has_value());
  CHECK_FALSE(s.cancel(77, 0).has_value());
}

TEST_CASE("a message cannot be queued twice") {
  Scheduler s(100);
  s.push(1, 0, 250);
  CHECK_THROWS_AS(s.push(1, 0, 250), InternalError);
}

TEST_CASE("whatever is pushed and cancelled, each byte goes once and in order") {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    std::mt19937_64 random(seed);
    Scheduler s(1 + random() % 50);
    struct Message {
      Priority priority;
      size_t bytes, sent = 0;
      bool is_over = false;
    };
    std::vector<Message> messages;
    size_t queued = 0;
    for (int step = 0; step < 300; ++step) {
      const auto what = random() % 4;
      if (what == 0) {
        messages.push_back({static_cast<Priority>(random() % 3), random() % 200});
        s.push(messages.size(), messages.back().priority, messages.back().bytes);
        queued += messages.back().bytes;
      } else if (what == 1 && !messages.empty() && random() % 4 == 0) {
        const size_t i = random() % messages.size();
        Message& m = messages[i];
        const auto dropped = s.cancel(i + 1, m.priority);
        REQUIRE(dropped.has_value() == !m.is_over);
        if (dropped) {
          REQUIRE(*dropped == m.bytes - m.sent);
          queued -= *dropped;
          m.is_over = true;
        }
      } else if (const auto chunk = s.pop()) {
        Message& m = messages[chunk->message - 1];
        REQUIRE_FALSE(m.is_over);
        REQUIRE(chunk->offset == m.sent);
        m.sent += chunk->bytes;
        queued -= chunk->bytes;
        m.is_over = chunk->is_last;
        REQUIRE(chunk->is_last == (m.sent == m.bytes));
        for (size_t i = 0; i < messages.size(); ++i) {
          if (messages[i].is_over || i + 1 == chunk->message) continue;
          REQUIRE(messages[i].priority <= m.priority);
          if (messages[i].priority == m.priority) REQUIRE(i + 1 > chunk->message);
        }
      }
      REQUIRE(s.queued_bytes() == queued);
    }
  }
}

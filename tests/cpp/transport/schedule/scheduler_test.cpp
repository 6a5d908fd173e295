// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "transport/schedule/scheduler.h"

#include <limits>
#include <map>
#include <optional>
#include <random>
#include <vector>

#include "base/check.h"
#include "harness/catch.h"

using namespace aikido;
using std::chrono::milliseconds;
using transport::Chunk;
using transport::goes_before;
using transport::kLastPriority;
using transport::NextChunk;
using transport::SendCounters;

namespace {

constexpr Duration kMostPassed = transport::Scheduler::kMostPassed;

// A scheduler and its clock, which stands still unless the test moves it.
struct Scheduler {
  explicit Scheduler(size_t chunk_bytes) : s(chunk_bytes, &counters) {}
  void push(transport::MessageId id, Priority priority, size_t bytes, size_t most = 0,
            uint64_t turn = 0) {
    s.push({id, turn, priority, bytes, most}, now);
  }
  std::optional<Chunk> pop(size_t most = std::numeric_limits<size_t>::max()) {
    return s.pop(now, most);
  }
  std::optional<size_t> cancel(transport::MessageId id, Priority priority) {
    return s.cancel({id, 0, priority, 0, 0});
  }
  bool is_empty() const { return s.is_empty(); }
  size_t queued_bytes() const { return s.queued_bytes(); }

  TimePoint now{};
  SendCounters counters;
  transport::Scheduler s;
};

}  // namespace

TEST_CASE("a message goes in chunks, and the last chunk is marked") {
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

TEST_CASE("a message may ask for smaller chunks, but not for larger ones") {
  Scheduler s(100);
  s.push(1, 0, 100, 40);
  s.push(2, 0, 150, 400);
  s.push(3, 0, 150, 0);
  std::vector<size_t> sizes;
  while (const auto chunk = s.pop()) sizes.push_back(chunk->bytes);
  CHECK(sizes == std::vector<size_t>{40, 40, 20, 100, 50, 100, 50});
}

TEST_CASE("a message without bytes is one chunk") {
  Scheduler s(100);
  s.push(1, 0, 0);
  const auto a = s.pop();
  REQUIRE(a.has_value());
  CHECK((a->bytes == 0 && a->is_last));
  CHECK(s.is_empty());
}

TEST_CASE(
    "an urgent message goes between two chunks of another message, which then goes "
    "on") {
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

TEST_CASE(
    "among equally urgent messages an earlier turn goes first, from the next chunk "
    "on") {
  Scheduler s(100);
  s.push(1, 0, 100, 0, 4);
  s.push(2, 0, 300, 0, 5);
  s.push(3, 0, 100, 0, 6);
  CHECK(s.pop()->message == 1);
  CHECK(s.pop()->message == 2);
  s.push(4, 0, 150, 0, 4);  // the result of the first message
  s.push(5, 0, 100, 0, 5);
  s.push(6, 1, 100, 0, 9);  // more urgent than all of them
  CHECK(s.pop()->message == 6);
  const auto result = s.pop();
  CHECK(result->message == 4);
  s.s.put_back(*result, {4, 4, 0, 150, 0}, s.now);
  CHECK(s.s.cancel({3, 6, 0, 100, 0}) == 100);
  std::vector<transport::MessageId> order;
  while (const auto chunk = s.pop()) order.push_back(chunk->message);
  CHECK(order == std::vector<transport::MessageId>{4, 4, 2, 2, 5});
  CHECK(s.counters.preemptions == 1);
}

TEST_CASE("a message of no collective stays behind earlier messages") {
  Scheduler s(100);
  CHECK(s.s.turn_of(0) == 0);
  CHECK(s.s.turn_of(7) == 7);
  CHECK(s.s.turn_of(3) == 3);
  CHECK(s.s.turn_of(0) == 7);
}

TEST_CASE("cancelling drops the rest of a message and returns its size") {
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

TEST_CASE(
    "a message with a new priority gets the place of this priority, and keeps its "
    "offset") {
  Scheduler s(100);
  s.push(1, 3, 150);
  s.push(2, 4, 100);
  s.push(3, 3, 200);
  s.push(4, 4, 100);
  CHECK(s.pop()->message == 2);
  CHECK(s.pop()->message == 4);
  CHECK(s.pop()->message == 1);
  s.push(5, 4, 100);
  s.s.move({3, 0, 3, 0, 0}, 4, s.now);
  s.s.move({1, 0, 3, 0, 0}, 4, s.now);
  s.s.move({9, 0, 3, 0, 0}, 4, s.now);  // unknown
  CHECK(s.s.num_classes() == 1);
  CHECK(s.queued_bytes() == 350);
  const auto rest = s.pop();
  CHECK((rest->message == 1 && rest->offset == 100 && rest->is_last));
  CHECK(s.pop()->message == 3);
  CHECK(s.pop()->message == 3);
  CHECK(s.pop()->message == 5);
  CHECK(s.is_empty());
}

TEST_CASE("a message cannot be queued twice") {
  Scheduler s(100);
  s.push(1, 0, 250);
  CHECK_THROWS_AS(s.push(1, 0, 250), InternalError);
}

TEST_CASE("each byte is sent once and in order, for any pushes and cancels") {
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

TEST_CASE("a chunk that is cut shorter ends between two elements of any size") {
  Scheduler s(1000);
  s.push(1, 0, 500);
  CHECK(s.pop(200)->bytes == 192);
  CHECK(s.pop(1)->bytes == 64);
  CHECK(s.pop(2000)->bytes == 244);
  CHECK(s.is_empty());
}

TEST_CASE("a returned chunk is the next of its message, even the last chunk") {
  Scheduler s(100);
  s.push(1, 0, 250);
  s.push(2, 0, 50);
  std::vector<Chunk> popped;
  while (const auto chunk = s.pop()) popped.push_back(*chunk);
  REQUIRE(popped.size() == 4);
  s.push(3, 5, 10);
  for (size_t i = popped.size(); i-- > 1;) {
    const bool is_second = popped[i].message == 2;
    s.s.put_back(popped[i], {popped[i].message, 0, 0, is_second ? 50u : 250u, 0},
                 s.now);
  }
  CHECK(s.queued_bytes() == 210);
  CHECK(s.pop()->message == 3);
  for (size_t i = 1; i < popped.size(); ++i) {
    const auto again = s.pop();
    REQUIRE(again.has_value());
    CHECK((again->message == popped[i].message && again->offset == popped[i].offset &&
           again->bytes == popped[i].bytes && again->is_last == popped[i].is_last));
  }
  CHECK(s.is_empty());
  CHECK(s.counters.chunks == 5);
  CHECK(s.counters.preemptions == 1);
}

TEST_CASE("a chunk can only be returned behind the sent part of its message") {
  Scheduler s(100);
  s.push(1, 0, 250);
  const auto first = s.pop();
  s.pop();
  CHECK_THROWS_AS(s.s.put_back(*first, {1, 0, 0, 250, 0}, s.now), InternalError);
}

TEST_CASE("a class that was passed for too long gets one chunk, and waits again") {
  Scheduler s(100);
  s.push(1, 0, 10'000);
  s.push(2, 9, 1'000'000);
  CHECK(s.pop()->message == 2);
  s.now += kMostPassed - Duration(1);
  CHECK_FALSE(s.s.next(s.now)->is_overdue);
  CHECK(s.pop()->message == 2);
  s.now += Duration(1);
  CHECK(s.s.next(s.now)->is_overdue);
  CHECK(s.s.next(s.now)->priority == 0);
  CHECK(s.pop()->message == 1);
  CHECK(s.pop()->message == 2);
  s.now += kMostPassed;
  CHECK(s.pop()->message == 1);
  CHECK(s.pop()->message == 2);
  CHECK(s.counters.overdue_chunks == 2);
}

TEST_CASE("the class that was passed for the longest time is overdue first") {
  Scheduler s(100);
  s.push(1, 5, 1000);
  s.now += milliseconds(1);
  s.push(2, 1, 1000);
  s.now += milliseconds(1);
  s.push(3, 3, 1000);
  s.now += milliseconds(1);
  s.push(4, 9, 1000);
  s.now += kMostPassed;
  std::vector<transport::MessageId> order;
  for (int i = 0; i < 5; ++i) order.push_back(s.pop()->message);
  CHECK(order == std::vector<transport::MessageId>{1, 2, 3, 4, 4});
}

TEST_CASE("the end of the stream is never overdue") {
  Scheduler s(100);
  s.push(1, 0, 1000);
  s.push(2, kLastPriority, 0);
  for (int i = 0; i < 10; ++i) {
    s.now += 2 * kMostPassed;
    CHECK(s.pop()->message == 1);
  }
  CHECK(s.pop()->message == 2);
}

TEST_CASE("no data goes ahead of control frames, even if it has waited for long") {
  Scheduler s(100);
  s.push(1, 0, 200);
  s.now += 2 * kMostPassed;
  CHECK(s.pop()->message == 1);  // its second half is overdue again
  s.now += 2 * kMostPassed;
  s.push(2, 5, 100);
  s.push(3, transport::kControlPriority, 300);
  s.now += 2 * kMostPassed;
  CHECK_FALSE(s.s.next(s.now)->is_overdue);
  for (const transport::MessageId id : {3, 3, 3, 1, 2}) CHECK(s.pop()->message == id);
}

TEST_CASE("an overdue chunk goes first, and then the more urgent chunk") {
  const TimePoint early{}, late = early + milliseconds(5);
  const NextChunk low{0, false, early}, high{9, false, late};
  const NextChunk overdue{0, true, late}, longer{-3, true, early};
  CHECK((goes_before(high, low) && !goes_before(low, high)));
  CHECK((goes_before(overdue, high) && !goes_before(high, overdue)));
  CHECK((goes_before(longer, overdue) && !goes_before(overdue, longer)));
  CHECK_FALSE(goes_before(low, low));
}

TEST_CASE("each class has its chunk within the bound, for any number of classes") {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    std::mt19937_64 random(seed);
    Scheduler s(64);
    const auto num_classes = static_cast<Priority>(2 + random() % 8);
    transport::MessageId id = 0;
    std::map<transport::MessageId, Priority> class_of;
    for (Priority p = 0; p < num_classes; ++p) {
      class_of[++id] = p;
      s.push(id, p, 1 << 20);
    }
    struct Waiting {
      TimePoint since{};
      int chunks_after = 0;  // of other messages that started after it was overdue
    };
    std::vector<Waiting> waiting(static_cast<size_t>(num_classes));
    for (int step = 0; step < 2000; ++step) {
      s.now += std::chrono::microseconds(random() % 20'000);
      const auto got = class_of.at(s.pop()->message);
      for (Priority p = 0; p < num_classes; ++p) {
        Waiting& w = waiting[static_cast<size_t>(p)];
        if (p == got) {
          w = {s.now, 0};
        } else if (s.now - w.since >= kMostPassed && p != num_classes - 1) {
          REQUIRE(++w.chunks_after < num_classes);
        }
      }
    }
  }
}

TEST_CASE("waiting, sending and pauses add up to the time of a message") {
  Scheduler s(100);
  s.push(1, 0, 300);
  s.now += milliseconds(2);  // queued
  s.pop();
  s.now += milliseconds(3);  // sent
  s.push(2, 5, 100);
  s.pop();
  s.now += milliseconds(4);  // paused
  s.pop();
  s.now += milliseconds(5);  // sent
  s.pop();
  CHECK(s.counters.preemptions == 1);
  CHECK(s.counters.chunks == 4);
  CHECK(s.counters.queued_ns == 2'000'000);
  CHECK(s.counters.paused_ns == 4'000'000);
  CHECK(s.counters.wire_ns == 8'000'000);
}

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "transport/schedule/uplink.h"

#include <algorithm>
#include <memory>
#include <random>
#include <vector>

#include "harness/catch.h"

using namespace aikido;
using namespace aikido::transport;

namespace {

constexpr size_t kCredit = 64 << 10;
constexpr size_t kChunk = kCredit / InflightLimit::kUrgent.num_chunks;

struct Start {
  int link;
  Priority priority;
  size_t bytes;
};

// Links without sockets. Their bytes are acknowledged when the test says so.
struct Net {
  struct Link final : Uplink::Sender {
    Link(Net* of, int at) : net(of), number(at) {}
    Scheduler& scheduler() override { return queue; }
    bool has_begun() const override { return false; }
    bool is_blocked() const override { return blocked; }
    size_t outstanding() const override {
      ++num_looks;
      return out;
    }
    size_t segment_bytes() const override { return 1448; }
    size_t write_chunk(size_t most) override {
      if (room == 0) blocked = true;
      if (blocked) return 0;
      const auto next = *queue.next(net->loop.now());
      if (!next.is_overdue) net->check_none_is_higher(next.priority);
      const auto chunk = *queue.pop(net->loop.now(), most);
      net->starts.push_back({number, next.priority, chunk.bytes});
      room -= std::min(room, chunk.bytes);
      out += chunk.bytes;
      return chunk.bytes;
    }
    size_t write_many() override {
      ++num_many;
      size_t all = 0;
      while (!queue.is_empty() && !blocked) all += write_chunk(1 << 20);
      return all;
    }

    Net* net;
    int number;
    Scheduler queue{256 << 10};
    bool blocked = false;
    size_t out = 0;
    size_t room = 1 << 30;
    int num_many = 0;
    mutable int num_looks = 0;
  };

  explicit Net(int num_links, size_t credit = kCredit) : uplink(&loop, credit) {
    for (int i = 0; i < num_links; ++i) {
      links.push_back(std::make_unique<Link>(this, i));
      uplink.add(links.back().get());
    }
  }
  void push(int link, Priority priority, size_t bytes) {
    Link& l = *links[static_cast<size_t>(link)];
    uplink.note(priority);
    l.queue.push({++last_id, 0, priority, bytes, 0}, loop.now());
    uplink.ask();
  }
  // A more urgent message that could start now is an inversion.
  void check_none_is_higher(Priority priority) {
    for (const auto& l : links) {
      if (l->blocked || l->queue.is_empty()) continue;
      if (l->queue.highest() > priority) ++num_inversions;
    }
  }
  void run_a_turn() {
    loop.post([this] { loop.stop(); });
    loop.run();
  }
  void run_until(const std::function<bool()>& is_done) {
    for (int turns = 0; !is_done() && turns < 1'000'000; ++turns) run_a_turn();
    REQUIRE(is_done());
  }
  void acknowledge() {
    for (const auto& l : links) l->out = 0;
  }
  size_t written() const {
    size_t all = 0;
    for (const Start& s : starts) all += s.bytes;
    return all;
  }

  EventLoop loop;
  Uplink uplink;
  std::vector<std::unique_ptr<Link>> links;
  std::vector<Start> starts;
  MessageId last_id = 0;
  int num_inversions = 0;
};

}  // namespace

TEST_CASE("links ask for turns once calls differ in priority") {
  Net net(1);
  net.uplink.note(3);
  net.uplink.note(3);
  CHECK_FALSE(net.uplink.is_ordered());
  net.uplink.note(4);
  CHECK(net.uplink.is_ordered());
}

TEST_CASE("links ask for turns once messages may be cancelled") {
  Net net(1);
  net.uplink.note(3, false);
  CHECK_FALSE(net.uplink.is_ordered());
  net.uplink.note(3, true);
  CHECK(net.uplink.is_ordered());
}

TEST_CASE("links ask for turns while calls are expected to differ") {
  Net net(1);
  net.uplink.keep_order();
  net.uplink.keep_order();
  CHECK(net.uplink.is_ordered());
  net.uplink.end_order();
  CHECK(net.uplink.is_ordered());
  net.uplink.end_order();
  CHECK_FALSE(net.uplink.is_ordered());
}

TEST_CASE("the most urgent of all links goes first, and equal links take turns",
          "[tcp]") {
  Net net(3);
  net.push(0, 0, 2 * kChunk);
  net.push(1, 0, 2 * kChunk);
  net.push(2, 5, kChunk / 2);
  net.run_a_turn();
  std::vector<int> order;
  for (const Start& s : net.starts) order.push_back(s.link);
  CHECK(order == std::vector<int>{2, 0, 1, 0, 1});
}

TEST_CASE("at most the limit is sent until bytes are acknowledged", "[tcp]") {
  Net net(2);
  net.push(0, 0, 10 * kChunk);
  net.push(1, 1, 2 * kChunk);
  for (int i = 0; i < 20; ++i) net.run_a_turn();
  CHECK(net.written() <= kCredit + kChunk / 2);
  CHECK(net.written() > kCredit - kChunk);
  CHECK(net.uplink.counters().credit_bytes == kCredit);
  net.acknowledge();
  net.run_until([&] { return net.written() > kCredit; });  // by its own timer
  CHECK(net.starts[0].priority == 1);
  CHECK(net.starts[1].priority == 1);
}

TEST_CASE("a link whose peer reads nothing delays no other link", "[tcp]") {
  Net net(2);
  net.links[1]->blocked = true;
  net.push(0, 0, kChunk);
  net.push(1, 5, kChunk);
  net.run_a_turn();
  REQUIRE(net.starts.size() == 1);
  CHECK(net.starts[0].link == 0);
  net.links[1]->blocked = false;
  net.uplink.ask();
  net.run_a_turn();
  CHECK(net.starts.back().link == 1);
}

TEST_CASE("without acknowledgements the checks become rare", "[tcp]") {
  Net net(2);
  net.push(0, 0, 10 * kChunk);
  net.push(1, 1, 1);
  net.run_a_turn();
  const size_t written = net.written();
  const SystemClock clock;
  for (const TimePoint end = clock.now() + std::chrono::milliseconds(100);
       clock.now() < end;)
    net.run_a_turn();
  const int before = net.links[0]->num_looks;
  for (const TimePoint end = clock.now() + std::chrono::milliseconds(100);
       clock.now() < end;)
    net.run_a_turn();
  CHECK(net.links[0]->num_looks - before <= 12);
  CHECK(net.links[0]->num_looks - before >= 1);
  CHECK(net.written() == written);
}

TEST_CASE("a removed link is not asked any more", "[tcp]") {
  Net net(2);
  net.push(0, 0, 3 * kChunk);
  net.push(1, 5, 3 * kChunk);
  net.uplink.remove(net.links[1].get());
  net.uplink.remove(net.links[1].get());
  net.run_a_turn();
  CHECK(net.starts.size() == 3);
  CHECK(net.starts.back().link == 0);
}

TEST_CASE("on a fast uplink equal messages go many at a time", "[tcp]") {
  Net net(2, 0);
  net.push(0, 0, 1);
  net.push(1, 1, 1);
  net.run_a_turn();
  // All bytes are acknowledged at once.
  for (int i = 0; i < 1000 && net.links[0]->num_many == 0; ++i) {
    net.acknowledge();
    net.push(0, 0, 8 << 20);
    net.push(1, 0, 8 << 20);
    net.run_until([&] {
      net.acknowledge();
      return net.links[0]->queue.is_empty() && net.links[1]->queue.is_empty();
    });
  }
  CHECK(net.links[0]->num_many > 0);
  CHECK(net.uplink.counters().credit_bytes == 0);
}

TEST_CASE("no message starts while a more urgent message could", "[tcp]") {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    std::mt19937_64 random(seed);
    Net net(4);
    size_t pushed = 0;
    const auto act = [&] {
      for (const auto& l : net.links) {
        l->out -= std::min<size_t>(l->out, random() % kCredit);
        if (random() % 4 == 0) l->room = random() % kCredit;
        if (random() % 2 == 0) {
          l->room = 1 << 30;
          if (std::exchange(l->blocked, false)) net.uplink.ask();
        }
      }
    };
    for (int step = 0; step < 200; ++step) {
      const size_t bytes = random() % (3 * kChunk);
      net.push(static_cast<int>(random() % 4), static_cast<Priority>(random() % 5),
               bytes);
      pushed += bytes;
      act();
      net.run_a_turn();
    }
    net.run_until([&] {
      act();
      return net.written() == pushed &&
             std::all_of(net.links.begin(), net.links.end(),
                         [](const auto& l) { return l->queue.is_empty(); });
    });
    REQUIRE(net.num_inversions == 0);
    REQUIRE(net.uplink.counters().inversions == 0);
  }
}

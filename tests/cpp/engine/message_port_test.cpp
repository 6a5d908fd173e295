// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "engine/message_port.h"

#include <string>

#include "harness/catch.h"
#include "harness/cluster.h"
#include "harness/spy_link.h"

using namespace aikido;
using namespace aikido::testing;
using engine::MessagePort;

namespace {

constexpr int32_t kTag = 77;

// Events of one port, as texts.
struct Log final : engine::MessagePortHandler {
  void on_message(Rank from, std::span<const std::byte> bytes) override {
    messages.emplace_back(
        from, std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
    if (on_each) on_each();
  }
  void on_peer_lost(Rank rank) override { lost.push_back(rank); }
  void on_end(const Status& why) override {
    ++num_ends;
    end = why;
  }

  std::vector<std::pair<Rank, std::string>> messages;
  std::vector<Rank> lost;
  int num_ends = 0;
  Status end;
  std::function<void()> on_each;
};

// A cluster with one port on each rank, and all other ranks as its peers.
struct Ports {
  explicit Ports(const ClusterOptions& options) : cluster(options) {
    for (int32_t r = 0; r < cluster.size(); ++r) add(r, kTag);
  }
  void add(int32_t rank, int32_t tag) {
    MessagePort::Place place{Rank(rank), tag, {}};
    for (int32_t r = 0; r < cluster.size(); ++r)
      if (r != rank) place.peers.emplace_back(r);
    logs.push_back(std::make_shared<Log>());
    ports.push_back(std::make_shared<MessagePort>(&cluster.group(rank), &cluster.clock,
                                                  place, logs.back()));
  }
  void open() {
    for (const auto& port : ports) port->open();
  }
  void send(size_t from, int32_t to, const std::string& text) {
    ports[from]->send(Rank(to), std::as_bytes(std::span(text)));
  }
  void send_news(size_t from, int32_t to, const std::string& text) {
    ports[from]->send_news(Rank(to), std::as_bytes(std::span(text)));
  }
  // The ports have no timer of their own.
  void run_for(Duration d) {
    const TimePoint until = cluster.clock.now() + d;
    while (cluster.clock.now() < until) {
      cluster.run_for(milliseconds(5));
      for (const auto& port : ports)
        if (const auto look = port->next_look(); look && *look <= cluster.clock.now())
          port->on_time(cluster.clock.now());
    }
  }

  Cluster cluster;
  std::vector<std::shared_ptr<Log>> logs;
  std::vector<std::shared_ptr<MessagePort>> ports;
};

std::vector<std::pair<Rank, std::string>> texts(int32_t from, int first, int count) {
  std::vector<std::pair<Rank, std::string>> all;
  for (int i = first; i < first + count; ++i)
    all.emplace_back(Rank(from), "message " + std::to_string(i));
  return all;
}

}  // namespace

TEST_CASE("messages of any length arrive in the order of sending") {
  Ports two({.size = 2, .eager_bytes = 1024});
  two.open();
  std::vector<std::pair<Rank, std::string>> sent;
  for (const size_t length :
       {size_t{1}, size_t{40}, size_t{509}, MessagePort::kMostBytes})
    sent.emplace_back(Rank(0), std::string(length, 'x'));
  for (const auto& [from, text] : sent) two.send(0, 1, text);
  two.send(1, 0, "back");
  two.cluster.run_idle();
  CHECK(two.logs[1]->messages == sent);
  CHECK(two.logs[0]->messages ==
        std::vector<std::pair<Rank, std::string>>{{Rank(1), "back"}});
}

TEST_CASE("messages that wait for the port arrive in order, however many") {
  Ports two({.size = 2, .eager_bytes = GENERATE(size_t{64}, size_t{1024})});
  two.ports[0]->open();
  constexpr int kCount = 20'000;
  for (int i = 0; i < kCount; ++i) two.send(0, 1, "message " + std::to_string(i));
  two.cluster.run_idle();
  CHECK(two.logs[1]->messages.empty());
  two.ports[1]->open();
  two.cluster.run_idle();
  CHECK(two.logs[1]->messages == texts(0, 0, kCount));
}

TEST_CASE("a port makes no member wake up for other data") {
  Ports two({.size = 2, .eager_bytes = 1024});
  two.open();
  const auto policy = [&] {
    return two.cluster.group(0).handler()->wake_policy(Rank(1));
  };
  CHECK(policy() == transport::WakePolicy::kNews);
  two.send(1, 0, "message");
  two.cluster.run_idle();
  CHECK(two.logs[0]->messages.size() == 1);
  CHECK(policy() == transport::WakePolicy::kNews);
  two.cluster.receive(0, 1, kTag + 1, 8);
  CHECK(policy() == transport::WakePolicy::kNow);
}

TEST_CASE("a message of a port wakes its receiver") {
  ManualClock clock;
  engine::GroupOptions options;
  options.self = Rank(1);
  options.size = 2;
  engine::Group group(&clock, options);
  auto spy = std::make_unique<SpyLink>();
  const SpyLink* const link = spy.get();
  group.attach(Rank(0), std::move(spy));
  const auto port = std::make_shared<MessagePort>(
      &group, &clock, MessagePort::Place{Rank(1), kTag, {Rank(0)}},
      std::make_shared<Log>());
  port->open();
  port->send(Rank(0), std::as_bytes(std::span("question")));
  REQUIRE(link->sent.size() == 1);
  CHECK(link->sent[0].urgency == transport::Urgency::kServed);
}

TEST_CASE("a handler answers within its call") {
  Ports two({.size = 2, .eager_bytes = 1024});
  two.open();
  two.logs[1]->on_each = [&] { two.send(1, 0, "answer"); };
  for (int i = 0; i < 3; ++i) two.send(0, 1, "question");
  two.cluster.run_idle();
  CHECK(two.logs[0]->messages.size() == 3);
}

TEST_CASE("a lost peer is reported once, and the others go on") {
  Ports three({.size = 3, .eager_bytes = 1024});
  three.open();
  three.send(2, 0, "last");
  three.cluster.run_idle();
  three.cluster.kill(2);
  three.cluster.run_idle();
  three.send(0, 2, "too late");
  three.send(0, 1, "go on");
  three.cluster.run_idle();
  for (const size_t r : {size_t{0}, size_t{1}}) {
    CHECK(three.logs[r]->lost == std::vector{Rank(2)});
    CHECK(three.logs[r]->num_ends == 0);
  }
  CHECK(three.logs[0]->messages.size() == 1);
  CHECK(three.logs[1]->messages.size() == 1);
}

TEST_CASE("a peer that has left its group is lost, and its last messages arrive") {
  Ports three({.size = 3, .eager_bytes = 1024});
  three.open();
  three.send(2, 0, "last");
  three.cluster.group(2).leave();
  three.cluster.run_idle();
  CHECK(three.logs[2]->num_ends == 0);
  three.cluster.group(2).close_links();
  three.cluster.run_idle();
  CHECK(three.logs[2]->num_ends == 1);
  CHECK(three.logs[0]->messages.size() == 1);
  CHECK(three.logs[0]->lost == std::vector{Rank(2)});
  CHECK(three.logs[1]->lost == std::vector{Rank(2)});
}

TEST_CASE("a closed port is lost to its peers, and leaves no message behind") {
  Ports two({.size = 2, .eager_bytes = 1024});
  two.open();
  // In transit while the other port closes.
  two.cluster.set_all_delays(milliseconds(5));
  for (int i = 0; i < 3; ++i) two.send(1, 0, "message " + std::to_string(i));
  two.ports[0]->close();
  two.cluster.run_idle();
  CHECK(two.logs[0]->messages.empty());
  CHECK(two.logs[1]->lost == std::vector{Rank(0)});
  two.send(1, 0, "too late");
  two.ports[1]->close();
  two.cluster.run_idle();
  CHECK(two.logs[0]->lost.empty());
  for (const int32_t r : {0, 1}) CHECK_FALSE(two.cluster.group(r).is_busy());
  // The closed port has taken all messages: a receive finds none.
  const auto rest = two.cluster.receive(0, 1, kTag, MessagePort::kSlotBytes);
  two.cluster.run_for(milliseconds(100));
  CHECK_FALSE(rest->is_done());

  two.add(0, kTag + 1);
  two.add(1, kTag + 1);
  two.ports[2]->open();
  two.ports[3]->open();
  two.send(2, 1, "next port");
  two.cluster.run_idle();
  CHECK(two.logs[3]->messages.size() == 1);
  CHECK(two.logs[1]->num_ends == 0);
}

TEST_CASE("messages to and from a silent peer arrive when it is heard again") {
  ClusterOptions options = with_heartbeats(2);
  options.eager_bytes = 1024;
  Ports two(options);
  two.open();
  two.cluster.stop(1, milliseconds(400));
  two.run_for(milliseconds(200));
  REQUIRE(two.cluster.group(0).peers().heartbeats().is_silent(Rank(1)));
  for (int i = 0; i < 5; ++i) {
    two.send(0, 1, "message " + std::to_string(i));
    two.run_for(milliseconds(20));
  }
  two.run_for(milliseconds(600));
  two.send(0, 1, "message 5");
  two.send(1, 0, "message 0");
  two.run_for(milliseconds(50));
  CHECK(two.logs[1]->messages == texts(0, 0, 6));
  CHECK(two.logs[0]->messages == texts(1, 0, 1));
  for (const auto& log : two.logs) CHECK(log->lost.empty());
  for (const auto& port : two.ports) CHECK_FALSE(port->next_look());
}

TEST_CASE("a silent peer with a message on its way is given up, and learns of it") {
  ClusterOptions options = with_heartbeats(2);
  options.eager_bytes = 64;  // a message is announced, and its data waits for an answer
  Ports two(options);
  two.open();
  two.cluster.stop(1, milliseconds(400));
  two.send(0, 1, "may be lost");
  two.run_for(milliseconds(200));
  CHECK(two.logs[0]->lost == std::vector{Rank(1)});
  two.send(0, 1, "too late");
  two.run_for(milliseconds(600));
  CHECK(two.logs[1]->lost == std::vector{Rank(0)});
  CHECK(two.logs[1]->messages.empty());
  CHECK(two.logs[0]->num_ends + two.logs[1]->num_ends == 0);
}

TEST_CASE("a silent peer is given up after many messages") {
  ClusterOptions options = with_heartbeats(2);
  options.eager_bytes = 1024;
  Ports two(options);
  two.open();
  two.cluster.stop(1, milliseconds(400));
  two.run_for(milliseconds(200));
  for (size_t i = 0; i < MessagePort::kMostHeld; ++i) two.send(0, 1, "message");
  CHECK(two.logs[0]->lost.empty());
  two.send(0, 1, "one more");
  CHECK(two.logs[0]->lost == std::vector{Rank(1)});
}

TEST_CASE("a silent peer gets the last news, however many there were") {
  ClusterOptions options = with_heartbeats(2);
  options.eager_bytes = 1024;
  Ports two(options);
  two.open();
  two.cluster.stop(1, milliseconds(400));
  two.run_for(milliseconds(200));
  two.send(0, 1, "first");
  for (size_t i = 0; i < 2 * MessagePort::kMostHeld; ++i) {
    two.send_news(0, 1, "news " + std::to_string(i));
    if (i == 10) two.send(0, 1, "second");
  }
  CHECK(two.logs[0]->lost.empty());
  two.run_for(milliseconds(600));
  const std::string last = "news " + std::to_string(2 * MessagePort::kMostHeld - 1);
  CHECK(two.logs[1]->messages ==
        std::vector<std::pair<Rank, std::string>>{
            {Rank(0), "first"}, {Rank(0), "second"}, {Rank(0), last}});
  two.send_news(0, 1, "a");
  two.send_news(0, 1, "b");
  two.run_for(milliseconds(100));
  CHECK(two.logs[1]->messages.size() == 5);  // nothing is left out if it is heard
}

TEST_CASE("a port learns of the end of its group in every state of its peers") {
  const std::string state = GENERATE("all there", "lost", "silent", "closed there");
  INFO(state);
  Ports two(with_heartbeats(2));
  two.open();
  two.run_for(milliseconds(20));
  if (state == "lost") two.cluster.kill(1);
  if (state == "silent") two.cluster.stop(1, milliseconds(1000));
  if (state == "closed there") two.ports[1]->close();
  two.run_for(milliseconds(200));
  CHECK(two.logs[0]->num_ends == 0);
  SECTION("by abort") {
    two.cluster.group(0).abort({Code::kAborted, "given up in a test"});
    CHECK(two.logs[0]->end.message().find("given up in a test") != std::string::npos);
  }
  SECTION("by its own end") {
    two.cluster.group(0).leave();
    two.cluster.group(0).close_links();
    CHECK(two.logs[0]->end.message().find("shut down") != std::string::npos);
  }
  CHECK(two.logs[0]->num_ends == 1);
  CHECK(two.logs[0].use_count() == 1);
  two.send(0, 1, "too late");
}

TEST_CASE("a closed port frees its handler, and its group ends without it") {
  Ports two({.size = 2});
  two.open();
  two.ports[0]->close();
  CHECK(two.logs[0].use_count() == 1);
  two.cluster.run_idle();
  two.cluster.group(0).abort({Code::kAborted, "given up in a test"});
  two.cluster.run_idle();
  CHECK(two.logs[0]->num_ends == 0);
  CHECK(two.logs[1]->num_ends == 1);
}

TEST_CASE("a port of an ended group ends at once") {
  Ports two({.size = 2});
  two.cluster.group(0).abort({Code::kAborted, "given up in a test"});
  two.ports[0]->open();
  CHECK(two.logs[0]->num_ends == 1);
}

TEST_CASE("a slot with an impossible length ends the port") {
  Ports two({.size = 2, .eager_bytes = 1024});
  two.ports[0]->open();
  Bytes slot(MessagePort::kSlotBytes, 0xff);
  two.cluster.send(1, 0, kTag, slot);
  two.cluster.run_idle();
  CHECK(two.logs[0]->end.code() == Code::kProtocol);
  CHECK(two.logs[0]->end.culprit() == Rank(1));
}

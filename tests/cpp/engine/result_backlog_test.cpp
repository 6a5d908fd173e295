// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "engine/result_backlog.h"

#include "harness/catch.h"

using namespace aikido;
using engine::ResultBacklog;
using std::chrono::milliseconds;
using Ids = std::vector<transport::MessageId>;

namespace {

struct Sender {
  ResultBacklog backlog;
  TimePoint now{};

  // Returns true if the result is sent now.
  bool send(uint64_t seq, bool is_drained) {
    if (backlog.goes_unasked(seq) || backlog.admit(seq, is_drained, now)) return true;
    backlog.hold(seq, seq);
    return false;
  }
  // Sends a result every 100 ms to a link that is never done with the last one.
  void make_slow() {
    for (uint64_t seq = 1; seq <= 11; ++seq, now += milliseconds(100))
      REQUIRE(send(seq, false));
  }
};

}  // namespace

TEST_CASE("a link that is done with its results gets more results ahead of calls") {
  Sender sender;
  for (uint64_t seq = 1; seq <= 100; ++seq) {
    CHECK(sender.send(seq, seq % 9 == 0));  // every 900 ms
    sender.now += milliseconds(100);
  }
  CHECK_FALSE(sender.backlog.is_holding());
  CHECK_FALSE(sender.backlog.ask());
}

TEST_CASE("a link that is never done gets the result of the next call only") {
  Sender sender;
  sender.make_slow();  // measured from the second on
  CHECK_FALSE(sender.send(12, false));
  CHECK_FALSE(sender.send(13, true));  // drained, but slow until it has all
  CHECK(sender.backlog.is_holding());
  CHECK(sender.backlog.ask() == 1);
  CHECK_FALSE(sender.backlog.ask());
  CHECK(sender.backlog.on_called(5) == Ids{});
  CHECK(sender.backlog.ask() == 6);
  CHECK(sender.backlog.on_called(11) == Ids{12});
  CHECK_FALSE(sender.send(14, true));
  CHECK(sender.backlog.on_called(11) == Ids{});
  CHECK(sender.backlog.on_called(13) == Ids{13, 14});
  // It has caught up, and gets all results for one second again.
  for (uint64_t seq = 15; seq <= 24; ++seq, sender.now += milliseconds(100))
    CHECK(sender.send(seq, false));
  CHECK_FALSE(sender.send(25, false));
}

TEST_CASE(
    "a copied state releases held results, and pieces of one result stay in order") {
  Sender sender;
  sender.make_slow();
  sender.backlog.hold(20, 201);
  sender.backlog.hold(20, 202);
  sender.backlog.hold(21, 211);
  sender.backlog.hold(21, 212);
  sender.backlog.hold(22, 221);
  sender.backlog.forget(202);
  sender.backlog.forget(999);
  CHECK(sender.backlog.on_called(20) == Ids{201, 211, 212});
  CHECK(sender.backlog.clear() == Ids{221});
  CHECK_FALSE(sender.backlog.is_holding());
}

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "collectives/strict/point_to_point.h"

#include <algorithm>
#include <ctime>
#include <random>

#include "harness/catch.h"
#include "harness/cluster.h"
#include "harness/idle_host.h"

using namespace aikido;
using namespace aikido::testing;

namespace {

Bytes text(size_t bytes, unsigned char fill) {
  return Bytes(bytes, fill);
}

void check_done(Cluster& cluster, const std::vector<AnswerPtr>& answers) {
  REQUIRE(cluster.run_until_done(answers, milliseconds(9000)));
  for (const auto& a : answers) {
    INFO(a->status.message());
    REQUIRE(a->is_ok());
  }
  cluster.run_idle();
  for (const auto& a : answers) {
    REQUIRE(a->times == 1);
    REQUIRE(a->memory_is_untouched());
  }
}

}  // namespace

TEST_CASE(
    "a send that leaves at once is done at once, and a waiting one keeps its number") {
  using transport::FrameKind;
  IdleHost host(2);
  collectives::Mailbox mailbox(&host);
  const auto data = text(100, 1);
  int num_over = 0;
  const auto send = [&](size_t bytes) {
    collectives::SendCall call;
    call.to = Rank(1);
    call.tag = 5;
    call.data = reinterpret_cast<const std::byte*>(data.data());
    call.bytes = bytes;
    call.on_done = [&](const Status& status, Rank peer) {
      CHECK((status.is_ok() && peer == Rank(1)));
      ++num_over;
    };
    mailbox.send(std::move(call));
  };
  host.takes_at_once = true;
  send(100);
  CHECK(num_over == 1);
  CHECK_FALSE(mailbox.is_busy());
  REQUIRE(host.gone.size() == 1);
  const transport::OutMessage& first = host.gone[0];
  CHECK((first.header.kind == FrameKind::kP2pData && first.header.tag == 5 &&
         first.header.seq == 1 && first.header.total_bytes == 100 &&
         first.bytes == 100 && first.owner == nullptr));
  // A send that the link has to queue is done later. A send that has to wait for its
  // receive is only announced.
  host.takes_at_once = false;
  send(60);
  host.takes_at_once = true;
  send(host.settings().eager_bytes + 1);
  CHECK(num_over == 1);
  CHECK(host.gone.size() == 1);
  REQUIRE(host.queued.size() == 2);
  CHECK((host.queued[0].header.kind == FrameKind::kP2pData &&
         host.queued[0].header.seq == 2));
  CHECK((host.queued[1].header.kind == FrameKind::kP2pAnnounce &&
         host.queued[1].header.seq == 3));
  host.queued[0].owner->on_sent(0);
  CHECK(num_over == 2);
  // Sends that leave at once count for the window, too.
  const uint64_t window = host.settings().window_bytes;
  const size_t most = host.settings().eager_bytes;
  for (uint64_t i = 0; i < window / most; ++i) send(most);
  CHECK(host.gone.size() < 1 + window / most);
  CHECK(host.queued.back().header.kind == FrameKind::kP2pAnnounce);
}

TEST_CASE("messages of one tag are matched in the order of sending") {
  Cluster cluster({.size = 2});
  std::vector<AnswerPtr> all;
  // Messages up to 64 bytes are eager. Small and large messages take turns, with any
  // priority.
  const std::vector<size_t> sizes = {10, 5000, 0, 64, 65, 1, 3000, 0};
  for (size_t i = 0; i < sizes.size(); ++i)
    all.push_back(cluster.send(0, 1, 7, text(sizes[i], static_cast<unsigned char>(i)),
                               static_cast<Priority>(i * 5 % 7)));
  cluster.run_for(milliseconds(10));
  for (const size_t bytes : sizes) all.push_back(cluster.receive(1, 0, 7, bytes));
  check_done(cluster, all);
  for (size_t i = 0; i < sizes.size(); ++i)
    CHECK(all[sizes.size() + i]->output ==
          text(sizes[i], static_cast<unsigned char>(i)));
}

TEST_CASE("an urgent message does not wait for less urgent messages before it") {
  Cluster cluster({.size = 2});
  cluster.set_all_rates(20'000);
  std::vector<AnswerPtr> all;
  const auto send = [&](int32_t tag, size_t bytes, Priority priority) {
    all.push_back(cluster.receive(1, 0, tag, bytes));
    all.push_back(cluster.send(0, 1, tag, text(bytes, 1), priority));
    return all[all.size() - 2];
  };
  send(1, 10, 5);
  check_done(cluster, all);
  all.clear();
  // Small messages, which are sent without a request, take 13 ms each or more.
  for (int i = 0; i < 20; ++i) send(0, 64, 0);
  const auto urgent = send(1, 10, 5);
  REQUIRE(cluster.run_until_done({urgent}, milliseconds(9000)));
  const auto num_done =
      std::count_if(all.begin(), all.end(), [](const auto& a) { return a->is_done(); });
  CHECK(num_done < 30);  // of 42 sends and receives
  check_done(cluster, all);
}

TEST_CASE("messages with four tags can be received in another order than sent") {
  for (const size_t bytes : {8u, 1000u}) {
    Cluster cluster({.size = 2});
    std::vector<AnswerPtr> all;
    for (unsigned char tag = 0; tag < 4; ++tag)
      all.push_back(cluster.send(0, 1, tag, text(bytes, tag)));
    for (const int32_t tag : {2, 0, 3, 1}) {
      all.push_back(cluster.receive(1, 0, tag, bytes));
      REQUIRE(cluster.run_until_done({all.back()}, milliseconds(10)));
      CHECK(all.back()->output == text(bytes, static_cast<unsigned char>(tag)));
    }
    check_done(cluster, all);
  }
}

TEST_CASE("small messages without a receive wait at their sender beyond the window") {
  Cluster cluster({.size = 2, .window_bytes = 3200});  // each message counts 256 more
  const auto num_through = [&](const std::vector<AnswerPtr>& answers) {
    cluster.run_for(milliseconds(1));
    return std::count_if(answers.begin(), answers.end(),
                         [](const auto& a) { return a->is_done(); });
  };
  std::vector<AnswerPtr> sends, receives;
  for (unsigned char i = 0; i < 50; ++i)
    sends.push_back(cluster.send(0, 1, i % 3, text(64, i)));
  CHECK(num_through(sends) == 10);
  // The other direction has a window of its own.
  CHECK(num_through({cluster.send(1, 0, 0, text(64, 0))}) == 1);
  for (int32_t i = 0; i < 50; ++i) receives.push_back(cluster.receive(1, 0, i % 3, 64));
  check_done(cluster, sends);
  check_done(cluster, receives);
  for (unsigned char i = 0; i < 50; ++i) CHECK(receives[i]->output == text(64, i));
  // All messages were received, and the sender knows of most of them.
  sends.clear();
  for (unsigned char i = 0; i < 50; ++i)
    sends.push_back(cluster.send(0, 1, 0, text(64, i)));
  CHECK(num_through(sends) >= 8);
  CHECK(num_through(sends) <= 10);
}

TEST_CASE("messages that were given up make room in the window") {
  Cluster cluster({.size = 2, .chunk_bytes = 16, .window_bytes = 700});
  for (int i = 0; i < 20; ++i) {
    cluster.network.set_rate(Rank(0), Rank(1), 1000);
    const auto given_up = cluster.send(0, 1, 0, text(60, 1), 0, milliseconds(100));
    cluster.run_for(milliseconds(2000));
    REQUIRE(given_up->status.code() == Code::kTimedOut);
    CHECK(cluster.receive(1, 0, 0, 60)->is_done());
  }
  cluster.network.set_rate(Rank(0), Rank(1), 0);
  const auto sent = cluster.send(0, 1, 0, text(60, 1));
  cluster.run_for(milliseconds(1));
  CHECK(sent->is_ok());  // without a receive
}

TEST_CASE("a receive from any source takes a waiting message, and names its sender") {
  Cluster cluster({.size = 3});
  auto first = cluster.receive(0, std::nullopt, 1, 4);
  auto second = cluster.receive(0, std::nullopt, 1, 400);
  cluster.send(2, 0, 1, text(4, 2));
  cluster.run_idle();
  REQUIRE(first->is_ok());
  CHECK(first->peer == Rank(2));
  cluster.send(1, 0, 1, text(400, 1));
  cluster.run_idle();
  REQUIRE(second->is_ok());
  CHECK(second->peer == Rank(1));
  CHECK(second->output == text(400, 1));
}

TEST_CASE("a member can send to itself, before or after it receives") {
  Cluster cluster({.size = 2});
  std::vector<AnswerPtr> all;
  for (const size_t bytes : {0u, 3u, 3000u}) {
    all.push_back(cluster.send(1, 1, 0, text(bytes, 1)));
    all.push_back(cluster.receive(1, 1, 0, bytes));
    all.push_back(cluster.receive(1, std::nullopt, 0, bytes));
    all.push_back(cluster.send(1, 1, 0, text(bytes, 2)));
  }
  check_done(cluster, all);
  for (size_t i = 0; i < all.size(); i += 4) {
    CHECK(all[i + 1]->output == text(all[i + 1]->output.size(), 1));
    CHECK(all[i + 2]->output == text(all[i + 2]->output.size(), 2));
  }
}

TEST_CASE("a message to itself that was given up is not read any more") {
  Cluster cluster({.size = 2});
  const auto sent = cluster.send(1, 1, 0, text(100, 1), 0, milliseconds(5));
  cluster.run_for(milliseconds(10));
  REQUIRE(sent->status.code() == Code::kTimedOut);
  const auto late = cluster.receive(1, 1, 0, 100);
  const auto next = cluster.receive(1, 1, 0, 100);
  REQUIRE(late->is_done());
  CHECK(late->status.code() == Code::kTimedOut);
  CHECK(late->status.message() ==
        "recv from rank 1, tag 0 on rank 1: rank 1 has given the message up, because "
        "its time was over");
  check_done(cluster, {cluster.send(1, 1, 0, text(100, 2)), next});
  CHECK(next->output == text(100, 2));
  CHECK(late->output != text(100, 1));
}

TEST_CASE("a receive of another size gets an error, and the next receive is in order") {
  for (const size_t bytes : {16u, 1000u}) {
    for (const bool is_local : {false, true}) {
      Cluster cluster({.size = 2});
      const int32_t from = is_local ? 1 : 0;
      std::vector<AnswerPtr> sent = {cluster.send(from, 1, 3, text(bytes, 1)),
                                     cluster.send(from, 1, 3, text(bytes, 2))};
      const auto wrong = cluster.receive(1, from, 3, 12);
      const auto right = cluster.receive(1, from, 3, bytes);
      check_done(cluster, {sent[0], sent[1], right});
      CHECK(right->output == text(bytes, 2));
      REQUIRE(wrong->is_done());
      CHECK(wrong->status.code() == Code::kInvalidArgument);
      CHECK(wrong->status.message() ==
            concat("recv(src=", from,
                   ", tag=3) on rank 1 has room for 12 bytes, but "
                   "rank ",
                   from, " sends ", bytes, "; use the same shape and dtype on both"));
    }
  }
}

TEST_CASE(
    "a message that is not received, or not sent, times out with the other's name") {
  Cluster cluster({.size = 2});
  const auto large = cluster.send(0, 1, 5, text(1000, 1), 0, milliseconds(300));
  const auto receive = cluster.receive(1, 0, 6, 8, milliseconds(200));
  const auto anyone = cluster.receive(1, std::nullopt, 6, 8, milliseconds(200));
  cluster.run_for(milliseconds(250));
  for (const auto& a : {receive, anyone}) {
    REQUIRE(a->is_done());
    CHECK(a->status.code() == Code::kTimedOut);
  }
  CHECK(receive->status.message() ==
        "recv from rank 0, tag 6 on rank 1: Timed out before a message for it was read "
        "here; 1 with another tag, such as 5, waited here");
  CHECK_FALSE(large->is_done());
  cluster.run_for(milliseconds(60));
  REQUIRE(large->is_done());
  CHECK(large->status.culprit() == Rank(1));
}

TEST_CASE(
    "a message that its sender gives up ends its receive, whether posted before or "
    "later") {
  for (const size_t bytes : {size_t{60}, size_t{1000}}) {  // eager; on request
    for (const bool is_posted : {true, false}) {
      Cluster cluster({.size = 2, .chunk_bytes = 16});
      cluster.network.set_rate(Rank(0), Rank(1), 100);
      AnswerPtr receive;
      if (is_posted) receive = cluster.receive(1, 0, 0, bytes);
      const auto send = cluster.send(0, 1, 0, text(bytes, 1), 0, milliseconds(1000));
      cluster.run_for(milliseconds(5000));
      CHECK(send->status.code() == Code::kTimedOut);
      if (!is_posted) receive = cluster.receive(1, 0, 0, bytes);
      INFO(bytes << " bytes, posted " << is_posted);
      REQUIRE(receive->is_done());
      CHECK(receive->status.code() == Code::kTimedOut);
      CHECK(receive->status.culprit() == Rank(0));
      CHECK(receive->status.message() ==
            "recv from rank 0, tag 0 on rank 1: rank 0 has given the message up, "
            "because its time was over");
      cluster.run_idle();
      CHECK(receive->times == 1);
      if (is_posted) CHECK(receive->memory_is_untouched());
      // The next message is not disturbed.
      const auto again = cluster.receive(1, 0, 0, 10);
      const auto more = cluster.send(0, 1, 0, text(10, 2));
      check_done(cluster, {again, more});
      CHECK(again->output == text(10, 2));
    }
  }
}

TEST_CASE("the memory of a receive that timed out half way is not touched again") {
  Cluster cluster({.size = 2});
  cluster.network.set_rate(Rank(0), Rank(1), 10'000);
  const auto receive = cluster.receive(1, 0, 0, 1000, milliseconds(50));
  const auto send = cluster.send(0, 1, 0, text(1000, 1));
  cluster.run_for(milliseconds(50));
  REQUIRE(receive->is_done());
  CHECK(receive->status.code() == Code::kTimedOut);
  // The next message of the tag is not disturbed.
  const auto again = cluster.receive(1, 0, 0, 10);
  const auto more = cluster.send(0, 1, 0, text(10, 2));
  check_done(cluster, {send, again, more});
  CHECK(receive->memory_is_untouched());
  CHECK(again->output == text(10, 2));
}

TEST_CASE("the memory of a receive is not touched after the group was aborted") {
  for (const size_t bytes : {size_t{60}, size_t{1000}}) {  // eager; on request
    // Without a receive, an early message is on its way into a buffer of the group.
    for (const bool is_posted : {true, false}) {
      Cluster cluster({.size = 2});
      cluster.network.set_rate(Rank(0), Rank(1), 10'000);
      const auto send = cluster.send(0, 1, 0, text(bytes, 1));
      AnswerPtr receive;
      if (is_posted) receive = cluster.receive(1, 0, 0, bytes);
      cluster.run_for(milliseconds(10));
      cluster.group(1).abort(Status(Code::kAborted, "given up"));
      if (is_posted) {
        REQUIRE(receive->is_done());
        CHECK(receive->status.code() == Code::kAborted);
      }
      cluster.run_idle();
      if (is_posted) CHECK(receive->memory_is_untouched());
    }
  }
}

TEST_CASE("a lost peer ends the calls that depend on it, and no other calls") {
  Cluster cluster({.size = 3});
  const auto a = cluster.receive(0, 2, 0, 8);
  const auto b = cluster.receive(0, std::nullopt, 0, 8);
  const auto c = cluster.send(0, 2, 0, text(1000, 1));
  const auto d = cluster.receive(0, 1, 0, 8);
  cluster.run_for(milliseconds(1));
  cluster.kill(2);
  cluster.run_for(milliseconds(1));
  for (const auto& lost :
       {a, b, c, cluster.receive(0, 2, 0, 8), cluster.receive(0, std::nullopt, 9, 8),
        cluster.send(0, 2, 0, text(4, 1))}) {
    REQUIRE(lost->times == 1);
    CHECK(lost->status.code() == Code::kPeerLost);
    CHECK(lost->status.culprit() == Rank(2));
    CHECK(lost->status.message().find("rank 2 is lost") != std::string::npos);
  }
  CHECK_FALSE(d->is_done());
  cluster.send(1, 0, 0, text(8, 1));
  cluster.run_idle();
  CHECK(d->is_ok());
}

TEST_CASE("messages that a member sent before it left can still be received") {
  Cluster cluster({.size = 3});
  const auto anyone = cluster.receive(0, std::nullopt, 5, 4);
  cluster.send(1, 0, 3, text(20, 1));
  cluster.send(1, 0, 4, text(0, 1));
  cluster.run_idle();
  cluster.group(1).leave();
  cluster.run_idle();
  cluster.group(1).close_links();
  cluster.run_idle();
  const auto second = cluster.receive(0, 1, 4, 0);
  const auto first = cluster.receive(0, 1, 3, 20);
  CHECK(first->is_ok());
  CHECK(second->is_ok());
  const auto third = cluster.receive(0, 1, 3, 20);
  REQUIRE(third->is_done());
  CHECK(third->status.code() == Code::kPeerLost);
  // Other members may still send a message to this receive.
  CHECK_FALSE(anyone->is_done());
  cluster.send(2, 0, 5, text(4, 9));
  cluster.run_idle();
  CHECK(anyone->is_ok());
}

TEST_CASE(
    "a message goes to the receive that was posted first, with or without a source") {
  for (const size_t bytes : {8u, 1000u}) {
    Cluster cluster({.size = 3});
    std::vector<AnswerPtr> all;
    for (const auto from : {std::optional<int32_t>(2),
                            {},
                            std::optional<int32_t>(1),
                            {},
                            std::optional<int32_t>(2)})
      all.push_back(cluster.receive(0, from, 4, bytes));
    for (unsigned char fill = 1; fill < 4; ++fill) {
      all.push_back(cluster.send(2, 0, 4, text(bytes, fill)));
      cluster.run_idle();
    }
    for (const int32_t from : {1, 2}) {
      const auto fill = static_cast<unsigned char>(from == 1 ? 4 : 5);
      all.push_back(cluster.send(from, 0, 4, text(bytes, fill)));
      cluster.run_idle();
    }
    // The second receive from any source was posted behind the receive from rank 1 and
    // before the second receive from rank 2.
    check_done(cluster, all);
    const unsigned char fills[] = {1, 2, 4, 3, 5};
    for (size_t i = 0; i < 5; ++i) CHECK(all[i]->output == text(bytes, fills[i]));
    CHECK(all[3]->peer == Rank(2));
  }
}

TEST_CASE("a receive from any source takes the message that came first") {
  for (const size_t bytes : {8u, 1000u}) {
    Cluster cluster({.size = 4});
    std::vector<AnswerPtr> all;
    for (const int32_t from : {3, 1, 3, 2, 1}) {
      all.push_back(cluster.send(from, 0, 4, text(bytes, 1)));
      cluster.run_idle();
    }
    all.push_back(cluster.receive(0, 1, 4, bytes));
    for (const int32_t from : {3, 3, 2, 1}) {
      all.push_back(cluster.receive(0, std::nullopt, 4, bytes));
      CHECK((all.back()->peer == Rank(from) || bytes == 1000));
      cluster.run_idle();
      CHECK(all.back()->peer == Rank(from));
    }
    check_done(cluster, all);
  }
}

TEST_CASE("the cost of a message hardly depends on the number of waiting messages") {
  const auto seconds_for = [](size_t count, bool is_posted_first, bool is_reversed) {
    Cluster cluster({.size = 2, .window_bytes = uint64_t{1} << 30});
    std::vector<AnswerPtr> all;
    all.reserve(2 * count);
    const auto tag = [&](size_t i) {
      return is_reversed ? static_cast<int32_t>(count - i) : 0;
    };
    const auto send_all = [&] {
      for (size_t i = 0; i < count; ++i)
        all.push_back(cluster.send(0, 1, static_cast<int32_t>(is_reversed ? i + 1 : 0),
                                   text(i % 2 == 0 ? 8 : 100, 1)));
      cluster.run_idle();
    };
    const auto receive_all = [&] {
      for (size_t i = 0; i < count; ++i) {
        const size_t n = is_reversed ? count - 1 - i : i;
        all.push_back(cluster.receive(1, 0, tag(i), n % 2 == 0 ? 8 : 100));
      }
      cluster.run_idle();
    };
    const std::clock_t start = std::clock();  // CPU time of this process
    if (is_posted_first) receive_all();
    send_all();
    if (!is_posted_first) receive_all();
    const std::clock_t took = std::clock() - start;
    REQUIRE(
        std::all_of(all.begin(), all.end(), [](const auto& a) { return a->is_ok(); }));
    return static_cast<double>(took) / CLOCKS_PER_SEC;
  };
  for (const bool is_posted_first : {false, true}) {
    for (const bool is_reversed : {false, true}) {
      // Both counts exceed the caches. The minimum of several runs counts, because the
      // machine does other work, too.
      double few = 1e9, many = 1e9;
      for (int i = 0; i == 0 || (i < 8 && many >= 8 * few); ++i) {
        few = std::min(few, seconds_for(40'000, is_posted_first, is_reversed));
        many = std::min(many, seconds_for(160'000, is_posted_first, is_reversed));
      }
      INFO("40,000 messages take " << few << " s, 160,000 take " << many << " s");
      CHECK(many < 8 * few);
    }
  }
}

TEST_CASE("random messages are matched in the order in which they were sent") {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    std::mt19937_64 random(seed);
    Cluster cluster({.size = 3});
    cluster.set_all_rates(1'000'000);
    struct Message {
      int32_t from, to, tag;
      size_t bytes;
      unsigned char fill;
    };
    std::vector<Message> messages;
    for (int i = 0; i < 30; ++i)
      messages.push_back({static_cast<int32_t>(random() % 3),
                          static_cast<int32_t>(random() % 3),
                          static_cast<int32_t>(random() % 2), random() % 200,
                          static_cast<unsigned char>(i)});
    std::vector<AnswerPtr> sends, receives;
    size_t num_sent = 0, num_received = 0;
    // Sends and receives each have their own pace.
    while (num_sent < messages.size() || num_received < messages.size()) {
      if (num_sent < messages.size() && random() % 2 == 0) {
        const Message& m = messages[num_sent++];
        sends.push_back(cluster.send(m.from, m.to, m.tag, text(m.bytes, m.fill),
                                     static_cast<Priority>(random() % 3)));
      } else if (num_received < messages.size()) {
        const Message& m = messages[num_received++];
        receives.push_back(cluster.receive(m.to, m.from, m.tag, m.bytes));
      }
      if (random() % 3 == 0)
        cluster.run_for(std::chrono::microseconds(random() % 2000));
    }
    INFO("seed " << seed);
    check_done(cluster, sends);
    check_done(cluster, receives);
    for (size_t i = 0; i < messages.size(); ++i)
      REQUIRE(receives[i]->output == text(messages[i].bytes, messages[i].fill));
  }
}

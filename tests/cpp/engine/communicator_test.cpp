// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "engine/communicator.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <future>
#include <numeric>
#include <thread>

#include "harness/catch.h"
#include "harness/members.h"
#include "transport/address.h"
#include "transport/schedule/uplink.h"

using namespace aikido;
using namespace aikido::testing;
using engine::Communicator;
using engine::Engine;
using std::chrono::milliseconds;
using std::chrono::seconds;

TEST_CASE("four members connect and reduce a megabyte", "[tcp]") {
  auto members = connect_all(4);
  constexpr size_t kCount = 256 << 10;
  std::vector<std::vector<float>> data(4, std::vector<float>(kCount));
  for (int repeat = 0; repeat < 3; ++repeat) {
    std::vector<std::future<End>> ends;
    for (size_t r = 0; r < 4; ++r) {
      std::iota(data[r].begin(), data[r].end(), static_cast<float>(r));
      ends.push_back(allreduce(*members[r].communicator, data[r]));
    }
    for (auto& end : ends) REQUIRE(end.get().status.is_ok());
    bool is_right = true;
    for (size_t i = 0; i < kCount; ++i)
      is_right = is_right && data[0][i] == 4 * static_cast<float>(i) + 6;
    CHECK(is_right);
    for (size_t r = 1; r < 4; ++r) CHECK(data[r] == data[0]);
  }
  CHECK(members[0].communicator->num_calls() == 3);
  for (auto& m : members) m.communicator->shutdown(seconds(5));
}

TEST_CASE("an own call is not counted as ahead, even before the engine takes it up",
          "[tcp]") {
  auto members = connect_all(3);
  straggler::PolicyOptions skip;
  skip.kind = straggler::Kind::kSkip;
  skip.ceiling = skip.floor = milliseconds(20);
  std::vector<std::vector<float>> data(3, std::vector<float>(64, 1.0f));
  std::vector<std::future<End>> ends;
  for (size_t r = 0; r < 2; ++r)
    ends.push_back(allreduce(*members[r].communicator, data[r], kHangs, skip));
  for (auto& end : ends) REQUIRE(end.get().status.is_ok());
  Communicator& late = *members[2].communicator;
  const auto until = std::chrono::steady_clock::now() + kHangs;
  while (late.committed_ahead() == 0 && std::chrono::steady_clock::now() < until)
    std::this_thread::sleep_for(milliseconds(1));
  REQUIRE(late.committed_ahead() == 1);
  CHECK(late.called_ahead() == 1);
  CHECK(members[0].communicator->called_ahead() == 0);

  std::promise<void> go_on, stands;
  late.engine().post([&stands, stopped = go_on.get_future().share()] {
    stands.set_value();
    stopped.wait();
  });
  stands.get_future().wait();  // otherwise the call would run the turn
  auto last = allreduce(late, data[2], kHangs, skip);
  CHECK(late.committed_ahead() == 0);
  CHECK(late.called_ahead() == 0);
  go_on.set_value();
  REQUIRE(last.get().status.is_ok());
  CHECK(late.committed_ahead() == 0);
  CHECK(data[2] == data[0]);
  for (auto& m : members) m.communicator->shutdown(seconds(5));
}

TEST_CASE("large and small messages pass each other between members", "[tcp]") {
  auto members = connect_all(2);
  std::vector<std::byte> large(3 << 20, std::byte{7}), small(8, std::byte{1});
  std::vector<std::byte> got_large(large.size()), got_small(small.size());
  std::vector<std::shared_ptr<std::promise<Status>>> ends;
  const auto ending = [&] {
    auto p = ends.emplace_back(std::make_shared<std::promise<Status>>());
    return [p](const Status& s, Rank) { p->set_value(s); };
  };
  const TimePoint deadline = SystemClock().now() + kHangs;
  for (auto [from, to, out, in] :
       {std::tuple{0, 1, &large, &got_large}, {1, 0, &small, &got_small}}) {
    collectives::SendCall send;
    send.to = Rank(to);
    send.data = out->data();
    send.bytes = out->size();
    send.deadline = deadline;
    send.on_done = ending();
    members[static_cast<size_t>(from)].communicator->send(std::move(send));
    collectives::ReceiveCall receive;
    receive.from = Rank(from);
    receive.data = in->data();
    receive.bytes = in->size();
    receive.deadline = deadline;
    receive.on_done = ending();
    members[static_cast<size_t>(to)].communicator->receive(std::move(receive));
  }
  for (auto& end : ends) CHECK(end->get_future().get().is_ok());
  CHECK(got_large == large);
  CHECK(got_small == small);
}

TEST_CASE("both sides get an error with both values if their settings differ",
          "[tcp]") {
  MemoryStore store;
  const auto first_engine = start_engine(), second_engine = start_engine();
  auto first = std::async(std::launch::async, [&] {
    return connect(first_engine, store, 0, 2, kHangs, "a=1;b=2;c=3").status();
  });
  auto second = std::async(std::launch::async, [&] {
    return connect(second_engine, store, 1, 2, kHangs, "a=1;b=5;c=3").status();
  });
  for (auto* side : {&first, &second}) {
    const Status status = side->get();
    INFO(status.message());
    CHECK(status.code() == Code::kInvalidArgument);
    CHECK(status.message().find("rank 0 has b=2 and rank 1 has b=5") !=
          std::string::npos);
  }
}

TEST_CASE("a member that gives up leaves no other member waiting", "[tcp]") {
  MemoryStore store;
  std::vector<std::future<Status>> sides;
  for (const int32_t r : {0, 1, 2})
    sides.push_back(
        std::async(std::launch::async, [&store, r, engine = start_engine()] {
          const std::string agreed = r == 2 ? "a=1" : "a=2";
          return connect(engine, store, r, 3, seconds(200), agreed).status();
        }));
  for (size_t r = 0; r < 3; ++r) {
    REQUIRE(sides[r].wait_for(kHangs) == std::future_status::ready);
    const Status status = sides[r].get();
    INFO(status.message());
    const bool has_both =
        status.message().find("a=2 and rank 2 has a=1") != status.message().npos;
    // Rank 1 gets this error from rank 0, or finds rank 0 gone.
    CHECK((has_both || (r == 1 && status.code() == Code::kRetryLater)));
  }
}

TEST_CASE("a member that arrives after its group was given up gets the reason",
          "[tcp]") {
  MemoryStore store;
  const auto first = start_engine();
  CHECK(connect(first, store, 0, 2, milliseconds(100)).status().code() ==
        Code::kTimedOut);
  const Status late = connect(start_engine(), store, 1, 2, kHangs).status();
  INFO(late.message());
  CHECK(late.code() == Code::kInvalidArgument);
  CHECK(late.message().find(
            "rank 0 has given group \"tcp\" up: group \"tcp\": Timed out "
            "on rank 0 while waiting for rank 1 to connect") != std::string::npos);
}

TEST_CASE("a member that never arrives is named when the time is over", "[tcp]") {
  MemoryStore store;
  std::vector<std::future<Status>> sides;
  for (const int32_t r : {0, 1, 3})
    sides.push_back(
        std::async(std::launch::async, [&store, r, engine = start_engine()] {
          return connect(engine, store, r, 4, milliseconds(400)).status();
        }));
  for (auto& side : sides) {
    const Status status = side.get();
    INFO(status.message());
    CHECK(status.code() == Code::kTimedOut);
    CHECK(status.culprit() == Rank(2));
    CHECK(status.message().find("rank 2") != std::string::npos);
  }
}

TEST_CASE("links are ordered while a group exists that has asked for it", "[tcp]") {
  const auto engine = start_engine();
  const auto is_ordered = [&] {
    bool is = false;
    engine->run_and_wait([&] { is = engine->uplink().is_ordered(); });
    return is;
  };
  const auto make = [&](bool keeps_order) {
    MemoryStore store;
    engine::GroupOptions options;
    options.self = Rank(0);
    options.size = 1;
    options.keeps_order = keeps_order;
    auto made = Communicator::connect(engine, store, options, "", kHangs);
    REQUIRE(made.is_ok());
    return *made;
  };
  auto other = make(false);
  CHECK_FALSE(is_ordered());
  auto first = make(true), second = make(true);
  CHECK(is_ordered());
  first.reset();
  CHECK(is_ordered());
  second.reset();
  CHECK_FALSE(is_ordered());
}

TEST_CASE("all members that need a closed member get an error", "[tcp]") {
  auto members = connect_all(4);
  std::vector<std::vector<float>> data(4, std::vector<float>(1000));
  std::vector<std::future<End>> ends;
  for (size_t r = 0; r < 3; ++r)
    ends.push_back(allreduce(*members[r].communicator, data[r]));
  members[3].communicator.reset();  // without a goodbye
  for (auto& end : ends) {
    const Status status = end.get().status;
    INFO(status.message());
    CHECK(status.code() == Code::kPeerLost);
    CHECK(status.culprit() == Rank(3));
  }
}

TEST_CASE("a child that a member forked does not keep its connections alive", "[tcp]") {
  auto members = connect_all(2);
  int hold[2];
  REQUIRE(::pipe(hold) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::close(hold[1]);
    char byte = 0;
    [[maybe_unused]] const auto n = ::read(hold[0], &byte, 1);  // until the close
    ::_exit(0);
  }
  std::vector<float> data(1000);
  auto end = allreduce(*members[0].communicator, data, seconds(60));
  members[1].communicator.reset();  // without a goodbye
  CHECK(end.wait_for(seconds(10)) == std::future_status::ready);
  ::close(hold[0]);
  ::close(hold[1]);
  CHECK(::waitpid(child, nullptr, 0) == child);
  CHECK(end.get().status.code() == Code::kPeerLost);
}

TEST_CASE("a shutdown lets the other members finish their calls", "[tcp]") {
  for (int repeat = 0; repeat < 10; ++repeat) {
    auto members = connect_all(3);
    std::vector<std::vector<float>> data(3, std::vector<float>(200'000, 1));
    std::vector<std::thread> threads;
    std::atomic<int> num_right{0};
    for (size_t r = 0; r < 3; ++r)
      threads.emplace_back([&, r] {
        const Status status = allreduce(*members[r].communicator, data[r]).get().status;
        members[r].communicator->shutdown(seconds(5));
        members[r].communicator.reset();
        if (status.is_ok() && data[r][199'999] == 3) ++num_right;
      });
    for (auto& t : threads) t.join();
    REQUIRE(num_right == 3);
  }
}

TEST_CASE("a shutdown waits for members that are behind in its calls", "[tcp]") {
  // More data than the kernel takes, so the messages wait for their receives.
  for (const bool is_message : {false, true}) {
    auto members = connect_all(3);
    std::vector<std::vector<float>> data(3, std::vector<float>(500'000, 1));
    std::vector<std::byte> sent(8 << 20, std::byte{5}), got(sent.size());
    auto first =
        is_message ? std::future<End>() : allreduce(*members[0].communicator, data[0]);
    const TimePoint deadline = SystemClock().now() + kHangs;
    collectives::SendCall send;
    send.to = Rank(2);
    send.data = sent.data();
    send.bytes = sent.size();
    send.deadline = deadline;
    if (is_message) members[0].communicator->send(std::move(send));
    auto gone = std::async(std::launch::async, [&] {
      members[0].communicator->shutdown(kHangs);
      members[0].communicator.reset();
    });
    CHECK(gone.wait_for(milliseconds(100)) == std::future_status::timeout);
    if (is_message) {
      std::promise<Status> end;
      collectives::ReceiveCall receive;
      receive.from = Rank(0);
      receive.data = got.data();
      receive.bytes = got.size();
      receive.deadline = deadline;
      receive.on_done = [&](const Status& s, Rank) { end.set_value(s); };
      members[2].communicator->receive(std::move(receive));
      const Status status = end.get_future().get();
      INFO(status.message());
      CHECK(status.is_ok());
      CHECK(got == sent);
    } else {
      auto second = allreduce(*members[1].communicator, data[1]);
      auto third = allreduce(*members[2].communicator, data[2]);
      for (auto* end : {&first, &second, &third}) {
        const Status status = end->get().status;
        INFO(status.message());
        CHECK(status.is_ok());
      }
      for (const auto& d : data) CHECK(d[499'999] == 3);
    }
    gone.get();
  }
}

TEST_CASE("calls that are under way at the end get an answer", "[tcp]") {
  auto members = connect_all(2);
  std::vector<float> data(10), more(10);
  auto first = allreduce(*members[1].communicator, data);
  members[1].communicator->shutdown(milliseconds(100));
  CHECK(first.get().status.code() == Code::kAborted);
  auto second = allreduce(*members[1].communicator, more);
  CHECK(second.get().status.code() == Code::kAborted);
  // The first contribution left before the end, and its owner, rank 0, needs nothing
  // else.
  auto third = allreduce(*members[0].communicator, data);
  CHECK(third.get().status.is_ok());
  auto fourth = allreduce(*members[0].communicator, data);
  CHECK(fourth.get().status.code() == Code::kPeerLost);
}

TEST_CASE("data that a member sent before it gave the group up is read first",
          "[tcp]") {
  for (const size_t shared : {size_t{0}, size_t{64} << 10}) {
    for (const bool leaves : {false, true}) {
      MemoryStore store;
      auto members = connect_all(2, store, seconds(5), shared);
      Communicator& ahead = *members[0].communicator;
      Communicator& behind = *members[1].communicator;
      std::vector<float> a(10, 1), b(10, 2);
      std::promise<Status> received;
      collectives::ReceiveCall receive;
      std::array<std::byte, 8> got{};
      receive.from = Rank(0);
      receive.data = got.data();
      receive.bytes = got.size();
      receive.deadline = SystemClock().now() + kHangs;
      receive.on_done = [&](const Status& s, Rank) { received.set_value(s); };
      behind.receive(std::move(receive));
      auto second = allreduce(behind, b);
      // Its contribution leaves. Then it reads nothing for a while.
      std::promise<void> go_on;
      static_cast<void>(behind.failure());
      behind.engine().post([stopped = go_on.get_future().share()] { stopped.wait(); });
      auto first = allreduce(ahead, a);
      REQUIRE(first.get().status.is_ok());
      std::promise<Status> sent;
      collectives::SendCall send;
      send.to = Rank(1);
      send.data = got.data();
      send.bytes = got.size();
      send.deadline = SystemClock().now() + kHangs;
      send.on_done = [&](const Status& s, Rank) { sent.set_value(s); };
      ahead.send(std::move(send));
      REQUIRE(sent.get_future().get().is_ok());
      if (!leaves) ahead.abort({Code::kAborted, "enough"});
      ahead.shutdown(milliseconds(leaves ? 20'000 : 10));
      go_on.set_value();
      for (const Status& status : {second.get().status, received.get_future().get()}) {
        INFO(status.message());
        CHECK(status.is_ok());
      }
      CHECK(b == a);
      auto third = allreduce(behind, b);
      CHECK_FALSE(third.get().status.is_ok());
    }
  }
}

TEST_CASE("strangers on the port do not harm a group", "[tcp]") {
  auto members = connect_all(2);
  for (auto& m : members) {
    auto address = transport::to_socket_address(m.engine->address());
    REQUIRE(address.is_ok());
    for (const std::string& text :
         {std::string("GET / HTTP/1.1\r\n\r\n"), std::string(5000, 'x'),
          std::string("AIKIDO\1\0\xff\xff\xff\xff", 12), std::string()}) {
      const Fd socket(::socket(AF_INET, SOCK_STREAM, 0));
      REQUIRE(::connect(socket.get(), address->get(), address->length) == 0);
      [[maybe_unused]] const auto n =
          ::send(socket.get(), text.data(), text.size(), MSG_NOSIGNAL);
    }
  }
  std::vector<float> a(100, 1), b(100, 2);
  auto x = allreduce(*members[0].communicator, a);
  auto y = allreduce(*members[1].communicator, b);
  CHECK(x.get().status.is_ok());
  CHECK(y.get().status.is_ok());
  CHECK(a[99] == 3);
  for (auto& m : members) {
    while (m.engine->num_strangers() < 4) std::this_thread::yield();
    CHECK(m.engine->num_strangers() == 4);
  }
}

namespace {

// Calls that sum one element. A call may wait for its data.
struct HeldCalls {
  explicit HeldCalls(Communicator& c) : communicator(c) {}

  std::future<End> call(std::shared_ptr<collectives::Hold> hold, float& value) {
    collectives::Call call;
    call.dtype = DType::kFloat32;
    call.count = 1;
    collectives::LocalCall local;
    local.input = local.output = reinterpret_cast<std::byte*>(&value);
    local.hold = std::move(hold);
    auto promise = std::make_shared<std::promise<End>>();
    local.on_done = [promise](const Status& s, const collectives::Outcome& o) {
      promise->set_value({s, o});
    };
    auto future = promise->get_future();
    numbers.push_back(communicator.call(call, std::move(local), kHangs));
    return future;
  }

  Communicator& communicator;
  std::vector<uint64_t> numbers;
};

bool is_over(const std::future<End>& end, milliseconds after) {
  return end.wait_for(after) == std::future_status::ready;
}

}  // namespace

TEST_CASE(
    "a call that waits for its data has its number, and later calls wait behind it",
    "[tcp]") {
  auto members = connect_all(2);
  HeldCalls first(*members[0].communicator), second(*members[1].communicator);
  std::array<float, 3> a{}, b{1, 10, 100};
  const auto hold = std::make_shared<collectives::Hold>();
  const auto next = std::make_shared<collectives::Hold>();
  std::vector<std::future<End>> ends;
  ends.push_back(first.call(hold, a[0]));
  ends.push_back(first.call(next, a[1]));
  ends.push_back(first.call(nullptr, a[2]));
  for (float& value : b) ends.push_back(second.call(nullptr, value));
  CHECK(first.numbers == std::vector<uint64_t>{1, 2, 3});
  // Out of order: the first call still waits, and so do the calls behind it.
  a[1] = 20;
  first.communicator.release(*next, Status::ok());
  CHECK_FALSE(is_over(ends[1], milliseconds(50)));
  CHECK_FALSE(is_over(ends[2], milliseconds(0)));
  a = {2, 20, 200};
  first.communicator.release(*hold, Status::ok());
  first.communicator.release(*hold, {Code::kInternal, "the second time nothing"});
  for (auto& end : ends) CHECK(end.get().status.is_ok());
  CHECK(a == std::array<float, 3>{3, 30, 300});
  CHECK(b == a);
  // The next call does not wait.
  auto last = first.call(nullptr, a[0]), other = second.call(nullptr, b[0]);
  CHECK(last.get().status.is_ok());
  CHECK(other.get().status.is_ok());
}

TEST_CASE("a call whose data never comes fails on all members, and the next calls work",
          "[tcp]") {
  auto members = connect_all(2);
  HeldCalls first(*members[0].communicator), second(*members[1].communicator);
  float a = 1, b = 2;
  const auto hold = std::make_shared<collectives::Hold>();
  auto lost = first.call(hold, a), told = second.call(nullptr, b);
  first.communicator.refuse({Code::kUnsupported, "a refused call behind it"});
  auto refused = second.call(nullptr, b);
  auto next = first.call(nullptr, a), other = second.call(nullptr, b);
  first.communicator.release(*hold, {Code::kInternal, "the device is broken"});
  CHECK(lost.get().status.message() == "the device is broken");
  CHECK(told.get().status.message().find("the device is broken") != std::string::npos);
  CHECK(refused.get().status.message().find("a refused call") != std::string::npos);
  CHECK(next.get().status.is_ok());
  CHECK(other.get().status.is_ok());
  CHECK(a == 3);
  CHECK(b == 3);
}

TEST_CASE("sends stay behind held calls, and the end of the group ends held calls",
          "[tcp]") {
  auto members = connect_all(2);
  Communicator& from = *members[0].communicator;
  std::array<char, 2> sent{'x', 'b'}, got{};
  const auto hold = std::make_shared<collectives::Hold>();
  std::vector<std::future<Status>> ends;
  const auto ending = [&] {
    auto promise = std::make_shared<std::promise<Status>>();
    ends.push_back(promise->get_future());
    return [promise](const Status& s, Rank) { promise->set_value(s); };
  };
  const auto send = [&](char& byte, std::shared_ptr<collectives::Hold> held) {
    collectives::SendCall call;
    call.to = Rank(1);
    call.data = reinterpret_cast<const std::byte*>(&byte);
    call.bytes = 1;
    call.deadline = SystemClock().now() + kHangs;
    call.on_done = ending();
    call.hold = std::move(held);
    from.send(std::move(call));
  };
  send(sent[0], hold);
  send(sent[1], nullptr);
  for (char& byte : got) {
    collectives::ReceiveCall call;
    call.from = Rank(0);
    call.data = reinterpret_cast<std::byte*>(&byte);
    call.bytes = 1;
    call.deadline = SystemClock().now() + kHangs;
    call.on_done = ending();
    members[1].communicator->receive(std::move(call));
  }
  sent[0] = 'a';
  from.release(*hold, Status::ok());
  for (auto& end : ends) CHECK(end.get().is_ok());
  CHECK(got == std::array<char, 2>{'a', 'b'});

  HeldCalls calls(from);
  float value = 1;
  const bool is_abort = GENERATE(true, false);
  auto open = calls.call(std::make_shared<collectives::Hold>(), value);
  CHECK(from.skip_through(Seq(1)).code() == Code::kInvalidArgument);
  if (is_abort) {
    from.abort({Code::kAborted, "enough"});
  } else {
    from.shutdown(milliseconds(10));
  }
  CHECK(open.get().status.code() == Code::kAborted);
}

TEST_CASE("the end of a group waits for a call that has just been released", "[tcp]") {
  // With shared memory the sender sees at once that all data has arrived.
  MemoryStore store;
  auto members = connect_all(2, store, seconds(5), 1 << 20);
  // Not rank 0, which may have to answer a question about its clock.
  HeldCalls first(*members[1].communicator), second(*members[0].communicator);
  float a = 1, b = 2;
  const auto hold = std::make_shared<collectives::Hold>();
  auto own = first.call(hold, a);
  const auto ended =
      std::async(std::launch::async, [&] { first.communicator.shutdown(kHangs); });
  std::this_thread::sleep_for(milliseconds(20));
  // The progress thread handles a question of shutdown() first, and then the call.
  std::promise<void> go_on;
  first.communicator.post(
      [gate = go_on.get_future().share()](engine::Group&) { gate.wait(); });
  std::this_thread::sleep_for(milliseconds(10));
  std::thread releasing([&] { first.communicator.release(*hold, Status::ok()); });
  std::this_thread::sleep_for(milliseconds(10));
  go_on.set_value();
  releasing.join();
  CHECK_FALSE(is_over(own, milliseconds(50)));
  auto other = second.call(nullptr, b);
  CHECK(own.get().status.is_ok());
  CHECK(other.get().status.is_ok());
  ended.wait();
  CHECK(a == 3);
  CHECK(b == 3);
}

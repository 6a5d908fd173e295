// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
//
// Tests of groups that follow each other over one store, with early and late ranks.

#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <future>
#include <thread>

#include "engine/communicator.h"
#include "harness/catch.h"
#include "harness/members.h"
#include "transport/address.h"

using namespace aikido;
using namespace aikido::testing;
using std::chrono::milliseconds;

namespace {

std::future<Made> connect_soon(std::shared_ptr<Engine> engine, membership::Store& store,
                               int32_t rank, int32_t size, Duration timeout = kHangs,
                               const std::string& agreed = "a=1") {
  return std::async(std::launch::async, [=, &store] {
    return connect(engine, store, rank, size, timeout, agreed);
  });
}

std::shared_ptr<Communicator> made(std::future<Made> future) {
  auto result = future.get();
  INFO(result.status().message());
  REQUIRE(result.is_ok());
  return *result;
}

// All ranks add one. A rank that did not meet the others gets no sum.
void check_sum(const std::vector<std::shared_ptr<Communicator>>& group) {
  std::vector<std::vector<float>> data(group.size(), std::vector<float>(3, 1));
  std::vector<std::future<End>> ends;
  for (size_t r = 0; r < group.size(); ++r)
    ends.push_back(allreduce(*group[r], data[r]));
  for (auto& end : ends) REQUIRE(end.get().status.is_ok());
  for (const auto& d : data) CHECK(d[2] == static_cast<float>(group.size()));
}

}  // namespace

TEST_CASE("a group follows another over the same store, with any late rank", "[tcp]") {
  for (const int32_t size : {2, 4}) {
    for (int32_t late = 0; late < size; ++late) {
      MemoryStore store;
      auto members = connect_all(size, store);
      for (int repeat = 0; repeat < 2; ++repeat) {
        std::vector<std::future<Made>> next(static_cast<size_t>(size));
        std::vector<std::shared_ptr<Communicator>> group(static_cast<size_t>(size));
        for (int32_t r = 0; r < size; ++r) {
          if (r == late) continue;
          auto& m = members[static_cast<size_t>(r)];
          m.communicator->shutdown(seconds(5));
          m.communicator.reset();
          next[static_cast<size_t>(r)] = connect_soon(m.engine, store, r, size);
        }
        // The late rank is still in the former group, and then in no group.
        auto& m = members[static_cast<size_t>(late)];
        std::this_thread::sleep_for(milliseconds(30));
        m.communicator->shutdown(seconds(5));
        m.communicator.reset();
        std::this_thread::sleep_for(milliseconds(30));
        next[static_cast<size_t>(late)] = connect_soon(m.engine, store, late, size);
        for (size_t r = 0; r < group.size(); ++r)
          group[r] = members[r].communicator = made(std::move(next[r]));
        check_sum(group);
      }
    }
  }
}

TEST_CASE("a larger and a smaller group follow over the same store", "[tcp]") {
  MemoryStore store;
  auto members = connect_all(3, store);
  auto former = members[0].communicator;
  // Rank 1 is early, and its group has another size: rank 0 is still in the group of
  // three.
  members[1].communicator->shutdown(seconds(5));
  members[2].communicator->shutdown(seconds(5));
  auto one = connect_soon(members[2].engine, store, 1, 2);
  std::this_thread::sleep_for(milliseconds(700));
  former->shutdown(seconds(5));
  auto zero = connect_soon(members[0].engine, store, 0, 2);
  auto first = made(std::move(zero)), second = made(std::move(one));
  check_sum({first, second});
  second->shutdown(seconds(5));
  std::vector<std::future<Made>> four;
  for (int32_t r = 3; r > 0; --r)
    four.push_back(connect_soon(start_engine(), store, r, 4));
  std::this_thread::sleep_for(milliseconds(700));
  first->shutdown(seconds(5));
  four.push_back(connect_soon(members[0].engine, store, 0, 4));
  std::vector<std::shared_ptr<Communicator>> group;
  for (auto& f : four) group.push_back(made(std::move(f)));
  check_sum(group);
}

TEST_CASE("entries that a crashed group has left in the store are ignored", "[tcp]") {
  MemoryStore store;
  // No process is left, as after a crash: no engine and no port.
  connect_all(3, store);
  auto two = connect_soon(start_engine(), store, 2, 3);
  auto one = connect_soon(start_engine(), store, 1, 3);
  std::this_thread::sleep_for(milliseconds(100));
  auto zero = connect_soon(start_engine(), store, 0, 3);
  check_sum({made(std::move(zero)), made(std::move(one)), made(std::move(two))});
}

TEST_CASE("another group follows a group that was given up", "[tcp]") {
  MemoryStore store;
  const auto zero = start_engine(), one = start_engine();
  CHECK_FALSE(connect(zero, store, 0, 2, milliseconds(50)).is_ok());
  auto early = connect_soon(one, store, 1, 2);
  std::this_thread::sleep_for(milliseconds(100));
  check_sum({made(connect_soon(zero, store, 0, 2)), made(std::move(early))});
}

TEST_CASE("a time-out says why rank 0 did not answer", "[tcp]") {
  MemoryStore store;
  connect_all(2, store);
  const Status gone = connect(start_engine(), store, 1, 2, milliseconds(200)).status();
  INFO(gone.message());
  CHECK(gone.code() == Code::kTimedOut);
  CHECK(gone.culprit() == Rank(0));
  CHECK(gone.message().find("connecting to rank 0 of group \"tcp\": Timed out; the "
                            "last try: connecting to 127.0.0.1") == 0);
  CHECK(gone.message().find("ECONNREFUSED") != std::string::npos);

  // An engine that has no such group does not answer.
  const auto other = start_engine();
  {
    auto first = connect_soon(other, store, 0, 2);
    auto second = connect_soon(start_engine(), store, 1, 2);
    check_sum({made(std::move(first)), made(std::move(second))});
  }
  const Status job = connect(start_engine(), store, 1, 2, milliseconds(200)).status();
  INFO(job.message());
  CHECK(job.code() == Code::kTimedOut);
  CHECK(job.message().find("it may belong to another job") != std::string::npos);
}

TEST_CASE("all ranks learn in the same way if they share memory and cores", "[tcp]") {
  constexpr size_t kShared = 1 << 20;
  const long cores = ::sysconf(_SC_NPROCESSORS_ONLN);
  for (const int32_t size : {2, 4})
    for (const int32_t without : {-1, 0, size - 1}) {
      MemoryStore store;
      std::vector<std::future<Made>> soon;
      for (int32_t r = 0; r < size; ++r)
        soon.push_back(connect_soon(
            start_engine(seconds(5), r == without ? 0 : kShared), store, r, size));
      std::vector<std::shared_ptr<Communicator>> group;
      for (auto& future : soon) group.push_back(made(std::move(future)));
      for (const auto& member : group)
        CHECK(member->is_crowded() == (without == -1 && size > cores));
      check_sum(group);
    }
}

namespace {

// A store that tells no rank the addresses, and says so at once if it is `curt`. Rank 0
// gets the answer that all have read them.
class ReticentStore final : public membership::Store {
 public:
  explicit ReticentStore(bool curt = false) : is_curt_(curt) {}
  Status set(const std::string& key, const std::string& value) override {
    return key.starts_with("place/") ? Status::ok() : store_.set(key, value);
  }
  Result<std::string> get(const std::string& key, Duration timeout) override {
    if (key.starts_with("met/")) return std::string("1");
    const bool is_place = key.starts_with("place/");
    num_asked += is_place ? 1 : 0;
    return store_.get(key, is_place && is_curt_ ? Duration::zero() : timeout);
  }
  std::atomic<int> num_asked = 0;

 private:
  const bool is_curt_;
  MemoryStore store_;
};

}  // namespace

TEST_CASE("a rank that does not learn the addresses gives up", "[tcp]") {
  for (const bool is_curt : {false, true}) {
    ReticentStore store(is_curt);
    auto zero = connect_soon(start_engine(), store, 0, 2);
    auto one = connect_soon(start_engine(), store, 1, 2, seconds(2));
    const auto member = made(std::move(zero));
    const Status late = one.get().status();
    INFO(late.message());
    CHECK(late.code() == Code::kTimedOut);
    CHECK(late.culprit() == Rank(0));
    CHECK(late.message().find("rank 0 of group \"tcp\" has not published where the "
                              "ranks are: Timed out") == 0);
    CHECK(store.num_asked < 50);
  }
}

TEST_CASE("a rank that meets rank 0 while it leaves gets an error", "[tcp]") {
  for (const bool is_in_order : {false, true}) {
    ReticentStore store;
    auto zero = connect_soon(start_engine(), store, 0, 2);
    auto one = connect_soon(start_engine(), store, 1, 2, seconds(60));
    auto member = made(std::move(zero));
    if (is_in_order) member->shutdown(seconds(1));
    member.reset();
    const Status gone = one.get().status();
    INFO(gone.message());
    CHECK_FALSE(gone.is_ok());
    CHECK(gone.culprit() == Rank(0));
    if (!is_in_order) CHECK(gone.code() == Code::kPeerLost);
  }
}

namespace {

// A store in the process of rank 0. Ranks ask late for the addresses, and get no answer
// after the process has gone.
class OwnedStore final : public membership::Store {
 public:
  Status set(const std::string& key, const std::string& value) override {
    return store_.set(key, value);
  }
  Result<std::string> get(const std::string& key, Duration timeout) override {
    if (key.starts_with("place/")) std::this_thread::sleep_for(milliseconds(100));
    if (is_gone) return Status(Code::kTimedOut, "the store is gone");
    return store_.get(key, timeout);
  }
  std::atomic<bool> is_gone = false;

 private:
  MemoryStore store_;
};

}  // namespace

TEST_CASE("rank 0 is done when all ranks have read the addresses", "[tcp]") {
  OwnedStore store;
  auto one = connect_soon(start_engine(), store, 1, 3);
  auto two = connect_soon(start_engine(), store, 2, 3);
  auto member = made(connect_soon(start_engine(), store, 0, 3));
  store.is_gone = true;
  const auto first = made(std::move(one)), second = made(std::move(two));
  check_sum({member, first, second});
}

TEST_CASE("a refused rank reports the reason, although rank 0 and the store have gone",
          "[tcp]") {
  OwnedStore store;
  auto zero = connect_soon(start_engine(), store, 0, 2);
  auto one = connect_soon(start_engine(), store, 1, 2, kHangs, "a=2");
  CHECK(zero.get().status().code() == Code::kInvalidArgument);
  store.is_gone = true;
  const Status refused = one.get().status();
  INFO(refused.message());
  CHECK(refused.code() == Code::kInvalidArgument);
  CHECK(refused.message().find("a=2") != std::string::npos);
}

namespace {

// A store in which no rank can write that it has read the addresses.
class FullStore final : public membership::Store {
 public:
  Status set(const std::string& key, const std::string& value) override {
    if (key.starts_with("met/")) return {Code::kRetryLater, "no room is left"};
    return store_.set(key, value);
  }
  Result<std::string> get(const std::string& key, Duration timeout) override {
    return store_.get(key, timeout);
  }

 private:
  MemoryStore store_;
};

}  // namespace

TEST_CASE("rank 0 does not wait long for a rank that cannot say that it has read",
          "[tcp]") {
  FullStore store;
  const SystemClock clock;
  const TimePoint begin = clock.now();
  auto zero = connect_soon(start_engine(), store, 0, 2, seconds(60));
  auto one = connect_soon(start_engine(), store, 1, 2, seconds(60));
  check_sum({made(std::move(zero)), made(std::move(one))});
  CHECK(clock.now() - begin < seconds(20));
}

TEST_CASE("a second process with the rank of a member is refused", "[tcp]") {
  MemoryStore store;
  auto members = connect_all(2, store);
  const Status second = connect(start_engine(), store, 1, 2).status();
  INFO(second.message());
  CHECK(second.code() == Code::kInvalidArgument);
  CHECK(second.message().find("rank 1 of group \"tcp\" is connected already") !=
        std::string::npos);
  check_sum({members[0].communicator, members[1].communicator});
}

TEST_CASE("a rank that waits for a member of another version names the versions",
          "[tcp]") {
  MemoryStore store;
  const auto engine = start_engine();
  auto waiting = connect_soon(engine, store, 0, 2, milliseconds(300));
  transport::Hello hello;
  auto greeting = transport::encode(hello);
  greeting[6] = std::byte{200};
  auto address = transport::to_socket_address(engine->address());
  REQUIRE(store.get("token", seconds(5)).is_ok());
  const Fd other(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  REQUIRE(::connect(other.get(), address->get(), address->length) == 0);
  REQUIRE(::send(other.get(), greeting.data(), greeting.size(), MSG_NOSIGNAL) > 0);
  const Status status = waiting.get().status();
  CHECK(status.message() ==
        "group \"tcp\": Timed out on rank 0 while waiting for rank 1 to connect; of "
        "one that dialled here: the other side speaks protocol version 200, this build "
        "23; "
        "install the same aikido on every rank");
}

TEST_CASE("the reason why a group was given up can be read when its process has gone",
          "[tcp]") {
  MemoryStore store;
  CHECK(connect(start_engine(), store, 0, 2, milliseconds(50)).status().code() ==
        Code::kTimedOut);
  // Its engine has gone, too, so its address does not answer any more.
  const Status late = connect(start_engine(), store, 1, 2, seconds(10)).status();
  INFO(late.message());
  CHECK(late.code() == Code::kInvalidArgument);
  CHECK(late.message().find("rank 0 has given group \"tcp\" up") != std::string::npos);
}

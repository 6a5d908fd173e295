// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "transport/connector.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <atomic>
#include <csignal>
#include <future>
#include <thread>

#include "harness/catch.h"
#include "harness/recording_handler.h"
#include "harness/sanitized.h"
#include "transport/local_socket.h"

using namespace aikido;
using namespace aikido::testing;
using namespace aikido::transport;
using std::chrono::milliseconds;
using std::chrono::seconds;

namespace {

Token token_of(int value) {
  Token token{};
  token[0] = static_cast<std::byte>(value);
  return token;
}

Hello hello_of(int token, int32_t rank = 1, Lane lane = Lane::kBulk) {
  Hello hello;
  hello.lane = lane;
  hello.token = token_of(token);
  hello.rank = Rank(rank);
  hello.size = 2;
  return hello;
}

struct Keeper final : Doorkeeper {
  bool knows(const Hello& hello) const override {
    return equal_tokens(hello.token, token_of(7));
  }
  std::string refusal(const Hello& hello) override {
    return hello.rank == Rank(1) ? "" : "rank 5 has no place here";
  }
  void on_connected(Rank rank, Connections lanes) override {
    last = rank;
    sockets.push_back(std::move(lanes));
  }
  size_t num_expected() const override { return expected; }
  void on_turned_away(const std::string& why) override { turned_away = why; }
  void on_no_room(const std::string& why) override { no_room = why; }
  std::vector<Connections> sockets;
  Rank last = kNoRank;
  size_t expected = 0;
  std::string turned_away, no_room;
};

// A listener whose loop runs on a thread of its own.
struct House {
  EventLoop loop;
  std::unique_ptr<Listener> listener;
  Keeper keeper;
  SystemClock clock;
  Sharing sharing;  // of the dialling member
  std::thread thread;

  explicit House(Duration handshake_timeout = seconds(20),
                 const std::string& host = "127.0.0.1", bool is_local = false) {
    auto made = Listener::open(&loop, host, handshake_timeout, is_local);
    REQUIRE(made.is_ok());
    listener = std::move(*made);
    listener->add(&keeper);
    thread = std::thread([this] { loop.run(); });
  }
  ~House() {
    loop.stop();
    thread.join();
  }
  Result<Connections> dial_in(const Hello& hello, Duration timeout = seconds(20)) {
    return dial(listener->address(), hello, clock, clock.now() + timeout, sharing);
  }
  template <class T>
  T ask(std::function<T()> question) {
    std::promise<T> answer;
    loop.post([&] { answer.set_value(question()); });
    return answer.get_future().get();
  }
  uint64_t strangers() {
    return ask<uint64_t>([this] { return listener->num_strangers(); });
  }
  void wait_for_strangers(uint64_t count) {
    while (strangers() < count) std::this_thread::yield();
    CHECK(strangers() == count);
  }
  size_t members() {
    return ask<size_t>([this] { return keeper.sockets.size(); });
  }
  Fd connect_raw() {
    auto address = to_socket_address(listener->address());
    Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    REQUIRE(socket.is_open());
    REQUIRE(::connect(socket.get(), address->get(), address->length) == 0);
    return socket;
  }
};

Result<Connections> dial_tcp(const Address& address, const Clock& clock,
                             TimePoint deadline) {
  Sharing none;
  return dial(address, hello_of(7), clock, deadline, none);
}

int family(const Fd& socket) {
  SocketAddress own;
  own.length = sizeof own.storage;
  REQUIRE(::getsockname(socket.get(), own.get(), &own.length) == 0);
  return own.storage.ss_family;
}

void write(const Fd& socket, std::span<const std::byte> bytes) {
  REQUIRE(::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
          static_cast<ssize_t>(bytes.size()));
}

}  // namespace

TEST_CASE("a member is accepted, and its next bytes are left for its link", "[tcp]") {
  House house;
  auto sockets = house.dial_in(hello_of(7));
  REQUIRE(sockets.is_ok());
  CHECK(house.members() == 1);
  CHECK(house.ask<Rank>([&] { return house.keeper.last; }) == Rank(1));
  for (size_t lane = 0; lane < kNumLanes; ++lane) {
    write((*sockets)[lane].socket,
          std::vector<std::byte>(3, static_cast<std::byte>(lane)));
    char data[4];
    const int fd =
        house.ask<int>([&] { return house.keeper.sockets[0][lane].socket.get(); });
    while (::recv(fd, data, sizeof data, MSG_PEEK) < 3) std::this_thread::yield();
    CHECK(data[2] == static_cast<char>(lane));
  }
  CHECK(house.strangers() == 0);
}

TEST_CASE("a member that is refused gets the reason", "[tcp]") {
  House house;
  const Status status = house.dial_in(hello_of(7, 5)).status();
  CHECK(status.code() == Code::kInvalidArgument);
  CHECK(status.message() == "rank 5 has no place here");
  CHECK(house.members() == 0);
}

TEST_CASE("a member of another group is a stranger, and is told to try again",
          "[tcp]") {
  House house;
  const Status status = house.dial_in(hello_of(8)).status();
  CHECK(status.code() == Code::kRetryLater);
  CHECK(status.message().find("it may belong to another job") != std::string::npos);
  house.wait_for_strangers(1);
}

TEST_CASE("a greeting that arrives byte by byte is understood", "[tcp]") {
  House house;
  std::vector<Fd> sockets;
  for (const Lane lane : {Lane::kControl, Lane::kBulk}) {
    CHECK(house.members() == 0);
    sockets.push_back(house.connect_raw());
    const auto greeting = encode(hello_of(7, 1, lane));
    for (const std::byte b : greeting) write(sockets.back(), std::span(&b, 1));
  }
  while (house.members() < 1) std::this_thread::yield();
}

TEST_CASE("a member with only one lane is dropped when its time is over", "[tcp]") {
  House house(milliseconds(50));
  const Fd half = house.connect_raw();
  write(half, encode(hello_of(7)));
  std::vector<std::byte> answer(encode_welcome("").size() + 1);
  const auto n = ::recv(half.get(), answer.data(), answer.size(), MSG_WAITALL);
  CHECK(n == static_cast<ssize_t>(answer.size()) - 1);  // a welcome, then the end
  CHECK(house.strangers() == 1);
  CHECK(house.dial_in(hello_of(7)).is_ok());
  CHECK(house.members() == 1);
}

TEST_CASE("a lane that is dialled again replaces the first one", "[tcp]") {
  House house;
  const Fd first = house.connect_raw();
  write(first, encode(hello_of(7)));
  char byte = 0;
  while (::recv(first.get(), &byte, 1, MSG_PEEK) < 1) std::this_thread::yield();
  auto sockets = house.dial_in(hello_of(7));
  REQUIRE(sockets.is_ok());
  CHECK(house.members() == 1);
  std::vector<std::byte> answer(encode_welcome("").size() + 1);
  CHECK(::recv(first.get(), answer.data(), answer.size(), MSG_WAITALL) ==
        static_cast<ssize_t>(answer.size()) - 1);
  write((*sockets)[0].socket, std::vector<std::byte>(1, std::byte{4}));
  const int fd =
      house.ask<int>([&] { return house.keeper.sockets[0][0].socket.get(); });
  while (::recv(fd, &byte, 1, MSG_PEEK) < 1) std::this_thread::yield();
  CHECK(byte == 4);
}

TEST_CASE("garbage is dropped and counted, and a member can still connect", "[tcp]") {
  House house;
  const auto good = encode(hello_of(7));
  auto long_one = good, other_version = good;
  long_one[9] = std::byte{0xff};
  other_version[6] = std::byte{200};
  const std::string http = "GET / HTTP/1.1\r\n\r\n";
  write(house.connect_raw(), std::as_bytes(std::span(http)));
  write(house.connect_raw(), long_one);
  write(house.connect_raw(), other_version);
  write(house.connect_raw(), std::span(good).first(20));
  house.connect_raw();
  house.wait_for_strangers(5);
  CHECK(house.dial_in(hello_of(7)).is_ok());
}

TEST_CASE("a silent stranger is dropped when its time is over", "[tcp]") {
  House house(milliseconds(20));
  const Fd silent = house.connect_raw();
  char byte = 0;
  CHECK(::recv(silent.get(), &byte, 1, 0) == 0);
  CHECK(house.strangers() == 1);
  CHECK(house.dial_in(hello_of(7)).is_ok());
}

TEST_CASE("a thousand silent strangers do not keep a member out", "[tcp]") {
  House house;
  std::vector<Fd> strangers;
  for (int i = 0; i < 500; ++i) strangers.push_back(house.connect_raw());
  CHECK(house.dial_in(hello_of(7)).is_ok());
  for (int i = 0; i < 500; ++i) strangers.push_back(house.connect_raw());
  CHECK(house.dial_in(hello_of(7)).is_ok());
  CHECK(house.members() == 2);
  CHECK(house.strangers() >= 1000 - 257);
}

TEST_CASE("all expected members may wait before they greet", "[tcp]") {
  House house;
  house.ask<int>([&] {
    house.keeper.expected = 100;
    return 0;
  });
  const Fd first = house.connect_raw();
  std::vector<Fd> others;
  for (int i = 0; i < 355; ++i) others.push_back(house.connect_raw());
  write(first, encode(hello_of(7)));
  char byte = 0;
  CHECK(::recv(first.get(), &byte, 1, 0) == 1);
  CHECK(house.strangers() == 0);
  // The first connection has sent its HELLO. So two of these three are more than the
  // limit.
  for (int i = 0; i < 3; ++i) others.push_back(house.connect_raw());
  house.wait_for_strangers(2);
}

TEST_CASE(
    "a member of another version and the doorkeeper get an error with both numbers",
    "[tcp]") {
  House house;
  for (const size_t part : {size_t{12}, encode(hello_of(7)).size()}) {
    auto greeting = encode(hello_of(7));
    greeting[6] = std::byte{200};
    const Fd other = house.connect_raw();
    write(other, std::span(greeting).first(part));
    std::vector<std::byte> answer(kMaxHelloBytes);
    size_t got = 0;
    const std::string text =
        "the other side speaks protocol version 200, this build 23; install the same "
        "aikido on every rank";
    while (got < encode_welcome(text).size()) {
      const auto n = ::recv(other.get(), answer.data() + got, answer.size() - got, 0);
      REQUIRE(n > 0);
      got += static_cast<size_t>(n);
    }
    answer.resize(got);
    auto refusal = decode_welcome(answer);
    REQUIRE((refusal && refusal->has_value()));
    CHECK(**refusal == text);
    CHECK(house.ask<std::string>([&] { return house.keeper.turned_away; }) == text);
    // The prefix of the answer that a member of another version reads.
    answer[6] = std::byte{200};
    CHECK(decode_welcome(answer).status().message() == text);
  }
  house.wait_for_strangers(2);  // the listener has closed the connection
}

TEST_CASE("a member may wait for months for an answer", "[tcp]") {
  const Fd server(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  auto any = to_socket_address({"127.0.0.1", 0});
  REQUIRE(::bind(server.get(), any->get(), any->length) == 0);
  REQUIRE(::listen(server.get(), 4) == 0);
  SocketAddress bound;
  bound.length = sizeof bound.storage;
  REQUIRE(::getsockname(server.get(), bound.get(), &bound.length) == 0);
  const Address address = from_socket_address(bound.storage);
  struct StillClock final : Clock {
    TimePoint now() const override {
      ++num_reads;
      return {};
    }
    mutable std::atomic<int> num_reads{0};
  } clock;
  // Rounded up and cut to an int, these times would be 0, and the wait would spin.
  const TimePoint deadline = TimePoint{} + milliseconds((int64_t{1} << 32) - 1);
  auto dialled = std::async(
      std::launch::async, [&] { return dial_tcp(address, clock, deadline).status(); });
  const Fd guest(::accept(server.get(), nullptr, nullptr));
  CHECK(dialled.wait_for(milliseconds(50)) == std::future_status::timeout);
  CHECK(clock.num_reads < 10);
  ::shutdown(guest.get(), SHUT_RDWR);
  CHECK(dialled.get().code() == Code::kRetryLater);
}

TEST_CASE("members of one host share memory for bulk", "[tcp]") {
  House house(seconds(20), "127.0.0.1", true);
  house.sharing.ring_bytes = 8 << 10;
  auto dialled = house.dial_in(hello_of(7));
  REQUIRE(dialled.is_ok());
  CHECK(house.members() == 1);
  Connections& accepted = house.keeper.sockets[0];
  for (const Lane lane : {Lane::kBulk, Lane::kControl}) {
    const auto l = static_cast<size_t>(lane);
    CHECK((*dialled)[l].memory.has_value() == (lane == Lane::kBulk));
    CHECK(accepted[l].memory.has_value() == (lane == Lane::kBulk));
    CHECK(family((*dialled)[l].socket) == AF_UNIX);
  }
  const auto data = pattern(100);
  std::vector<std::byte> got(100);
  const iovec from{const_cast<std::byte*>(data.data()), data.size()};
  const iovec to{got.data(), got.size()};
  CHECK((*dialled)[0].memory->writer().write({&from, 1}) == 100);
  CHECK(accepted[0].memory->reader().read({&to, 1}) == 100);
  CHECK(got == data);
  CHECK(house.sharing.failure.empty());
}

TEST_CASE("members of one host exchange their blocks", "[tcp]") {
  const auto is_of = [](const Fd& fd, const ShmBufferPool& shm_pool) {
    struct stat found {
    }, own{};
    return ::fstat(fd.get(), &found) == 0 && ::fstat(shm_pool.fd(), &own) == 0 &&
           found.st_ino == own.st_ino;
  };
  auto mine = ShmBufferPool::make(), theirs = ShmBufferPool::make();
  REQUIRE(mine.is_ok());
  REQUIRE(theirs.is_ok());
  const bool listener_has = GENERATE(false, true), dialler_has = GENERATE(false, true);
  House house(seconds(20), "127.0.0.1", true);
  house.sharing.ring_bytes = 8 << 10;
  if (dialler_has) house.sharing.shm_pool = theirs->get();
  if (listener_has) house.listener->share(mine->get());
  auto dialled = house.dial_in(hello_of(7));
  REQUIRE(dialled.is_ok());
  CHECK(house.members() == 1);
  const auto control = static_cast<size_t>(Lane::kControl);
  const Fd& got = (*dialled)[control].blocks;
  const Fd& given = house.keeper.sockets[0][control].blocks;
  CHECK(given.is_open() == dialler_has);
  CHECK(got.is_open() == (dialler_has && listener_has));
  if (given.is_open()) CHECK(is_of(given, **theirs));
  if (got.is_open()) CHECK(is_of(got, **mine));
}

TEST_CASE("a member that shares no memory is connected over TCP", "[tcp]") {
  const bool listens = GENERATE(false, true);
  House house(seconds(20), "127.0.0.1", listens);
  if (!listens) house.sharing.ring_bytes = 8 << 10;
  auto dialled = house.dial_in(hello_of(7));
  REQUIRE(dialled.is_ok());
  for (const Connection& c : *dialled) {
    CHECK(family(c.socket) == AF_INET);
    CHECK_FALSE(c.memory.has_value());
  }
}

TEST_CASE("members go on without memory that cannot be mapped, and keep the reason",
          "[tcp]") {
  House house(seconds(20), "127.0.0.1", true);
  house.sharing.ring_bytes = 8 << 10;
  rlimit limit{};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &limit) == 0);
  ::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{4 << 10, limit.rlim_max};
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &small) == 0);
  auto dialled = house.dial_in(hello_of(7));
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &limit) == 0);
  REQUIRE(dialled.is_ok());
  CHECK(family((*dialled)[0].socket) == AF_UNIX);
  CHECK_FALSE((*dialled)[0].memory.has_value());
  CHECK(house.members() == 1);
  CHECK_FALSE(house.keeper.sockets[0][0].memory.has_value());
  CHECK(house.sharing.failure.find("the kernel gives no shared memory: ") == 0);
}

TEST_CASE("a descriptor without shared memory is not mapped", "[tcp]") {
  House house(seconds(20), "127.0.0.1", true);
  const Fd plain(::memfd_create("test", MFD_CLOEXEC));
  REQUIRE(::ftruncate(plain.get(), 4096 + 2 * 8192) == 0);
  std::vector<Fd> sockets;
  for (const Lane lane : {Lane::kBulk, Lane::kControl}) {
    sockets.push_back(connect_beside(house.listener->address()));
    REQUIRE(sockets.back().is_open());
    REQUIRE(send_with(sockets.back(), encode(hello_of(7, 1, lane)), plain.get()));
  }
  while (house.members() == 0) std::this_thread::yield();
  for (const Connection& c : house.keeper.sockets[0]) CHECK_FALSE(c.memory.has_value());
}

TEST_CASE("members connect over IPv6 as over IPv4", "[tcp]") {
  const Fd probe(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  auto any = to_socket_address({"::1", 0});
  if (!probe.is_open() || ::bind(probe.get(), any->get(), any->length) != 0) {
    WARN("this host has no IPv6 loopback");
    return;
  }
  House house(seconds(20), "::1");
  CHECK(house.listener->address().host == "::1");
  auto sockets = house.dial_in(hello_of(7));
  REQUIRE(sockets.is_ok());
  CHECK(house.members() == 1);
}

TEST_CASE("a member of a group that was given up gets the reason", "[tcp]") {
  House house;
  house.ask<int>([&] {
    for (int token = 8; token < 28; ++token)
      house.listener->refuse(token_of(token), concat("no more of ", token));
    return 0;
  });
  const Status status = house.dial_in(hello_of(27)).status();
  CHECK(status.code() == Code::kInvalidArgument);
  CHECK(status.message() == "no more of 27");
  // Only the last few are remembered.
  CHECK(house.dial_in(hello_of(8)).status().code() == Code::kRetryLater);
}

#ifndef AIKIDO_IS_SANITIZED
namespace {

// The process has no free descriptor.
class NoDescriptors {
 public:
  NoDescriptors() {
    REQUIRE(::getrlimit(RLIMIT_NOFILE, &before_) == 0);
    taken_.emplace_back(::dup(0));  // the lowest free descriptor
    rlimit none = before_;
    none.rlim_cur = static_cast<rlim_t>(taken_.front().get()) + 1;
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &none) == 0);
  }
  ~NoDescriptors() { ::setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_{};
  std::vector<Fd> taken_;
};

}  // namespace

TEST_CASE(
    "a lack of descriptors is reported after the handshake time-out, and at once to a "
    "dialling member",
    "[tcp]") {
  House house(milliseconds(300));
  const auto no_room = [&] {
    return house.ask<std::string>([&] { return house.keeper.no_room; });
  };
  auto address = to_socket_address(house.listener->address());
  const Fd member(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const NoDescriptors shortage;
  const TimePoint begin = house.clock.now();
  REQUIRE(::connect(member.get(), address->get(), address->length) == 0);
  while (no_room().empty()) std::this_thread::sleep_for(milliseconds(5));
  CHECK(house.clock.now() - begin >= milliseconds(290));
  CHECK(no_room().find("no connection can be taken in: EMFILE") == 0);
  const auto dialled = house.dial_in(hello_of(7));
  CHECK(dialled.status().code() == Code::kInvalidArgument);
  CHECK(dialled.status().message().find("EMFILE (Too many open files); raise") !=
        std::string::npos);
}

TEST_CASE("without a free descriptor the listener waits, and does not spin", "[tcp]") {
  struct Turns final : Timed {
    void on_time(TimePoint) override {}
    std::optional<TimePoint> next_look() const override {
      ++count;
      return std::nullopt;
    }
    mutable std::atomic<int> count{0};
  } turns;
  House house;
  house.ask<int>([&] {
    house.loop.add_timed(&turns);
    return 0;
  });
  auto address = to_socket_address(house.listener->address());
  const Fd member(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  std::optional<NoDescriptors> shortage(std::in_place);
  REQUIRE(::connect(member.get(), address->get(), address->length) == 0);
  turns.count = 0;
  std::this_thread::sleep_for(milliseconds(250));
  CHECK(turns.count < 100);
  const auto why = house.ask<std::string>([&] { return house.keeper.turned_away; });
  CHECK(
      why ==
      "no connection can be taken in: EMFILE (Too many open files); raise the limit of "
      "open files (ulimit -n)");
  CHECK(house.ask<std::string>([&] { return house.keeper.no_room; }).empty());
  shortage.reset();
  // The member is accepted when there is room again.
  write(member, encode(hello_of(7)));
  char byte = 0;
  CHECK(::recv(member.get(), &byte, 1, 0) == 1);
  house.ask<int>([&] {
    house.loop.remove_timed(&turns);
    return 0;
  });
}

#endif

TEST_CASE("a dialling member tells absence, silence and invalid bytes apart", "[tcp]") {
  SystemClock clock;
  Address address;
  {
    House house;
    address = house.listener->address();
  }
  const Status gone = dial_tcp(address, clock, clock.now() + seconds(5)).status();
  CHECK(gone.code() == Code::kRetryLater);
  CHECK(gone.message().find("ECONNREFUSED") != std::string::npos);

  const Fd server(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  auto any = to_socket_address({"127.0.0.1", 0});
  REQUIRE(::bind(server.get(), any->get(), any->length) == 0);
  REQUIRE(::listen(server.get(), 4) == 0);
  SocketAddress bound;
  bound.length = sizeof bound.storage;
  REQUIRE(::getsockname(server.get(), bound.get(), &bound.length) == 0);
  address = from_socket_address(bound.storage);
  const Status silent =
      dial_tcp(address, clock, clock.now() + milliseconds(30)).status();
  CHECK(silent.code() == Code::kTimedOut);
  auto nonsense = std::async(std::launch::async, [&] {
    return dial_tcp(address, clock, clock.now() + seconds(5)).status();
  });
  const Fd first(::accept(server.get(), nullptr, nullptr));
  const Fd second(::accept(server.get(), nullptr, nullptr));
  write(second, std::vector<std::byte>(40, std::byte{'x'}));
  CHECK(nonsense.get().code() == Code::kProtocol);
}

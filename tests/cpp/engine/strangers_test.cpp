// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
//
// Tests of strangers that connect to a working group. Its calls go on with the right
// results and about as fast, and nothing of the strangers remains.

#include <arpa/inet.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <thread>

#include "engine/communicator.h"
#include "harness/catch.h"
#include "harness/members.h"

using namespace aikido;
using namespace aikido::testing;
using std::chrono::milliseconds;

namespace {

// Time in which a stranger has to greet.
constexpr Duration kHandshake = milliseconds(400);

size_t num_descriptors() {
  const std::filesystem::directory_iterator folder("/proc/self/fd");
  return static_cast<size_t>(std::distance(begin(folder), end(folder)));
}

std::vector<std::byte> bytes_of(const std::string& text) {
  const auto* data = reinterpret_cast<const std::byte*>(text.data());
  return {data, data + text.size()};
}

// A group of three members that reduces, and the address of its first member.
class Group {
 public:
  Group() : members_(connect_all(3, store_, kHandshake)) {
    for (auto& data : data_) data.resize(kCount);
    measure(20);  // warm-up
  }
  ~Group() {
    for (auto& m : members_) m.communicator->shutdown(seconds(5));
  }

  // Median time of `repeats` allreduces. Their results must be right.
  Duration measure(int repeats) {
    std::vector<Duration> times;
    for (int i = 0; i < repeats; ++i) times.push_back(reduce());
    std::nth_element(times.begin(), times.begin() + repeats / 2, times.end());
    return times[static_cast<size_t>(repeats) / 2];
  }
  Duration reduce() {
    const TimePoint start = clock_.now();
    std::vector<std::future<End>> ends;
    for (size_t r = 0; r < 3; ++r) {
      std::fill(data_[r].begin(), data_[r].end(), static_cast<float>(r + 1));
      ends.push_back(allreduce(*members_[r].communicator, data_[r]));
    }
    for (auto& end : ends) {
      const Status status = end.get().status;
      INFO(status.message());
      REQUIRE(status.is_ok());
    }
    const Duration took = clock_.now() - start;
    for (const auto& data : data_) {
      REQUIRE(std::count(data.begin(), data.end(), 6.0f) ==
              static_cast<ptrdiff_t>(kCount));
    }
    return took;
  }

  uint64_t strangers() { return members_[0].engine->num_strangers(); }
  void wait_for_strangers(uint64_t count) {
    while (strangers() < count) reduce();
    CHECK(strangers() == count);
  }
  transport::Hello hello() {
    transport::Hello hello;
    const std::string token = *store_.get("token", seconds(1));
    std::memcpy(hello.token.data(), token.data(), token.size());
    hello.rank = Rank(1);
    hello.size = 3;
    hello.agreed = "a=1;b=2";
    return hello;
  }
  // Any thread may call it.
  Fd connect_raw() {
    auto address = transport::to_socket_address(members_[0].engine->address());
    Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (::connect(socket.get(), address->get(), address->length) != 0) socket.reset();
    return socket;
  }

 private:
  static constexpr size_t kCount = 20'000;
  SystemClock clock_;
  MemoryStore store_;
  std::vector<Member> members_;
  std::array<std::vector<float>, 3> data_;
};

// The group may have closed its connection already.
void say(const Fd& socket, std::span<const std::byte> bytes) {
  [[maybe_unused]] const auto n =
      ::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
}
// Returns the answer; empty if the connection is cut without an answer.
std::vector<std::byte> hear(const Fd& socket) {
  std::vector<std::byte> answer(2048);
  const auto n = ::recv(socket.get(), answer.data(), answer.size(), MSG_WAITALL);
  answer.resize(static_cast<size_t>(std::max<ssize_t>(n, 0)));
  return answer;
}

}  // namespace

TEST_CASE("a group goes on, whatever strangers say", "[tcp]") {
  Group group;
  const auto good = encode(group.hello());
  auto wrong_token = good, other_version = good, long_one = good, short_one = good,
       lane = good;
  wrong_token[12] ^= std::byte{1};
  other_version[6] = std::byte{200};
  long_one[9] = std::byte{0xff};
  short_one[8] = std::byte{13};
  lane[52] = std::byte{7};
  std::vector<std::vector<std::byte>> texts = {
      wrong_token,
      other_version,
      long_one,
      short_one,
      lane,
      bytes_of("GET / HTTP/1.1\r\nHost: here\r\n\r\n"),
      bytes_of(std::string(100'000, 0)),
      bytes_of("AIKIDO")};
  transport::FrameHeader abort;  // a frame is no greeting
  abort.kind = transport::FrameKind::kAbort;
  texts.emplace_back(transport::kHeaderBytes);
  encode(abort, std::span<std::byte, transport::kHeaderBytes>(texts.back()));
  uint64_t count = 0;
  const size_t before = num_descriptors();
  for (const auto& text : texts) {
    const Fd stranger = group.connect_raw();
    say(stranger, text);
    group.reduce();
    if (&text == &texts[1]) {  // it gets the reason, and hangs up
      char byte = 0;
      CHECK(::recv(stranger.get(), &byte, 1, 0) == 1);
      ::shutdown(stranger.get(), SHUT_RDWR);
      group.wait_for_strangers(++count);
      continue;
    }
    CHECK(hear(stranger).empty());
    CHECK(group.strangers() == ++count);
  }
  // Half a greeting, and then the end.
  say(group.connect_raw(), std::span(good).first(30));
  group.wait_for_strangers(++count);
  CHECK(num_descriptors() == before);
}

TEST_CASE(
    "a stranger with the token is refused with a reason when all members are connected",
    "[tcp]") {
  Group group;
  const size_t before = num_descriptors();
  for (const int32_t rank : {-1, 0, 1, 2, 3, 1 << 30}) {
    for (const auto lane : {transport::Lane::kBulk, transport::Lane::kControl}) {
      auto hello = group.hello();
      hello.rank = Rank(rank);
      hello.lane = lane;
      const Fd stranger = group.connect_raw();
      say(stranger, encode(hello));
      const auto answer = hear(stranger);
      auto refusal = transport::decode_welcome(answer);
      REQUIRE((refusal && refusal->has_value()));
      const bool is_member = rank == 1 || rank == 2;
      CHECK((*refusal)->find(is_member ? "is connected already" : "is no member") !=
            std::string::npos);
      group.reduce();
    }
  }
  CHECK(num_descriptors() == before);
}

TEST_CASE("strangers that send a byte now and then are dropped in time", "[tcp]") {
  Group group;
  const auto good = encode(group.hello());
  std::vector<Fd> slow;
  for (int i = 0; i < 50; ++i) slow.push_back(group.connect_raw());
  for (size_t at = 0; group.strangers() < slow.size(); ++at) {
    REQUIRE(at + 1 < good.size());
    for (const Fd& stranger : slow) say(stranger, std::span(good).subspan(at, 1));
    for (int i = 0; i < 10; ++i) group.reduce();
    std::this_thread::sleep_for(kHandshake / 20);
  }
  CHECK(group.strangers() == slow.size());
}

TEST_CASE("a thousand strangers at once, or in a row, slow no call down", "[tcp]") {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  const rlim_t had =
      std::exchange(limit.rlim_cur, std::min<rlim_t>(limit.rlim_max, 4096));
  ::setrlimit(RLIMIT_NOFILE, &limit);
  {
    Group group;
    const Duration alone = group.measure(50);
    const size_t before = num_descriptors();
    std::vector<Fd> strangers;
    for (int i = 0; i < 1000; ++i) strangers.push_back(group.connect_raw());
    group.measure(10);
    // The last 256 strangers that say nothing are kept until their time is over.
    CHECK(num_descriptors() <= before + strangers.size() + 256);
    const Duration at_once = group.measure(50);
    strangers.clear();
    group.wait_for_strangers(1000);

    std::atomic<bool> is_over{false};
    std::thread attacker([&] {
      for (int i = 0; i < 1000; ++i) {
        say(group.connect_raw(), bytes_of("who is there?"));
        std::this_thread::sleep_for(std::chrono::microseconds(200));
      }
      is_over = true;
    });
    std::vector<Duration> in_a_row;
    while (!is_over) in_a_row.push_back(group.measure(10));
    attacker.join();
    group.wait_for_strangers(2000);
    CHECK(num_descriptors() == before);
    std::sort(in_a_row.begin(), in_a_row.end());
    const Duration median = in_a_row[in_a_row.size() / 2];
    INFO("allreduce of 80 kB: alone " << to_ms(alone) << " ms, beside 1000 at once "
                                      << to_ms(at_once) << " ms, in a row "
                                      << to_ms(median) << " ms");
    // The limits are wide because the attacker takes CPU time from the members, too.
    CHECK(at_once < 4 * alone + milliseconds(10));
    CHECK(median < 4 * alone + milliseconds(10));
  }
  limit.rlim_cur = had;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

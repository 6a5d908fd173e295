// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "transport/socket_stream.h"

#include <sys/socket.h>

#include <algorithm>

#include "harness/catch.h"
#include "harness/recording_handler.h"

using namespace aikido;
using namespace aikido::testing;
using namespace aikido::transport;

namespace {

struct Calls final : StreamHandler {
  void on_readable() override { ++num_readable; }
  void on_writable() override { ++num_writable; }
  WakePolicy wake_policy() const override { return WakePolicy::kNow; }
  int num_readable = 0;
  int num_writable = 0;
};

struct Near {
  Near() {
    int fds[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds) == 0);
    stream = std::make_unique<SocketStream>(&loop, Fd(fds[0]), Lane::kBulk);
    far = Fd(fds[1]);
    stream->start(&calls);
  }
  void run_a_turn() {
    // Descriptors are handled before posted work, which ends the second turn.
    loop.post([this] { loop.post([this] { loop.stop(); }); });
    loop.run();
  }
  size_t write(std::span<const std::byte> bytes) {
    const iovec part{const_cast<std::byte*>(bytes.data()), bytes.size()};
    auto n = stream->write({&part, 1});
    REQUIRE(n.is_ok());
    return *n;
  }

  EventLoop loop;
  Calls calls;
  std::unique_ptr<SocketStream> stream;
  Fd far;
};

}  // namespace

TEST_CASE("a socket reports when it is full, and when it has room again", "[tcp]") {
  Near near;
  const auto data = pattern(4 << 20);
  size_t put = 0;
  while (const size_t n = near.write(std::span(data).subspan(put))) put += n;
  CHECK(put < data.size());
  near.stream->wait_for_room(true);
  near.run_a_turn();
  CHECK(near.calls.num_writable == 0);
  std::vector<std::byte> got(data.size());
  size_t taken = 0;
  for (ssize_t n = 0; (n = ::recv(near.far.get(), got.data() + taken,
                                  got.size() - taken, MSG_DONTWAIT)) > 0;)
    taken += static_cast<size_t>(n);
  CHECK(taken == put);
  CHECK(std::equal(data.begin(), data.begin() + static_cast<ptrdiff_t>(put),
                   got.begin()));
  near.run_a_turn();
  CHECK(near.calls.num_writable > 0);
  near.stream->wait_for_room(false);
  const int before = near.calls.num_writable;
  near.run_a_turn();
  CHECK(near.calls.num_writable == before);
}

TEST_CASE("received bytes of a socket are read before its end", "[tcp]") {
  Near near;
  const auto data = pattern(10);
  REQUIRE(::send(near.far.get(), data.data(), data.size(), 0) == 10);
  near.far.reset();
  near.run_a_turn();
  CHECK(near.calls.num_readable > 0);
  std::vector<std::byte> got(100);
  const iovec part{got.data(), got.size()};
  auto n = near.stream->read({&part, 1}, Caching::kKept);
  REQUIRE(n.is_ok());
  CHECK(*n == 10);
  const Status end = near.stream->read({&part, 1}, Caching::kKept).status();
  CHECK(end.code() == Code::kPeerLost);
  CHECK(end.message().empty());
  near.stream->end();
  const int before = near.calls.num_readable;
  near.run_a_turn();
  CHECK(near.calls.num_readable == before);
}

TEST_CASE("a Unix socket is drained although its peer has read nothing", "[tcp]") {
  Near near;
  CHECK(near.write(pattern(100)) == 100);
  CHECK(near.stream->is_drained());
  near.stream->end_sending();
  const auto byte = pattern(1);
  const iovec part{const_cast<std::byte*>(byte.data()), 1};
  CHECK_FALSE(near.stream->write({&part, 1}).is_ok());
}

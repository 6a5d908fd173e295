// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "transport/local_socket.h"

#include <fcntl.h>

#include "harness/catch.h"
#include "harness/recording_handler.h"

using namespace aikido;
using namespace aikido::testing;
using namespace aikido::transport;

namespace {
const Address kAddress{"127.0.0.1", 1};  // nothing listens there over TCP

Fd accept_one(const Fd& listener) {
  return Fd(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
}
}  // namespace

TEST_CASE("a local socket beside an address carries bytes and a descriptor", "[tcp]") {
  const Fd listener = listen_beside(kAddress);
  REQUIRE(listener.is_open());
  const Fd near = connect_beside(kAddress);
  REQUIRE(near.is_open());
  const Fd far = accept_one(listener);
  const auto data = pattern(300);
  const Fd passed(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  REQUIRE(send_with(near, data, passed.get()));
  REQUIRE(send_with(near, data, -1));
  std::vector<std::byte> got(600);
  Fd taken;
  // The descriptor arrives with the first byte.
  REQUIRE(receive_with(far, std::span(got).first(1), taken) == 1);
  CHECK(taken.is_open());
  CHECK((::fcntl(taken.get(), F_GETFD) & FD_CLOEXEC) != 0);
  Fd none;
  ssize_t more = 1;
  while (more < 600)
    more += receive_with(far, std::span(got).subspan(static_cast<size_t>(more)), none);
  CHECK_FALSE(none.is_open());
  CHECK(std::equal(data.begin(), data.end(), got.begin()));
  CHECK(std::equal(data.begin(), data.end(), got.begin() + 300));
}

TEST_CASE("an address has at most one local listener, and none after its end",
          "[tcp]") {
  {
    const Fd listener = listen_beside(kAddress);
    CHECK(listener.is_open());
    CHECK_FALSE(listen_beside(kAddress).is_open());
    CHECK(listen_beside({"127.0.0.1", 2}).is_open());
    CHECK_FALSE(connect_beside({"127.0.0.1", 3}).is_open());
  }
  CHECK_FALSE(connect_beside(kAddress).is_open());
}

TEST_CASE("an invalid address has no local socket", "[tcp]") {
  for (const std::string& host : {std::string(500, 'x'), std::string("localhost")}) {
    CHECK_FALSE(listen_beside({host, 1}).is_open());
    CHECK_FALSE(connect_beside({host, 1}).is_open());
  }
}

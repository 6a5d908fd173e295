// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "transport/address.h"

#include "harness/catch.h"

using namespace aikido;
using namespace aikido::transport;

TEST_CASE("an address comes back from its text") {
  for (const Address& a : {Address{"127.0.0.1", 29500}, Address{"fe80::1:2", 1}}) {
    auto parsed = Address::parse(a.to_string());
    REQUIRE(parsed.is_ok());
    CHECK(parsed->host == a.host);
    CHECK(parsed->port == a.port);
  }
}

TEST_CASE("text that is no address is refused") {
  for (const char* text : {"", " ", "host", "1.2.3.4 ", "1.2.3.4 0", "1.2.3.4 65536",
                           "1.2.3.4 12x", "1.2.3.4:80", "1.2.3.4 -1"}) {
    INFO(text);
    CHECK(Address::parse(text).status().code() == Code::kProtocol);
  }
}

TEST_CASE("the loopback interface has the loopback address") {
  auto address = interface_address("lo");
  REQUIRE(address.is_ok());
  CHECK(*address == "127.0.0.1");
}

TEST_CASE("an address of this host has an interface") {
  CHECK(interface_of("127.0.0.1") == "lo");
  CHECK(interface_of("192.0.2.1").empty());
}

TEST_CASE("the first existing interface of a list is used") {
  auto address = interface_address("nosuch7,lo,nosuch8");
  REQUIRE(address.is_ok());
  CHECK(*address == "127.0.0.1");
  CHECK_FALSE(interface_address("nosuch7,nosuch8").is_ok());
  CHECK_FALSE(interface_address("").is_ok());
}

TEST_CASE("the error of an unknown interface lists the known interfaces") {
  const auto status = interface_address("nosuch7").status();
  CHECK(status.code() == Code::kInvalidArgument);
  CHECK(status.message().find("socket.ifname is \"nosuch7\", but this host has no such "
                              "interface with an address; it has ") == 0);
  CHECK(status.message().find("lo") != std::string::npos);
}

TEST_CASE("the source address for the loopback address is the loopback address") {
  auto source = source_address("127.0.0.1");
  REQUIRE(source.is_ok());
  CHECK(*source == "127.0.0.1");
}

TEST_CASE("the error for a host that does not resolve names it") {
  const auto status = source_address("no such host!").status();
  CHECK(status.code() == Code::kInvalidArgument);
  CHECK(status.message().find("\"no such host!\" does not resolve") == 0);
}

TEST_CASE("socket addresses of both families keep host and port") {
  for (const Address& a : {Address{"10.1.2.3", 80}, Address{"2001:db8::7", 65535}}) {
    auto socket = to_socket_address(a);
    REQUIRE(socket.is_ok());
    const Address back = from_socket_address(socket->storage);
    CHECK(back.host == a.host);
    CHECK(back.port == a.port);
  }
  CHECK(to_socket_address({"localhost", 1}).status().code() == Code::kInvalidArgument);
}

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Address of a member, with the text form "host port". The host is numeric, IPv4 or
// IPv6. Any thread. Only the name resolution in source_address() blocks.

#include <sys/socket.h>

#include <cstdint>
#include <string>

#include "base/status.h"

namespace aikido::transport {

struct Address {
  std::string host;  // numeric
  uint16_t port = 0;

  std::string to_string() const;
  // kProtocol if to_string() makes no such text.
  static Result<Address> parse(const std::string& text);

  friend bool operator==(const Address&, const Address&) = default;
};

// First address, IPv4 before IPv6, of the first interface in `names` ("eth0,eth1") that
// exists on this host. kInvalidArgument names the existing interfaces.
Result<std::string> interface_address(const std::string& names);

// Name of the interface of this host with the numeric address `host`. Empty: there is
// none.
std::string interface_of(const std::string& host);

// Local address that this host uses to reach `peer` (a name or number), by the kernel's
// routes and without sending anything. kInvalidArgument if `peer` does not resolve.
Result<std::string> source_address(const std::string& peer);

// For bind() and connect(). kInvalidArgument if the host is not numeric.
struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
};
Result<SocketAddress> to_socket_address(const Address& address);
Address from_socket_address(const sockaddr_storage& storage);

}  // namespace aikido::transport

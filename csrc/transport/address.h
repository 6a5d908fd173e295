// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Where a member can be reached. Text form "host port" with a numeric host, IPv4 or
// IPv6. Any thread; nothing here blocks but name resolution in source_address.

#include <sys/socket.h>

#include <cstdint>
#include <string>

#include "base/status.h"

namespace aikido::transport {

struct Address {
  std::string host;  // numeric
  uint16_t port = 0;

  std::string to_string() const;
  // kProtocol when the text is not one that to_string() makes.
  static Result<Address> parse(const std::string& text);

  friend bool operator==(const Address&, const Address&) = default;
};

// The first address, IPv4 before IPv6, of the first interface in `names` ("eth0,eth1")
// that this host has. kInvalidArgument names the interfaces that exist.
Result<std::string> interface_address(const std::string& names);

// The name of the interface of this host that has the numeric address `host`; empty:
// none has it.
std::string interface_of(const std::string& host);

// The local address from which this host would talk to `peer` (a name or number): what
// the kernel's routes say, without sending anything. kInvalidArgument when it does not
// resolve.
Result<std::string> source_address(const std::string& peer);

// For bind() and connect(). kInvalidArgument when the host is not numeric.
struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
};
Result<SocketAddress> to_socket_address(const Address& address);
Address from_socket_address(const sockaddr_storage& storage);

}  // namespace aikido::transport

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "transport/address.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <map>
#include <memory>
#include <sstream>

#include "base/check.h"
#include "base/fd.h"

namespace aikido::transport {
namespace {

std::string numeric_host(const sockaddr* address) {
  char text[INET6_ADDRSTRLEN] = {};
  if (address->sa_family == AF_INET) {
    const auto* in = reinterpret_cast<const sockaddr_in*>(address);
    ::inet_ntop(AF_INET, &in->sin_addr, text, sizeof text);
  } else {
    const auto* in6 = reinterpret_cast<const sockaddr_in6*>(address);
    ::inet_ntop(AF_INET6, &in6->sin6_addr, text, sizeof text);
  }
  return text;
}

}  // namespace

std::string Address::to_string() const {
  return host + " " + std::to_string(port);
}

Result<Address> Address::parse(const std::string& text) {
  const auto space = text.find(' ');
  Address address;
  if (space != std::string::npos) {
    address.host = text.substr(0, space);
    const char* begin = text.data() + space + 1;
    const char* end = text.data() + text.size();
    const auto parsed = std::from_chars(begin, end, address.port);
    if (parsed.ec == std::errc() && parsed.ptr == end && address.port != 0)
      return address;
  }
  return Status(Code::kProtocol, "\"" + text + "\" is no address (\"host port\")");
}

std::string interface_of(const std::string& host) {
  ifaddrs* raw = nullptr;
  if (::getifaddrs(&raw) != 0) return {};
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> list(raw, &::freeifaddrs);
  // The list has one entry for each address, so an interface may occur several times.
  for (const ifaddrs* i = list.get(); i != nullptr; i = i->ifa_next) {
    if (i->ifa_addr == nullptr) continue;
    const int family = i->ifa_addr->sa_family;
    const bool is_internet = family == AF_INET || family == AF_INET6;
    if (is_internet && numeric_host(i->ifa_addr) == host) return i->ifa_name;
  }
  return {};
}

Result<std::string> interface_address(const std::string& names) {
  ifaddrs* raw = nullptr;
  if (::getifaddrs(&raw) != 0) {
    return Status(Code::kInvalidArgument,
                  "cannot list the network interfaces: " + describe_errno(errno));
  }
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> list(raw, &::freeifaddrs);
  std::map<std::string, std::string> known;  // interface to its first address
  for (const int family : {AF_INET, AF_INET6}) {
    for (const ifaddrs* i = list.get(); i != nullptr; i = i->ifa_next) {
      if (i->ifa_addr == nullptr || i->ifa_addr->sa_family != family) continue;
      // A link-local address needs a scope that the text form does not carry.
      if (family == AF_INET6 &&
          IN6_IS_ADDR_LINKLOCAL(
              &reinterpret_cast<const sockaddr_in6*>(i->ifa_addr)->sin6_addr)) {
        continue;
      }
      known.emplace(i->ifa_name, numeric_host(i->ifa_addr));
    }
  }
  std::istringstream wanted(names);
  for (std::string name; std::getline(wanted, name, ',');) {
    const auto it = known.find(name);
    if (it != known.end()) return it->second;
  }
  std::string text;
  for (const auto& [name, address] : known) text += (text.empty() ? "" : ", ") + name;
  return Status(Code::kInvalidArgument,
                "socket.ifname is \"" + names +
                    "\", but this host has no such interface with an address; it has " +
                    text);
}

Result<std::string> source_address(const std::string& peer) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* raw = nullptr;
  // connect() on a datagram socket sends nothing. It only makes the kernel choose a
  // route and with it a source address. So the port does not matter; 9 is the discard
  // service.
  const int error = ::getaddrinfo(peer.c_str(), "9", &hints, &raw);
  if (error != 0) {
    return Status(Code::kInvalidArgument,
                  "\"" + peer + "\" does not resolve: " + ::gai_strerror(error));
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> list(raw, &::freeaddrinfo);
  for (const addrinfo* a = list.get(); a != nullptr; a = a->ai_next) {
    const Fd probe(::socket(a->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (!probe.is_open()) continue;
    if (::connect(probe.get(), a->ai_addr, a->ai_addrlen) != 0) continue;
    SocketAddress local;
    local.length = sizeof local.storage;
    if (::getsockname(probe.get(), local.get(), &local.length) == 0) {
      return numeric_host(local.get());
    }
  }
  return Status(Code::kInvalidArgument, "this host has no route to \"" + peer + "\"");
}

Result<SocketAddress> to_socket_address(const Address& address) {
  SocketAddress out;
  auto* in = reinterpret_cast<sockaddr_in*>(&out.storage);
  auto* in6 = reinterpret_cast<sockaddr_in6*>(&out.storage);
  // Only numeric addresses: a name would need a resolver call, which can block.
  if (::inet_pton(AF_INET, address.host.c_str(), &in->sin_addr) == 1) {
    in->sin_family = AF_INET;
    in->sin_port = htons(address.port);
    out.length = sizeof(sockaddr_in);
    return out;
  }
  if (::inet_pton(AF_INET6, address.host.c_str(), &in6->sin6_addr) == 1) {
    in6->sin6_family = AF_INET6;
    in6->sin6_port = htons(address.port);
    out.length = sizeof(sockaddr_in6);
    return out;
  }
  return Status(Code::kInvalidArgument,
                "\"" + address.host + "\" is no numeric IPv4 or IPv6 address");
}

Address from_socket_address(const sockaddr_storage& storage) {
  Address address;
  address.host = numeric_host(reinterpret_cast<const sockaddr*>(&storage));
  address.port = storage.ss_family == AF_INET
                     ? ntohs(reinterpret_cast<const sockaddr_in&>(storage).sin_port)
                     : ntohs(reinterpret_cast<const sockaddr_in6&>(storage).sin6_port);
  return address;
}

}  // namespace aikido::transport

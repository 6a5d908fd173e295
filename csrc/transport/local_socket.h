// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Unix sockets beside the TCP address of a listener, for processes on the same host.
// Their names are abstract: only processes of the same network namespace find them, and
// no file remains. So two connected processes share the kernel, as shared memory
// requires. Containers and namespaces with their own networks count as other hosts. Any
// thread.

#include <cstddef>
#include <span>

#include "base/fd.h"
#include "transport/address.h"

namespace aikido::transport {

// Listens beside `address`. Not open: the kernel has no such sockets.
Fd listen_beside(const Address& address);

// Non-blocking connection to the listener beside `address`. Not open: there is none in
// this network namespace, or it belongs to another user.
Fd connect_beside(const Address& address);

// True if the process at the other end belongs to the same user. From another user not
// even a descriptor is accepted, because closing it may take long.
bool is_same_user(const Fd& socket);

// Process id at the other end. 0: the process is in a pid namespace that this process
// cannot see.
int pid_of_peer(const Fd& socket);

// Sends all bytes, and with them the descriptor `passed` unless it is -1. For a new
// connection, which takes a kilobyte at once.
bool send_with(const Fd& socket, std::span<const std::byte> bytes, int passed);

// As recv(2). A received descriptor goes into `passed`.
ssize_t receive_with(const Fd& socket, std::span<std::byte> into, Fd& passed);

}  // namespace aikido::transport

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Unix sockets beside the TCP address of a listener, for those who are on the same
// host. Their names are abstract: only processes of the same network namespace find
// them, and nothing of them stays behind. So whoever is reached by one shares the
// kernel, which is what shared memory needs; containers and namespaces with networks of
// their own are other hosts. Any thread.

#include <cstddef>
#include <span>

#include "base/fd.h"
#include "transport/address.h"

namespace aikido::transport {

// Listens beside `address`. Not open: the kernel has no such sockets.
Fd listen_beside(const Address& address);

// A non-blocking connection to who listens beside `address`. Not open: there is nobody
// in this network namespace, or it belongs to another user.
Fd connect_beside(const Address& address);

// Whether the process at the other end belongs to the user of this one. From anybody
// else not even a descriptor is taken: to close it may take long.
bool is_same_user(const Fd& socket);

// The process at the other end; 0: it is in a pid namespace that we do not see.
int pid_of_peer(const Fd& socket);

// Sends all bytes, and with them the descriptor `passed` unless it is -1. For a new
// connection, which takes a kilobyte at once.
bool send_with(const Fd& socket, std::span<const std::byte> bytes, int passed);

// As recv(2); a descriptor that came along goes into `passed`.
ssize_t receive_with(const Fd& socket, std::span<std::byte> into, Fd& passed);

}  // namespace aikido::transport

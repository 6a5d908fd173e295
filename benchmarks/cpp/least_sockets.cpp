// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
//
// Collectives over plain TCP sockets, for least_exchange.py. Each rank has one
// connection to every other rank. The calling thread serves the connections with send()
// and recv() while data moves, and with poll() otherwise. There are no frames, no
// checks and no other thread. Nothing is added up: instead, one source is copied to the
// place of the sum. All bytes of the user's tensors are read and written.
//
// Functions return 0 or an errno value.

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "collectives/shard_plan.h"

namespace {

using aikido::collectives::ShardPlan;

constexpr int kMostSilenceMs = 30'000;  // then no rank sends any more
constexpr size_t kMinShardBytes = 16 << 10;

// Note [parts]
// Reading received data again is cheaper while it is in the caches. So shards are
// exchanged in parts of this size, one after the other. With parts, an allreduce of 16
// MiB between two ranks takes 7.7 ms, and with whole shards 9.6 ms. The results of a
// part go together with the next part, so that no rank waits twice for each part.
constexpr size_t kPartBytes = 256 << 10;

// Larger broadcasts are relayed. To three other ranks, 1 MiB takes 1.03 ms instead of
// 1.15 ms, and 16 MiB take 8.1 ms instead of 10.7 ms.
constexpr size_t kMostUnrelayedBytes = 64 << 10;

template <class Byte>
struct Piece {
  Byte* data = nullptr;
  size_t bytes = 0;
};

template <class Byte>
void queue(Piece<Byte>& first, Piece<Byte>& next, Piece<Byte> piece) {
  (first.bytes == 0 ? first : next) = piece;
}

// Transfers with one other rank, in both directions. The `next` pieces go behind the
// first.
struct Flow {
  int fd = -1;
  Piece<const std::byte> out, next_out;
  Piece<std::byte> in, next_in;
  // The sent data of this exchange comes from this flow: no more is sent than has
  // arrived.
  const Flow* relayed_from = nullptr;

  void send(const std::byte* data, size_t bytes) {
    queue(out, next_out, {data, bytes});
  }
  void receive(std::byte* data, size_t bytes) { queue(in, next_in, {data, bytes}); }
  size_t sendable() const {
    const size_t to_come = relayed_from == nullptr ? 0 : relayed_from->in.bytes;
    return out.bytes - std::min(out.bytes, to_come);
  }
};

template <class Byte>
void advance(Piece<Byte>& first, Piece<Byte>& next, ssize_t bytes) {
  first.data += bytes;
  first.bytes -= static_cast<size_t>(bytes);
  if (first.bytes == 0) first = std::exchange(next, {});
}

struct Sockets {
  uint32_t rank;
  std::vector<Flow> flows;  // by rank; the own one is never used
  std::vector<pollfd> polled;
  std::vector<std::byte> scratch;

  uint32_t num_ranks() const { return static_cast<uint32_t>(flows.size()); }
  std::byte* scratch_of(size_t bytes) {
    if (scratch.size() < bytes) scratch.resize(bytes);
    return scratch.data();
  }
};

bool is_to_wait(int error) {
  return error == EAGAIN || error == EWOULDBLOCK || error == EINTR;
}

// Both functions return the number of moved bytes, or a negative errno value.
ssize_t send_some(Flow& flow) {
  const size_t bytes = flow.sendable();
  if (bytes == 0) return 0;
  const ssize_t n = ::send(flow.fd, flow.out.data, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (n < 0) return is_to_wait(errno) ? 0 : -errno;
  advance(flow.out, flow.next_out, n);
  return n;
}

ssize_t receive_some(Flow& flow) {
  if (flow.in.bytes == 0) return 0;
  const ssize_t n = ::recv(flow.fd, flow.in.data, flow.in.bytes, MSG_DONTWAIT);
  if (n == 0) return -ECONNRESET;
  if (n < 0) return is_to_wait(errno) ? 0 : -errno;
  advance(flow.in, flow.next_in, n);
  return n;
}

int sleep(Sockets& sockets) {
  for (size_t i = 0; i < sockets.flows.size(); ++i) {
    const Flow& flow = sockets.flows[i];
    const int events =
        (flow.in.bytes > 0 ? POLLIN : 0) | (flow.sendable() > 0 ? POLLOUT : 0);
    sockets.polled[i] = {
        .fd = events == 0 ? -1 : flow.fd,
        .events = static_cast<short>(events),
        .revents = 0,
    };
  }
  const int n = ::poll(sockets.polled.data(), sockets.polled.size(), kMostSilenceMs);
  if (n == 0) return ETIMEDOUT;
  return n < 0 && errno != EINTR ? errno : 0;
}

// Runs until all flows have sent and received their data.
int exchange(Sockets& sockets) {
  while (true) {
    bool has_moved = false;
    bool is_through = true;
    for (Flow& flow : sockets.flows) {
      const ssize_t sent = send_some(flow);
      const ssize_t received = receive_some(flow);
      if (sent < 0 || received < 0) return static_cast<int>(-std::min(sent, received));
      has_moved = has_moved || sent + received > 0;
      is_through = is_through && flow.out.bytes + flow.in.bytes == 0;
    }
    if (is_through) break;
    if (has_moved) continue;
    if (const int error = sleep(sockets); error != 0) return error;
  }
  for (Flow& flow : sockets.flows) flow.relayed_from = nullptr;
  return 0;
}

// The root sends each rank its piece. The rank passes it on to the others as it
// arrives.
void relay_broadcast(Sockets& sockets, std::byte* data, size_t bytes) {
  const uint32_t num_pieces = sockets.num_ranks() - 1;
  const auto begin = [&](uint32_t piece) { return bytes * piece / num_pieces; };
  const auto size = [&](uint32_t piece) { return begin(piece + 1) - begin(piece); };
  Flow& root = sockets.flows[0];
  const uint32_t own = sockets.rank - 1;
  for (uint32_t peer = 1; peer < sockets.num_ranks(); ++peer) {
    Flow& flow = sockets.flows[peer];
    const uint32_t piece = peer - 1;
    if (sockets.rank == 0) {
      flow.send(data + begin(piece), size(piece));
    } else if (peer != sockets.rank) {
      flow.send(data + begin(own), size(own));
      flow.relayed_from = &root;
      flow.receive(data + begin(piece), size(piece));
    }
  }
  if (sockets.rank != 0) root.receive(data + begin(own), size(own));
}

// A range of bytes of a tensor.
struct Part {
  size_t first = 0;
  size_t bytes = 0;
};

// Sends each rank the part that `part_of` names for it. Receives the own part of all
// other ranks into the scratch memory.
template <class PartOf>
int give_to_owners(Sockets& sockets, const std::byte* data, const PartOf& part_of) {
  const size_t own_bytes = part_of(sockets.rank).bytes;
  std::byte* scratch = sockets.scratch_of(own_bytes * sockets.num_ranks());
  for (uint32_t peer = 0; peer < sockets.num_ranks(); ++peer) {
    if (peer == sockets.rank) continue;
    const Part theirs = part_of(peer);
    sockets.flows[peer].send(data + theirs.first, theirs.bytes);
    sockets.flows[peer].receive(scratch + own_bytes * peer, own_bytes);
  }
  return exchange(sockets);
}

}  // namespace

extern "C" {

// `fds` has one connection for each rank; the entry at `rank` is not used. The caller
// keeps and closes them.
Sockets* least_sockets_open(const int* fds, uint32_t rank, uint32_t num_ranks) {
  auto* sockets = new Sockets{
      .rank = rank,
      .flows = std::vector<Flow>(num_ranks),
      .polled = std::vector<pollfd>(num_ranks),
      .scratch = {},
  };
  for (uint32_t i = 0; i < num_ranks; ++i) sockets->flows[i].fd = fds[i];
  return sockets;
}

void least_sockets_close(Sockets* sockets) {
  delete sockets;
}

// Broadcasts from rank 0.
int least_sockets_broadcast(Sockets* sockets, std::byte* data, size_t bytes) {
  if (bytes > kMostUnrelayedBytes) {
    relay_broadcast(*sockets, data, bytes);
  } else if (sockets->rank != 0) {
    sockets->flows[0].receive(data, bytes);
  } else {
    for (uint32_t peer = 1; peer < sockets->num_ranks(); ++peer)
      sockets->flows[peer].send(data, bytes);
  }
  return exchange(*sockets);
}

// Here and below, `bytes` is the size of one block.
int least_sockets_alltoall(Sockets* sockets, const std::byte* from, std::byte* into,
                           size_t bytes) {
  for (uint32_t peer = 0; peer < sockets->num_ranks(); ++peer) {
    if (peer == sockets->rank) continue;
    sockets->flows[peer].send(from + peer * bytes, bytes);
    sockets->flows[peer].receive(into + peer * bytes, bytes);
  }
  const size_t own = sockets->rank * bytes;
  std::memcpy(into + own, from + own, bytes);
  return exchange(*sockets);
}

int least_sockets_allgather(Sockets* sockets, const std::byte* from, std::byte* into,
                            size_t bytes) {
  for (uint32_t peer = 0; peer < sockets->num_ranks(); ++peer) {
    if (peer == sockets->rank) continue;
    sockets->flows[peer].send(from, bytes);
    sockets->flows[peer].receive(into + peer * bytes, bytes);
  }
  std::memcpy(into + sockets->rank * bytes, from, bytes);
  return exchange(*sockets);
}

int least_sockets_reduce_scatter(Sockets* sockets, const std::byte* from,
                                 std::byte* into, size_t bytes) {
  for (size_t at = 0; at < bytes; at += kPartBytes) {
    const auto part_of = [&](uint32_t owner) {
      return Part{owner * bytes + at, std::min(kPartBytes, bytes - at)};
    };
    if (const int error = give_to_owners(*sockets, from, part_of); error != 0)
      return error;
    const Part own = part_of(sockets->rank);
    std::memcpy(into + at, from + own.first, own.bytes);
  }
  return 0;
}

// Allreduce of float32: each shard goes to its owner, and from there to all ranks.
int least_sockets_allreduce(Sockets* sockets, std::byte* data, size_t bytes) {
  const ShardPlan plan(bytes / sizeof(float), sizeof(float),
                       static_cast<int32_t>(sockets->num_ranks()), kMinShardBytes);
  const auto part_of = [&](uint32_t owner, size_t at) {
    const auto shard = static_cast<int32_t>(owner);
    if (shard >= plan.num_shards() || at >= plan.num_bytes(shard)) return Part{};
    return Part{plan.first_byte(shard) + at,
                std::min(kPartBytes, plan.num_bytes(shard) - at)};
  };
  const size_t source = sockets->rank == 0 ? 1 : 0;
  for (size_t at = 0; at < plan.num_bytes(0); at += kPartBytes) {
    // Goes behind the results of the previous part, which have not been exchanged yet.
    const auto here = [&](uint32_t owner) { return part_of(owner, at); };
    if (const int error = give_to_owners(*sockets, data, here); error != 0)
      return error;
    const Part own = here(sockets->rank);
    if (own.bytes > 0)
      std::memcpy(data + own.first, sockets->scratch.data() + source * own.bytes,
                  own.bytes);
    for (uint32_t peer = 0; peer < sockets->num_ranks(); ++peer) {
      if (peer == sockets->rank) continue;
      const Part theirs = here(peer);
      sockets->flows[peer].send(data + own.first, own.bytes);
      sockets->flows[peer].receive(data + theirs.first, theirs.bytes);
    }
  }
  return exchange(*sockets);
}

}  // extern "C"

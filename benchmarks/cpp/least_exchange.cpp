// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
//
// The least work of ranks on one host for a collective, for least_exchange.py: a
// library that only uses shared memory. The data of the ranks lies in this memory and
// in the caches from the start, so no rank copies it in. A receiving rank copies it
// once, a waiting rank sleeps once, and one system call wakes all sleeping ranks. There
// are no frames, no checks and no time-outs, and no rank reports that it is done. So
// operations must not overlap, and all ranks must take part in each.

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace {

constexpr size_t kLine = 64;
constexpr size_t kHeaderRoom = 4096;
constexpr size_t kDataBytes = 256 << 10;

struct Shared {
  // Number of operations that have begun for all ranks. Ranks sleep on it.
  alignas(kLine) std::atomic<uint32_t> number;
  alignas(kLine) std::atomic<uint32_t> num_arrived;
  alignas(kLine) std::atomic<uint32_t> num_asleep;
};
static_assert(sizeof(Shared) <= kHeaderRoom);

struct Place {
  Shared* shared;
  uint32_t num_ranks;
  uint32_t rank;
  uint32_t number = 0;
};

// Copies the data of the other ranks: a part that stays in the caches, again and again.
void take(const Place& place, std::byte* into, size_t bytes) {
  const auto* data = reinterpret_cast<const std::byte*>(place.shared) + kHeaderRoom;
  for (size_t at = 0; at < bytes; at += kDataBytes)
    std::memcpy(into + at, data, std::min(kDataBytes, bytes - at));
}

void futex(std::atomic<uint32_t>& word, int operation, uint32_t value) {
  ::syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), operation, value, nullptr,
            nullptr, 0);
}

void begin_for_all(Shared& shared) {
  shared.number.fetch_add(1);
  if (shared.num_asleep.exchange(0) > 0) futex(shared.number, FUTEX_WAKE, INT_MAX);
}

void wait_for_begin(Place& place) {
  const uint32_t before = place.number++;
  while (place.shared->number.load() == before) {
    place.shared->num_asleep.fetch_add(1);
    futex(place.shared->number, FUTEX_WAIT, before);
  }
}

}  // namespace

extern "C" {

// Returns null if there is no such memory. The first rank makes it, and all others come
// later.
Place* least_open(const char* name, uint32_t rank, uint32_t num_ranks) {
  const int fd = ::shm_open(name, O_RDWR | (rank == 0 ? O_CREAT | O_EXCL : 0), 0600);
  if (fd < 0) return nullptr;
  const size_t size = kHeaderRoom + kDataBytes;
  void* base = MAP_FAILED;
  if (rank != 0 || ::ftruncate(fd, static_cast<off_t>(size)) == 0)
    base =
        ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
  ::close(fd);
  if (base == MAP_FAILED) return nullptr;
  return new Place{static_cast<Shared*>(base), num_ranks, rank};
}

// To be called when all ranks have the memory.
void least_unlink(const char* name) {
  ::shm_unlink(name);
}

// Broadcasts from rank 0.
void least_broadcast(Place* place, std::byte* into, size_t bytes) {
  if (place->rank == 0) {
    ++place->number;
    return begin_for_all(*place->shared);
  }
  wait_for_begin(*place);
  take(*place, into, bytes);
}

// `bytes` is the size for all ranks together. The own part is copied, too.
void least_alltoall(Place* place, std::byte* into, size_t bytes) {
  Shared& shared = *place->shared;
  if (shared.num_arrived.fetch_add(1) + 1 == place->num_ranks) {
    shared.num_arrived.store(0);
    ++place->number;
    begin_for_all(shared);
  } else {
    wait_for_begin(*place);
  }
  take(*place, into, bytes);
}

}  // extern "C"

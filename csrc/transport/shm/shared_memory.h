// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Memory that two processes of one host share: a ring for each direction, and the
// leases of each other's blocks (`shm_buffer_pool.h`).

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/fd.h"
#include "base/status.h"
#include "transport/shm/mapping.h"
#include "transport/shm/shared_ring.h"
#include "transport/shm/shm_leases.h"

namespace aikido::transport {

class SharedMemory {
 public:
  // New memory, completely allocated, with rings of `ring_bytes` each, rounded up to a
  // power of two and at least a page. kRetryLater with the kernel's reason if there is
  // none.
  static Result<SharedMemory> make(size_t ring_bytes);
  // Memory that its maker has sent. kProtocol: it is no such memory, or could shrink.
  static Result<SharedMemory> open(Fd fd);

  // Descriptor for the other process. It is closed once the other process has it.
  Fd& fd() { return fd_; }
  // The other process accepts the memory, before it answers the greeting.
  void accept() { header().is_accepted.store(1); }
  bool is_accepted() const { return header().is_accepted.load() != 0; }

  size_t ring_bytes() const { return ring_bytes_; }
  RingWriter writer() { return {&ring(is_maker_), data(is_maker_), ring_bytes_}; }
  RingReader reader() { return {&ring(!is_maker_), data(!is_maker_), ring_bytes_}; }
  // Leases of the blocks of this process at the other, and of the other's blocks here.
  LeaseState* granted() { return &header().leases[is_maker_ ? 1 : 0]; }
  LeaseState* held() { return &header().leases[is_maker_ ? 0 : 1]; }

 private:
  struct Header {
    std::atomic<uint32_t> is_accepted;
    // Index 1 is for the bytes and blocks of the maker, index 0 for those of the other
    // process.
    RingState rings[2];
    LeaseState leases[2];
  };
  static constexpr size_t kHeaderRoom = 4096;
  static_assert(sizeof(Header) <= kHeaderRoom);

  SharedMemory(Fd fd, Mapping mapping, size_t ring_bytes, bool is_maker)
      : fd_(std::move(fd)),
        mapping_(std::move(mapping)),
        ring_bytes_(ring_bytes),
        is_maker_(is_maker) {}
  static Result<SharedMemory> map(Fd fd, size_t ring_bytes, bool is_maker);
  static size_t size_of(size_t ring_bytes) { return kHeaderRoom + 2 * ring_bytes; }

  Header& header() const { return *reinterpret_cast<Header*>(mapping_.data()); }
  RingState& ring(bool second) { return header().rings[second ? 1 : 0]; }
  std::byte* data(bool second) {
    return mapping_.data() + kHeaderRoom + (second ? ring_bytes_ : 0);
  }

  Fd fd_;
  Mapping mapping_;
  size_t ring_bytes_;
  bool is_maker_;
};

}  // namespace aikido::transport

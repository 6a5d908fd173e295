// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "transport/shm/shared_memory.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace aikido::transport {
namespace {

constexpr size_t kLeastRing = 4096;
constexpr size_t kMostRing = size_t{1} << 30;

}  // namespace

Result<SharedMemory> SharedMemory::make(size_t ring_bytes) {
  const size_t ring = std::bit_ceil(std::clamp(ring_bytes, kLeastRing, kMostRing));
  auto fd = make_sealed_memory(size_of(ring));
  if (!fd) return fd.status();
  return map(std::move(*fd), ring, true);
}

Result<SharedMemory> SharedMemory::open(Fd fd) {
  auto size = size_of_sealed_memory(fd);
  if (!size) return size.status();
  // The size comes from the other process. It is accepted only if it is exactly that of
  // a ring size which make() could have used.
  const size_t ring = *size < kHeaderRoom ? 0 : (*size - kHeaderRoom) / 2;
  if (!std::has_single_bit(ring) || ring < kLeastRing || ring > kMostRing ||
      *size != size_of(ring))
    return Status(Code::kProtocol, concat("shared memory of ", *size, " bytes"));
  return map(std::move(fd), ring, false);
}

Result<SharedMemory> SharedMemory::map(Fd fd, size_t ring_bytes, bool is_maker) {
  auto mapping = Mapping::map(fd, size_of(ring_bytes), Mapping::Access::kReadWrite);
  if (!mapping) return mapping.status();
  return SharedMemory(std::move(fd), std::move(*mapping), ring_bytes, is_maker);
}

}  // namespace aikido::transport

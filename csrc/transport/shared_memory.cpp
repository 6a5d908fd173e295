// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "transport/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <utility>

namespace aikido::transport {
namespace {

constexpr size_t kLeastRing = 4096;
constexpr size_t kMostRing = size_t{1} << 30;
// Pages that are taken away from below a mapping end the process that touches them.
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

Status none(const char* what) {
  return {Code::kRetryLater, concat("the kernel gives no shared memory: ", what, ": ",
                                    describe_errno(errno))};
}

}  // namespace

Result<SharedMemory> SharedMemory::make(size_t ring_bytes) {
  const size_t ring = std::bit_ceil(std::clamp(ring_bytes, kLeastRing, kMostRing));
  Fd fd(::memfd_create("aikido", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.is_open()) return none("memfd_create");
  const auto size = static_cast<off_t>(size_of(ring));
  if (::ftruncate(fd.get(), size) != 0) return none("ftruncate");
  // Now, and not at the first touch, where it would be the end of the process.
  while (::fallocate(fd.get(), 0, 0, size) != 0)
    if (errno != EINTR) return none("fallocate");
  if (::fcntl(fd.get(), F_ADD_SEALS, kSeals) != 0) return none("fcntl(F_ADD_SEALS)");
  return map(std::move(fd), ring, true);
}

Result<SharedMemory> SharedMemory::open(Fd fd) {
  struct stat found {};
  const int seals = ::fcntl(fd.get(), F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals || ::fstat(fd.get(), &found) != 0)
    return Status(Code::kProtocol, "this is no memory to share");
  const auto size = static_cast<size_t>(std::max<off_t>(found.st_size, 0));
  const size_t ring = size < kHeaderRoom ? 0 : (size - kHeaderRoom) / 2;
  if (!std::has_single_bit(ring) || ring < kLeastRing || ring > kMostRing ||
      size != size_of(ring))
    return Status(Code::kProtocol, concat("shared memory of ", size, " bytes"));
  return map(std::move(fd), ring, false);
}

Result<SharedMemory> SharedMemory::map(Fd fd, size_t ring_bytes, bool is_maker) {
  void* base = ::mmap(nullptr, size_of(ring_bytes), PROT_READ | PROT_WRITE, MAP_SHARED,
                      fd.get(), 0);
  if (base == MAP_FAILED) return none("mmap");
  // A child that lives on must not keep what the dead have shared.
  ::madvise(base, size_of(ring_bytes), MADV_DONTFORK);
  return SharedMemory(std::move(fd), base, ring_bytes, is_maker);
}

SharedMemory::SharedMemory(SharedMemory&& other) noexcept
    : fd_(std::move(other.fd_)),
      base_(std::exchange(other.base_, nullptr)),
      ring_bytes_(other.ring_bytes_),
      is_maker_(other.is_maker_) {}

SharedMemory& SharedMemory::operator=(SharedMemory&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(base_, other.base_);
  std::swap(ring_bytes_, other.ring_bytes_);
  std::swap(is_maker_, other.is_maker_);
  return *this;
}

SharedMemory::~SharedMemory() {
  if (base_ != nullptr) ::munmap(base_, size_of(ring_bytes_));
}

}  // namespace aikido::transport

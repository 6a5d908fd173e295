// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "transport/shm/mapping.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace aikido::transport {
namespace {

// With these seals no process can shrink the memory. Otherwise a process that touches a
// removed page would be killed by SIGBUS.
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

Status none(const char* what) {
  return {Code::kRetryLater, concat("the kernel gives no shared memory: ", what, ": ",
                                    describe_errno(errno))};
}

}  // namespace

Result<Fd> make_sealed_memory(size_t bytes) {
  Fd fd(::memfd_create("aikido", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.is_open()) return none("memfd_create");
  const auto size = static_cast<off_t>(bytes);
  if (::ftruncate(fd.get(), size) != 0) return none("ftruncate");
  // Allocates all pages now. Without this, a shortage would kill the process at its
  // first access.
  while (::fallocate(fd.get(), 0, 0, size) != 0)
    if (errno != EINTR) return none("fallocate");
  if (::fcntl(fd.get(), F_ADD_SEALS, kSeals) != 0) return none("fcntl(F_ADD_SEALS)");
  return fd;
}

Result<size_t> size_of_sealed_memory(const Fd& fd) {
  struct stat found {};
  const int seals = ::fcntl(fd.get(), F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals || ::fstat(fd.get(), &found) != 0)
    return Status(Code::kProtocol, "this is no memory to share");
  return static_cast<size_t>(std::max<off_t>(found.st_size, 0));
}

Result<Mapping> Mapping::map(const Fd& fd, size_t bytes, Access access) {
  const int protection =
      access == Access::kReadOnly ? PROT_READ : PROT_READ | PROT_WRITE;
  void* data = ::mmap(nullptr, bytes, protection, MAP_SHARED, fd.get(), 0);
  if (data == MAP_FAILED) return none("mmap");
  // A child process that outlives its parent must not keep the shared memory alive.
  ::madvise(data, bytes, MADV_DONTFORK);
  return Mapping(static_cast<std::byte*>(data), bytes);
}

Mapping::Mapping(Mapping&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(other.bytes_) {}

Mapping& Mapping::operator=(Mapping&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

Mapping::~Mapping() {
  if (data_ != nullptr) ::munmap(data_, bytes_);
}

}  // namespace aikido::transport

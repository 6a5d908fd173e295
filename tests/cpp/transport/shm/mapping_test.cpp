// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "transport/shm/mapping.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>

#include "harness/catch.h"

using namespace aikido;
using namespace aikido::transport;

TEST_CASE("bytes written through one mapping are read through another", "[unit]") {
  auto fd = make_sealed_memory(8192);
  REQUIRE(fd.is_ok());
  CHECK(*size_of_sealed_memory(*fd) == 8192);
  auto writes = Mapping::map(*fd, 8192, Mapping::Access::kReadWrite);
  auto reads = Mapping::map(*fd, 8192, Mapping::Access::kReadOnly);
  REQUIRE(writes.is_ok());
  REQUIRE(reads.is_ok());
  fd->reset();
  writes->data()[8191] = std::byte{7};
  CHECK(reads->data()[8191] == std::byte{7});
  Mapping moved = std::move(*reads);
  CHECK(moved.data()[8191] == std::byte{7});
}

TEST_CASE("a sealed size cannot change", "[unit]") {
  auto fd = make_sealed_memory(8192);
  REQUIRE(fd.is_ok());
  CHECK(::ftruncate(fd->get(), 4096) != 0);
  CHECK(::ftruncate(fd->get(), 16384) != 0);
}

TEST_CASE("memory that could shrink, and a descriptor without memory, are refused",
          "[unit]") {
  const Fd unsealed(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  CHECK(size_of_sealed_memory(unsealed).status().code() == Code::kProtocol);
  const Fd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  CHECK(size_of_sealed_memory(null).status().code() == Code::kProtocol);
}

TEST_CASE("memory that the kernel refuses is an error with the reason", "[unit]") {
  const Status why = make_sealed_memory(size_t{1} << 63).status();
  CHECK(why.code() == Code::kRetryLater);
  CHECK(why.message().starts_with("the kernel gives no shared memory: "));
}

TEST_CASE("memory that is mapped for reading cannot be written", "[unit]") {
  auto fd = make_sealed_memory(4096);
  REQUIRE(fd.is_ok());
  auto reads = Mapping::map(*fd, 4096, Mapping::Access::kReadOnly);
  auto writes = Mapping::map(*fd, 4096, Mapping::Access::kReadWrite);
  REQUIRE(reads.is_ok());
  REQUIRE(writes.is_ok());
  // read() makes the kernel write, so a refused write is an error instead of a crash.
  const Fd zeros(::open("/dev/zero", O_RDONLY | O_CLOEXEC));
  CHECK(::read(zeros.get(), writes->data(), 1) == 1);
  CHECK(::read(zeros.get(), reads->data(), 1) == -1);
  CHECK(errno == EFAULT);
}

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "transport/shm/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>

#include "harness/catch.h"
#include "harness/recording_handler.h"

using namespace aikido;
using namespace aikido::testing;
using namespace aikido::transport;

namespace {

Fd copy(SharedMemory& memory) {
  return Fd(::dup(memory.fd().get()));
}

Fd memory_of(off_t bytes, int seals) {
  Fd fd(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  REQUIRE(::ftruncate(fd.get(), bytes) == 0);
  REQUIRE(::fcntl(fd.get(), F_ADD_SEALS, seals) == 0);
  return fd;
}

}  // namespace

TEST_CASE("bytes of one side are read by the other, in both directions", "[unit]") {
  auto mine = SharedMemory::make(5000);
  REQUIRE(mine.is_ok());
  auto theirs = SharedMemory::open(copy(*mine));
  REQUIRE(theirs.is_ok());
  for (auto [from, to] : {std::pair(&*mine, &*theirs), std::pair(&*theirs, &*mine)}) {
    const auto data = pattern(9000, from == &*mine ? 1 : 2);
    std::vector<std::byte> got(9000);
    const iovec out{const_cast<std::byte*>(data.data()), data.size()};
    const iovec in{got.data(), got.size()};
    CHECK(from->writer().write({&out, 1}) == 8192);  // rounded up
    CHECK(to->reader().read({&in, 1}) == 8192);
    CHECK(std::equal(got.begin(), got.begin() + 8192, data.begin()));
  }
  CHECK_FALSE(mine->is_accepted());
  theirs->accept();
  CHECK(mine->is_accepted());
}

TEST_CASE("memory outlives the process that made it, and the object that it moved from",
          "[unit]") {
  std::optional<SharedMemory> theirs;
  {
    auto mine = SharedMemory::make(4096);
    REQUIRE(mine.is_ok());
    auto opened = SharedMemory::open(copy(*mine));
    REQUIRE(opened.is_ok());
    theirs.emplace(std::move(*opened));
  }
  theirs->accept();
  CHECK(theirs->is_accepted());
}

TEST_CASE("memory that could shrink, or has another size, is refused", "[unit]") {
  constexpr int kAll = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
  CHECK(SharedMemory::open(memory_of(4096 + 2 * 8192, kAll)).is_ok());
  const auto code = [](Fd fd) {
    return SharedMemory::open(std::move(fd)).status().code();
  };
  CHECK(code(memory_of(4096 + 2 * 8192, F_SEAL_GROW | F_SEAL_SEAL)) == Code::kProtocol);
  CHECK(code(memory_of(4096 + 2 * 8192, F_SEAL_SHRINK)) == Code::kProtocol);
  for (const off_t bytes : {off_t{0}, off_t{4096}, off_t{4096 + 2 * 2048},
                            off_t{4096 + 2 * 8192 + 1}, off_t{4096 + 2 * 12288}})
    CHECK(code(memory_of(bytes, kAll)) == Code::kProtocol);
  CHECK(code(Fd(::open("/dev/null", O_RDWR | O_CLOEXEC))) == Code::kProtocol);
}

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "transport/shm/shm_buffer_pool.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "harness/catch.h"
#include "harness/recording_handler.h"
#include "harness/shared_pair.h"

using namespace aikido;
using namespace aikido::testing;
using namespace aikido::transport;

namespace {

constexpr size_t kBytes = 20'000;

const Content kAlone{{}, 0, 0, kBytes, 1};

std::vector<std::byte> look(const Reader& reader, uint8_t block) {
  const std::byte* at = reader.lease_holder->find(block, kBytes);
  REQUIRE(at != nullptr);
  return {at, at + kBytes};
}

// Number of blocks that the reader gets without returning one.
size_t num_lent_until_full(const Reader& reader) {
  const auto data = pattern(kBytes);
  size_t num = 0;
  while (reader.grantor->has_credit() &&
         reader.grantor->grant(data.data(), kAlone) != 0)
    ++num;
  return num;
}

}  // namespace

TEST_CASE("a reader finds a leased block, and the block is used again", "[unit]") {
  const auto shm_pool = make_shm_pool();
  Reader reader(shm_pool.get());
  for (size_t i = 0; i < 3 * kNumBlocks; ++i) {
    const auto data = pattern(kBytes, static_cast<unsigned>(i));
    REQUIRE(reader.grantor->has_credit());
    const uint8_t block = reader.grantor->grant(data.data(), kAlone);
    CHECK(block == 1);  // few blocks stay in the caches
    CHECK((look(reader, block) == data));
    reader.lease_holder->give_back(block);
    CHECK(reader.lease_holder->find(block, kBytes) == nullptr);
  }
}

TEST_CASE("a payload for several readers has one block until the last returns it",
          "[unit]") {
  const auto shm_pool = make_shm_pool();
  Reader a(shm_pool.get()), b(shm_pool.get()), c(shm_pool.get());
  const auto owner = std::make_shared<int>();
  const auto data = pattern(kBytes, 1), other = pattern(kBytes, 2);
  const Content content{owner, 7, 1000, kBytes, 3};
  const uint8_t block = a.grantor->grant(data.data(), content);
  a.lease_holder->give_back(block);
  CHECK(b.grantor->grant(other.data(), kAlone) != block);
  CHECK(b.grantor->grant(data.data(), content) == block);
  for (Content unlike :
       {Content{owner, 8, 1000, kBytes, 3}, Content{owner, 7, 1001, kBytes, 3},
        Content{owner, 7, 1000, kBytes - 1, 3},
        Content{std::make_shared<int>(), 7, 1000, kBytes, 3}})
    CHECK(c.grantor->grant(other.data(), unlike) != block);
  CHECK(c.grantor->grant(data.data(), content) == block);
  CHECK((look(b, block) == data));
  b.lease_holder->give_back(block);
  CHECK((look(c, block) == data));
  c.lease_holder->give_back(block);
  // All three readers have returned the block, so the same name may stand for new
  // bytes.
  const uint8_t again = a.grantor->grant(other.data(), content);
  CHECK((look(a, again) == other));
}

TEST_CASE("a payload whose owner has ended is not found", "[unit]") {
  const auto shm_pool = make_shm_pool();
  Reader a(shm_pool.get()), b(shm_pool.get());
  auto owner = std::make_shared<int>();
  const Content content{owner, 7, 1000, kBytes, 2};
  const auto data = pattern(kBytes, 1), other = pattern(kBytes, 2);
  a.grantor->grant(data.data(), content);
  owner.reset();
  CHECK((look(b, b.grantor->grant(other.data(), content)) == other));
}

TEST_CASE("a block that is leased is not leased again at the same time", "[unit]") {
  const auto shm_pool = make_shm_pool();
  Reader reader(shm_pool.get());
  const auto owner = std::make_shared<int>();
  const Content content{owner, 0, 0, kBytes, 2};
  const auto data = pattern(kBytes);
  const uint8_t block = reader.grantor->grant(data.data(), content);
  CHECK(reader.grantor->grant(data.data(), content) != block);
}

TEST_CASE("blocks that a reader keeps do not count as circulating", "[unit]") {
  const auto shm_pool = make_shm_pool();
  Reader reader(shm_pool.get());
  int num_told = 0;
  reader.lease_holder->on_returned([&] { ++num_told; });
  CHECK(num_lent_until_full(reader) == kMostLeased);
  CHECK_FALSE(reader.grantor->has_room());
  std::vector<Buffer> kept;
  for (uint8_t block = 1; block <= kMostLeased - kFewLeased; ++block) {
    CHECK_FALSE(reader.lease_holder->has_room());
    CHECK_FALSE(reader.grantor->has_room());
    Buffer& buffer = kept.emplace_back(reader.lease_holder->keep(block, kBytes));
    REQUIRE(buffer);
    CHECK(buffer.data() == reader.lease_holder->find(block, kBytes));
    CHECK(buffer.size() == kBytes);
    CHECK(num_told == block);  // a waiting sender can continue
  }
  CHECK(reader.lease_holder->has_room());
  CHECK(reader.grantor->has_room());
  CHECK(num_lent_until_full(reader) == kMostLeased - kFewLeased);
  const int num_told_before = num_told;
  kept.clear();
  CHECK(num_told == num_told_before + static_cast<int>(kMostLeased - kFewLeased));
  CHECK_FALSE(reader.lease_holder->has_room());
  CHECK(num_lent_until_full(reader) == 0);
}

TEST_CASE("readers may keep blocks while the others suffice for all", "[unit]") {
  const auto shm_pool = make_shm_pool();
  std::vector<Reader> readers;
  for (int i = 0; i < 3; ++i) readers.emplace_back(shm_pool.get());
  const auto data = pattern(kBytes);
  std::vector<Buffer> kept;
  for (bool may_keep = true; may_keep;) {
    may_keep = false;
    for (Reader& reader : readers) {
      REQUIRE(reader.grantor->has_credit());
      const uint8_t block = reader.grantor->grant(data.data(), kAlone);
      REQUIRE(block != 0);
      if (Buffer buffer = reader.lease_holder->keep(block, kBytes)) {
        kept.push_back(std::move(buffer));
        may_keep = true;
      } else {
        reader.lease_holder->give_back(block);
      }
    }
  }
  CHECK(kept.size() == kNumBlocks - readers.size() * kMostLeased);
  // The other blocks circulate.
  for (const Reader& reader : readers)
    CHECK(num_lent_until_full(reader) == kMostLeased);
}

TEST_CASE("lending fails without a free block, and readers do not wait for each other",
          "[unit]") {
  const auto shm_pool = make_shm_pool();
  std::vector<Reader> readers;
  for (size_t i = 0; i < kNumBlocks / kMostLeased; ++i) {
    readers.emplace_back(shm_pool.get());
    CHECK(num_lent_until_full(readers.back()) == kMostLeased);
  }
  Reader last(shm_pool.get());
  CHECK(last.grantor->has_credit());
  const auto data = pattern(kBytes);
  CHECK(last.grantor->grant(data.data(), kAlone) == 0);
  readers[1].lease_holder->give_back(kMostLeased + 1);
  CHECK(last.grantor->grant(data.data(), kAlone) == kMostLeased + 1);
}

TEST_CASE("a block that a reader has without a link stays until it is returned",
          "[unit]") {
  const auto shm_pool = make_shm_pool();
  Reader gone(shm_pool.get());
  const auto data = pattern(kBytes, 1);
  CHECK(gone.grantor->grant(data.data(), kAlone) == 1);
  gone.grantor.reset();
  const auto next = [&] {
    Reader reader(shm_pool.get());
    return reader.grantor->grant(pattern(kBytes, 2).data(), kAlone);
  };
  CHECK(next() == 2);
  CHECK((look(gone, 1) == data));
  SECTION("the reader returns the block") {
    gone.lease_holder->give_back(1);
  }
  SECTION("the reader ends") {
    gone.lease_holder.reset();
  }
  CHECK(next() == 1);
}

TEST_CASE("a kept block outlives the link of its reader", "[unit]") {
  const auto shm_pool = make_shm_pool();
  Reader reader(shm_pool.get());
  const auto data = pattern(kBytes, 1);
  Buffer kept =
      reader.lease_holder->keep(reader.grantor->grant(data.data(), kAlone), kBytes);
  reader.grantor.reset();
  reader.lease_holder.reset();
  Reader other(shm_pool.get());
  CHECK(other.grantor->grant(pattern(kBytes, 2).data(), kAlone) == 2);
  CHECK(std::equal(data.begin(), data.end(), kept.data()));
  kept.reset();
  Reader third(shm_pool.get());
  CHECK(third.grantor->grant(pattern(kBytes, 2).data(), kAlone) == 1);
}

TEST_CASE("blocks of a dead process are taken back once its link is gone", "[unit]") {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  const auto shm_pool = make_shm_pool();
  Reader dead(shm_pool.get(), child);
  const auto data = pattern(kBytes);
  CHECK(dead.grantor->grant(data.data(), kAlone) == 1);
  dead.grantor.reset();
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  Reader other(shm_pool.get());
  CHECK(other.grantor->grant(data.data(), kAlone) == 1);
}

TEST_CASE("only payloads that fit, for readers that share blocks, take blocks",
          "[unit]") {
  const auto shm_pool = make_shm_pool();
  Reader reader(shm_pool.get());
  CHECK_FALSE(reader.grantor->takes(kLeastLeased - 1));
  CHECK(reader.grantor->takes(kLeastLeased));
  CHECK(reader.grantor->takes(kBlockBytes));
  CHECK_FALSE(reader.grantor->takes(kBlockBytes + 1));
  auto [alone, other] = make_shared_pair(4096);
  const auto grantor =
      shm_pool->grant_to(std::make_shared<SharedMemory>(std::move(alone)), 0);
  CHECK_FALSE(grantor->takes(kBlockBytes));
}

TEST_CASE("the number of a block that was not leased finds nothing", "[unit]") {
  const auto shm_pool = make_shm_pool();
  Reader reader(shm_pool.get());
  const auto data = pattern(kBytes);
  const uint8_t block = reader.grantor->grant(data.data(), kAlone);
  for (const int number : {0, block + 1, int{kNumBlocks} + 1, 255})
    CHECK(reader.lease_holder->find(static_cast<uint8_t>(number), kBytes) == nullptr);
  CHECK(reader.lease_holder->find(block, kBlockBytes + 1) == nullptr);
  CHECK_FALSE(reader.lease_holder->keep(block, 0));
}

TEST_CASE("a descriptor that is no block memory is not mapped", "[unit]") {
  auto made = SharedMemory::make(4096);
  REQUIRE(made.is_ok());
  const Fd other(::dup(made->fd().get()));
  const auto memory = std::make_shared<SharedMemory>(std::move(*made));
  CHECK(LeaseHolder::open(other, memory).status().code() == Code::kProtocol);
  const Fd unsealed(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  REQUIRE(::ftruncate(unsealed.get(), kNumBlocks * kBlockBytes) == 0);
  CHECK(LeaseHolder::open(unsealed, memory).status().code() == Code::kProtocol);
  CHECK(memory->held()->is_open.load() == 0);
}

TEST_CASE("a forked child keeps no access to the memory", "[unit]") {
  const auto shm_pool = make_shm_pool();
  const pid_t child = ::fork();
  if (child == 0) ::_exit(::fcntl(shm_pool->fd(), F_GETFD) == -1 ? 0 : 1);
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
}

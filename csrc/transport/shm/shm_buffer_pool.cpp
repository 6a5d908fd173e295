// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "transport/shm/shm_buffer_pool.h"

#include <signal.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace aikido::transport {
namespace {

// Two pointers have the same owner if neither is ordered before the other. This also
// works for expired owners.
bool is_same(const Content& a, const Content& b) {
  return a.part == b.part && a.offset == b.offset && a.bytes == b.bytes &&
         !a.owner.owner_before(b.owner) && !b.owner.owner_before(a.owner);
}

}  // namespace

bool LeaseGrantor::takes(size_t bytes) const {
  return bytes >= kLeastLeased && bytes <= kBlockBytes && state_->is_open.load() == 1;
}

bool LeaseGrantor::has_credit() {
  collect();
  return num_circulating() < kMostLeased;
}

bool LeaseGrantor::has_room() {
  collect();
  return num_circulating() <= kFewLeased;
}

uint8_t LeaseGrantor::grant(const std::byte* data, const Content& content) {
  auto block = shm_pool_->find(content);
  // A reader holds a block at most once, because it returns the block by number.
  if (block && std::find(blocks_.begin(), blocks_.end(), *block) != blocks_.end())
    block.reset();
  if (!block) {
    block = shm_pool_->find_free();
    if (!block) return 0;
    std::memcpy(shm_pool_->at(*block), data, content.bytes);
    shm_pool_->blocks_[*block].content = content;
    shm_pool_->blocks_[*block].num_to_come = content.num_readers;
  }
  --shm_pool_->blocks_[*block].num_to_come;
  ++shm_pool_->blocks_[*block].num_readers;
  blocks_.push_back(*block);
  state_->may_keep.store(shm_pool_->has_spare() ? 1 : 0);
  // The flag is set before the reader learns the number, so a return cannot come first.
  state_->is_out[*block].store(1);
  state_->leased.fetch_add(1);
  return static_cast<uint8_t>(*block + 1);
}

// Takes the blocks that the reader has returned.
void LeaseGrantor::collect() {
  const uint64_t returned = state_->returned.load();
  const bool is_done = state_->is_done.load() == 1;
  // The counter spares a look at each block if nothing was returned.
  if (std::exchange(seen_, returned) == returned && !is_done) return;
  std::erase_if(blocks_, [&](uint8_t block) {
    if (!is_done && state_->is_out[block].load() != 0) return false;
    --shm_pool_->blocks_[block].num_readers;
    return true;
  });
}

// True if the reader has no more blocks. Requires: the link is gone, so nothing more is
// leased.
bool LeaseGrantor::is_settled() {
  // A dead process returns nothing, and cannot read any more.
  const bool is_dead = pid_ > 0 && ::kill(pid_, 0) != 0 && errno == ESRCH;
  if (is_dead) {
    for (const uint8_t block : blocks_) --shm_pool_->blocks_[block].num_readers;
    blocks_.clear();
  }
  return blocks_.empty();
}

Result<std::unique_ptr<ShmBufferPool>> ShmBufferPool::make() {
  constexpr size_t kBytes = kNumBlocks * kBlockBytes;
  auto fd = make_sealed_memory(kBytes);
  if (!fd) return fd.status();
  // A child process that outlives its parent must not keep the memory alive.
  fd->close_in_children();
  auto mapping = Mapping::map(*fd, kBytes, Mapping::Access::kReadWrite);
  if (!mapping) return mapping.status();
  return std::unique_ptr<ShmBufferPool>(
      new ShmBufferPool(std::move(*fd), std::move(*mapping)));
}

std::shared_ptr<LeaseGrantor> ShmBufferPool::grant_to(
    std::shared_ptr<SharedMemory> memory, int pid) {
  collect();
  return grantors_.emplace_back(new LeaseGrantor(this, std::move(memory), pid));
}

std::optional<uint8_t> ShmBufferPool::find(const Content& content) const {
  if (content.num_readers == 1) return std::nullopt;
  for (size_t b = 0; b < kNumBlocks; ++b)
    if (blocks_[b].is_of_use() && is_same(blocks_[b].content, content))
      return static_cast<uint8_t>(b);
  return std::nullopt;
}

// Prefers the first block whose content is no longer needed. So few blocks are in use,
// and these stay in the caches. Otherwise takes a block without readers, in turns.
std::optional<uint8_t> ShmBufferPool::find_free() {
  for (const bool again : {false, true}) {
    if (again) collect();
    for (size_t b = 0; b < kNumBlocks; ++b) {
      const Block& block = blocks_[b];
      if (block.num_readers == 0 && !block.is_of_use()) return static_cast<uint8_t>(b);
    }
    for (size_t i = 0; i < kNumBlocks; ++i) {
      const size_t b = (oldest_ + i) % kNumBlocks;
      if (blocks_[b].num_readers > 0) continue;
      oldest_ = b + 1;
      return static_cast<uint8_t>(b);
    }
  }
  return std::nullopt;
}

bool ShmBufferPool::has_spare() const {
  const auto num_free =
      std::ranges::count_if(blocks_, [](const Block& b) { return b.num_readers == 0; });
  const auto num_readers =
      std::ranges::count_if(grantors_, [](auto& l) { return !l->blocks_.empty(); });
  return static_cast<size_t>(num_free) >=
         kMostLeased * static_cast<size_t>(num_readers);
}

void ShmBufferPool::collect() {
  std::erase_if(grantors_, [](const std::shared_ptr<LeaseGrantor>& grantor) {
    grantor->collect();
    return grantor.use_count() == 1 && grantor->is_settled();
  });
}

}  // namespace aikido::transport

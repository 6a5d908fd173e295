// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "transport/shm/shm_leases.h"

#include <utility>

#include "transport/shm/shared_memory.h"

namespace aikido::transport {

Result<std::shared_ptr<LeaseHolder>> LeaseHolder::open(
    const Fd& blocks, std::shared_ptr<SharedMemory> memory) {
  auto size = size_of_sealed_memory(blocks);
  if (!size) return size.status();
  if (*size != kNumBlocks * kBlockBytes)
    return Status(Code::kProtocol, concat("blocks of ", *size, " bytes"));
  auto mapping = Mapping::map(blocks, *size, Mapping::Access::kReadOnly);
  if (!mapping) return mapping.status();
  return std::shared_ptr<LeaseHolder>(
      new LeaseHolder(std::move(*mapping), std::move(memory)));
}

LeaseHolder::LeaseHolder(Mapping blocks, std::shared_ptr<SharedMemory> memory)
    : blocks_(std::move(blocks)), memory_(std::move(memory)), state_(memory_->held()) {
  state_->is_open.store(1);
}

LeaseHolder::~LeaseHolder() {
  state_->is_done.store(1);
}

const std::byte* LeaseHolder::find(uint8_t block, size_t bytes) const {
  if (block == 0 || block > kNumBlocks || bytes > kBlockBytes) return nullptr;
  return state_->is_out[block - 1u].load() == 1 ? at(block) : nullptr;
}

Buffer LeaseHolder::keep(uint8_t block, size_t bytes) {
  if (state_->may_keep.load() == 0 || bytes == 0) return {};
  state_->kept.fetch_add(1);
  if (tell_) tell_();
  return {at(block), bytes, kBlockBytes, shared_from_this()};
}

void LeaseHolder::take_back(std::byte* data, size_t) {
  state_->kept.fetch_sub(1);
  give_back(static_cast<uint8_t>((data - blocks_.data()) / kBlockBytes + 1));
}

void LeaseHolder::give_back(uint8_t block) {
  state_->is_out[block - 1u].store(0);
  state_->returned.fetch_add(1);
  if (tell_) tell_();
}

// The counters are written by the other process. Wrong values cause at most a needless
// wake-up.
bool LeaseHolder::has_room() const {
  return state_->leased.load() - state_->returned.load() <=
         kFewLeased + state_->kept.load();
}

}  // namespace aikido::transport

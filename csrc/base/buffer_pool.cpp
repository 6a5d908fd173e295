// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "base/buffer_pool.h"

#include <algorithm>
#include <bit>
#include <new>
#include <utility>

namespace aikido {
namespace {

constexpr std::align_val_t kAlignment{64};
constexpr size_t kSmallest = 4096;

// Eight sizes per power of two: a block is at most an eighth larger than asked.
size_t round_up(size_t bytes) {
  bytes = std::max(bytes, kSmallest);
  const size_t step = std::max(std::bit_floor(bytes) / 8, size_t{512});
  return (bytes + step - 1) / step * step;
}

}  // namespace

struct Buffer::Shelf {
  explicit Shelf(size_t limit) : max_idle_bytes(limit) {}
  Shelf(const Shelf&) = delete;
  Shelf& operator=(const Shelf&) = delete;
  ~Shelf() {
    for (auto& [capacity, blocks] : idle) {
      for (std::byte* block : blocks) ::operator delete(block, kAlignment);
    }
  }
  size_t max_idle_bytes;
  size_t idle_bytes = 0;
  std::map<size_t, std::vector<std::byte*>> idle;  // by capacity
};

Buffer::Buffer(Buffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      capacity_(std::exchange(other.capacity_, 0)),
      shelf_(std::move(other.shelf_)) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  if (this != &other) {
    reset();
    data_ = std::exchange(other.data_, nullptr);
    size_ = std::exchange(other.size_, 0);
    capacity_ = std::exchange(other.capacity_, 0);
    shelf_ = std::move(other.shelf_);
  }
  return *this;
}

Buffer::~Buffer() {
  reset();
}

void Buffer::reset() {
  if (data_ == nullptr) return;
  if (shelf_->idle_bytes + capacity_ <= shelf_->max_idle_bytes) {
    shelf_->idle[capacity_].push_back(data_);
    shelf_->idle_bytes += capacity_;
  } else {
    ::operator delete(data_, kAlignment);
  }
  data_ = nullptr;
  size_ = capacity_ = 0;
  shelf_.reset();
}

BufferPool::BufferPool(size_t max_idle_bytes)
    : shelf_(std::make_shared<Buffer::Shelf>(max_idle_bytes)) {}

Buffer BufferPool::take(size_t bytes) {
  Buffer buffer;
  if (bytes == 0) return buffer;
  buffer.capacity_ = round_up(bytes);
  buffer.size_ = bytes;
  const auto it = shelf_->idle.find(buffer.capacity_);
  if (it != shelf_->idle.end() && !it->second.empty()) {
    buffer.data_ = it->second.back();
    it->second.pop_back();
    shelf_->idle_bytes -= buffer.capacity_;
  } else {
    buffer.data_ =
        static_cast<std::byte*>(::operator new(buffer.capacity_, kAlignment));
  }
  buffer.shelf_ = shelf_;
  return buffer;
}

size_t BufferPool::idle_bytes() const {
  return shelf_->idle_bytes;
}

}  // namespace aikido

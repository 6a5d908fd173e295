// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "base/buffer_pool.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
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

// Note [large blocks have pages of their own] glibc gives the end of its heap back to the
// kernel when more of it is free than twice the largest block that free() has returned.
// So large blocks between the tensors of a training change how often that happens. A
// training that allocates 30 MB in each evaluation then faults these pages in again each
// time, which took a tenth of its time. Mappings of our own leave the heap as it is.
constexpr size_t kOwnPages = 256 << 10;

std::byte* allocate(size_t capacity) {
  if (capacity < kOwnPages)
    return static_cast<std::byte*>(::operator new(capacity, kAlignment));
  void* const data = ::mmap(nullptr, capacity, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) throw std::bad_alloc();
  ::madvise(data, capacity, MADV_HUGEPAGE);  // no error if there are none
  return static_cast<std::byte*>(data);
}

void release(std::byte* data, size_t capacity) {
  if (capacity < kOwnPages) return ::operator delete(data, kAlignment);
  ::munmap(data, capacity);
}

}  // namespace

class BufferPool::Shelf final : public Buffer::Home {
 public:
  explicit Shelf(size_t limit) : max_idle_bytes_(limit) {}
  Shelf(const Shelf&) = delete;
  Shelf& operator=(const Shelf&) = delete;
  ~Shelf() override {
    collect();
    for (auto& [capacity, blocks] : idle_) {
      for (std::byte* block : blocks) release(block, capacity);
    }
  }

  std::byte* take(size_t capacity) {
    collect();
    const auto it = idle_.find(capacity);
    if (it == idle_.end() || it->second.empty())
      return allocate(capacity);
    std::byte* block = it->second.back();
    it->second.pop_back();
    idle_bytes_ -= capacity;
    return block;
  }
  void take_back(std::byte* data, size_t capacity) override {
    if (idle_bytes_ + capacity > max_idle_bytes_)
      return release(data, capacity);
    idle_[capacity].push_back(data);
    idle_bytes_ += capacity;
  }
  // As take_back(), on any thread.
  void return_block(std::byte* data, size_t capacity) {
    Returned* const block = new (data) Returned{returned_, capacity};
    while (!returned_.compare_exchange_weak(block->next, block,
                                            std::memory_order_release,
                                            std::memory_order_relaxed)) {
    }
  }
  size_t idle_bytes() const { return idle_bytes_; }

 private:
  // Begin of a block that another thread has returned. kSmallest bytes have room for it.
  struct Returned {
    Returned* next;
    size_t capacity;
  };

  void collect() {
    if (returned_.load(std::memory_order_relaxed) == nullptr) return;
    Returned* block = returned_.exchange(nullptr, std::memory_order_acquire);
    while (block != nullptr) {
      const Returned found = *block;
      take_back(reinterpret_cast<std::byte*>(block), found.capacity);
      block = found.next;
    }
  }

  std::atomic<Returned*> returned_ = nullptr;
  size_t max_idle_bytes_;
  size_t idle_bytes_ = 0;
  std::map<size_t, std::vector<std::byte*>> idle_;  // by capacity
};

Buffer::Buffer(Buffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      capacity_(std::exchange(other.capacity_, 0)),
      home_(std::move(other.home_)) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  if (this != &other) {
    reset();
    data_ = std::exchange(other.data_, nullptr);
    size_ = std::exchange(other.size_, 0);
    capacity_ = std::exchange(other.capacity_, 0);
    home_ = std::move(other.home_);
  }
  return *this;
}

Buffer::~Buffer() {
  reset();
}

void Buffer::reset() {
  if (data_ == nullptr) return;
  home_->take_back(std::exchange(data_, nullptr), capacity_);
  size_ = capacity_ = 0;
  home_.reset();
}

BufferPool::BufferPool(size_t max_idle_bytes)
    : shelf_(std::make_shared<Shelf>(max_idle_bytes)) {}

Buffer BufferPool::take(size_t bytes) {
  if (bytes == 0) return {};
  const size_t capacity = round_up(bytes);
  return {shelf_->take(capacity), bytes, capacity, shelf_};
}

std::shared_ptr<std::byte> BufferPool::take_shared(size_t bytes) {
  if (bytes == 0) return {};
  const size_t capacity = round_up(bytes);
  return {shelf_->take(capacity), [shelf = shelf_, capacity](std::byte* data) {
            shelf->return_block(data, capacity);
          }};
}

size_t BufferPool::idle_bytes() const {
  return shelf_->idle_bytes();
}

}  // namespace aikido

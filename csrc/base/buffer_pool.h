// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Reusable host memory for staging and results: a fresh megabyte costs a page fault per
// 4 KiB, which at gradient sizes is more than the arithmetic on it. One thread, except
// for the release of shared blocks. The pool may be destroyed before its blocks; they
// then free themselves.

#include <cstddef>
#include <map>
#include <memory>
#include <utility>
#include <vector>

namespace aikido {

// Owner of one block, aligned to 64 bytes, contents undefined if it is from a pool.
// Empty after a move.
class Buffer {
 public:
  // Where the block goes back to.
  class Home {
   public:
    virtual ~Home() = default;
    virtual void take_back(std::byte* data, size_t capacity) = 0;
  };

  Buffer() = default;
  Buffer(std::byte* data, size_t size, size_t capacity, std::shared_ptr<Home> home)
      : data_(data), size_(size), capacity_(capacity), home_(std::move(home)) {}
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer();

  std::byte* data() const { return data_; }
  size_t size() const { return size_; }
  explicit operator bool() const { return data_ != nullptr; }
  void reset();

 private:
  std::byte* data_ = nullptr;
  size_t size_ = 0;
  size_t capacity_ = 0;
  std::shared_ptr<Home> home_;
};

class BufferPool {
 public:
  // Keeps up to `max_idle_bytes` of returned blocks for reuse.
  explicit BufferPool(size_t max_idle_bytes);

  // A block of at least `bytes` (0 gives an empty Buffer). Throws std::bad_alloc.
  Buffer take(size_t bytes);
  // As take(), for a block with several owners. The last owner may release it on any
  // thread; the next take() finds it.
  std::shared_ptr<std::byte> take_shared(size_t bytes);
  // Bytes lying idle, without shared blocks that take() has not found yet.
  size_t idle_bytes() const;

 private:
  class Shelf;
  std::shared_ptr<Shelf> shelf_;
};

}  // namespace aikido

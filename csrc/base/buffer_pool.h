// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Reusable host memory for staging and results: a fresh megabyte costs a page fault per
// 4 KiB, which at gradient sizes is more than the arithmetic on it. One thread, but the
// pool may go before its buffers: they then free themselves.

#include <cstddef>
#include <map>
#include <memory>
#include <vector>

namespace aikido {

class BufferPool;

// Owner of one block, aligned to 64 bytes, contents undefined. Empty after a move.
class Buffer {
 public:
  Buffer() = default;
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
  friend class BufferPool;
  struct Shelf;
  std::byte* data_ = nullptr;
  size_t size_ = 0;
  size_t capacity_ = 0;
  std::shared_ptr<Shelf> shelf_;
};

class BufferPool {
 public:
  // Keeps up to `max_idle_bytes` of returned blocks for reuse.
  explicit BufferPool(size_t max_idle_bytes);

  // A block of at least `bytes` (0 gives an empty Buffer). Throws std::bad_alloc.
  Buffer take(size_t bytes);
  // Bytes lying idle.
  size_t idle_bytes() const;

 private:
  std::shared_ptr<Buffer::Shelf> shelf_;
};

}  // namespace aikido

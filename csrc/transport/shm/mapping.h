// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Memory without name or file, shared through descriptors and mappings. The kernel
// frees it with the last process that holds it, so nothing remains after a killed
// process. Any thread.

#include <cstddef>

#include "base/fd.h"
#include "base/status.h"

namespace aikido::transport {

// New memory of this size, completely allocated and sealed, so that its size cannot
// change. kRetryLater with the kernel's reason if there is none.
Result<Fd> make_sealed_memory(size_t bytes);
// Size of sealed memory that another process has made. kProtocol: it is no such memory,
// or could shrink.
Result<size_t> size_of_sealed_memory(const Fd& fd);

class Mapping {
 public:
  enum class Access { kReadOnly, kReadWrite };

  // kRetryLater with the reason if the kernel does not map it.
  static Result<Mapping> map(const Fd& fd, size_t bytes, Access access);
  Mapping(Mapping&& other) noexcept;
  Mapping& operator=(Mapping&& other) noexcept;
  ~Mapping();

  std::byte* data() const { return data_; }

 private:
  Mapping(std::byte* data, size_t bytes) : data_(data), bytes_(bytes) {}

  std::byte* data_;
  size_t bytes_;
};

}  // namespace aikido::transport

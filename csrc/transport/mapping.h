// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Memory without a name or file, of which processes have descriptors and mappings:
// nothing stays behind whoever is killed, for the kernel frees it with the last process
// that has it. Any thread.

#include <cstddef>

#include "base/fd.h"
#include "base/status.h"

namespace aikido::transport {

// New memory of this size, all of it there and sealed: its size stays. kRetryLater says
// why the kernel gives none.
Result<Fd> make_sealed_memory(size_t bytes);
// The size of what another process has made so. kProtocol: it is no such memory, or
// could shrink.
Result<size_t> size_of_sealed_memory(const Fd& fd);

class Mapping {
 public:
  enum class Access { kReadOnly, kReadWrite };

  // kRetryLater says why the kernel does not map it.
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

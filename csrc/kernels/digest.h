// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// 64-bit digest of a piece of memory. Two ranks compare digests to find out if they
// hold the same bits. Not cryptographic: it does not protect against forged data. Any
// thread.

#include <cstddef>
#include <cstdint>

namespace aikido::kernels {

// Digest of `bytes` bytes from `data` on, which need no alignment. It depends on the
// position of each byte and on the length. A change stays undetected with a probability
// of about 2^-64.
[[nodiscard]] uint64_t digest(const void* data, size_t bytes);

}  // namespace aikido::kernels

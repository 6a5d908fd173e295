// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// 64-bit digest of a piece of memory. Two ranks compare digests to find out whether
// they hold the same bits. Not for security: nobody forges parameters. Any thread.

#include <cstddef>
#include <cstdint>

namespace aikido::kernels {

// The digest of `bytes` bytes from `data` on, which need no alignment. It depends on the
// position of each byte and on the length. A change escapes it with a probability of
// about 2^-64.
[[nodiscard]] uint64_t digest(const void* data, size_t bytes);

}  // namespace aikido::kernels

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Setting: whether sums prefetch the memory that they will read.
//
// Note [prefetching by CPU]
// The hardware prefetchers of Intel CPUs stop at each page, so it pays to request data
// ahead. AMD's Zen 4 continues by itself, and requests cost time there. With them, two
// sources of 128 MiB are summed at 16 to 18 instead of 22 to 23 GB/s. Sums of 8 MiB
// with 128-bit vectors reach 64 to 75 instead of 73 to 86 GB/s. (2026-11-27, commit
// 07f55e4, a shared EPYC of family 25, model 17: `python benchmarks/kernels.py "8 MiB"
// "128 MiB"` with --prefetch and with --no-prefetch.)

namespace aikido::kernels {

// Best value for this CPU. Tests and benchmarks may change it while nobody sums.
extern bool prefetches;

}  // namespace aikido::kernels

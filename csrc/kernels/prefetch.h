// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Whether sums ask for what they read some time before they do.
//
// Note [who asks ahead]
// Intel CPUs stop reading ahead at each page, so it pays to lead them on. AMD's Zen 4
// goes on by itself, and asking costs: of 128 MiB two sources get 16 to 18 instead of
// 22 to 23 GB/s, and of 8 MiB sums with 128-bit vectors 64 to 75 instead of 73 to 86
// (2026-11-27, commit 07f55e4, a shared EPYC of family 25, model 17: `python
// benchmarks/kernels.py "8 MiB" "128 MiB"` with --prefetch and with --no-prefetch).

namespace aikido::kernels {

// What suits this CPU. Tests and benchmarks may change it while nobody sums.
extern bool prefetches;

}  // namespace aikido::kernels

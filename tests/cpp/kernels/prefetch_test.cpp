// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "kernels/prefetch.h"

#include <fstream>
#include <string>

#include "harness/catch.h"

TEST_CASE("sums prefetch on all CPUs except those of AMD") {
  std::ifstream file("/proc/cpuinfo");
  const std::string all(std::istreambuf_iterator<char>(file), {});
  const bool is_amd = all.find("AuthenticAMD") != std::string::npos;
  CHECK(aikido::kernels::prefetches == !is_amd);
}

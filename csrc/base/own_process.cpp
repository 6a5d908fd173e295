// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "base/own_process.h"

#include <pthread.h>

#include <atomic>

#include "base/check.h"

namespace aikido {

namespace {

// How many forks lead here from the process that has loaded us.
std::atomic<uint64_t> generation{0};

// From when the library is loaded on.
const int error = ::pthread_atfork(nullptr, nullptr, [] { ++generation; });

}  // namespace

OwnProcess::OwnProcess() {
  AIKIDO_CHECK(error == 0, "there is no memory for a handler of fork()");
  generation_ = generation.load();
}

bool OwnProcess::is_here() const {
  return generation.load(std::memory_order_relaxed) == generation_;
}

}  // namespace aikido

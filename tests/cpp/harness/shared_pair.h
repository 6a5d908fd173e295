// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Shared memory of two processes of one host, for tests in which one process is both.

#include <unistd.h>

#include <memory>
#include <utility>

#include "harness/catch.h"
#include "transport/shm/shared_memory.h"
#include "transport/shm/shm_buffer_pool.h"

namespace aikido::testing {

// The same memory, as its maker and as the other process have mapped it.
inline std::pair<transport::SharedMemory, transport::SharedMemory> make_shared_pair(
    size_t ring_bytes) {
  auto made = transport::SharedMemory::make(ring_bytes);
  REQUIRE(made.is_ok());
  auto opened = transport::SharedMemory::open(Fd(::dup(made->fd().get())));
  REQUIRE(opened.is_ok());
  return {std::move(*made), std::move(*opened)};
}

inline std::unique_ptr<transport::ShmBufferPool> make_shm_pool() {
  auto made = transport::ShmBufferPool::make();
  REQUIRE(made.is_ok());
  return std::move(*made);
}

// Another process, which borrows blocks from the buffer pool of this one.
struct Reader {
  explicit Reader(transport::ShmBufferPool* shm_pool, int pid = 0) {
    auto [near, far] = make_shared_pair(4096);
    grantor = shm_pool->grant_to(
        std::make_shared<transport::SharedMemory>(std::move(near)), pid);
    auto opened = transport::LeaseHolder::open(
        Fd(::dup(shm_pool->fd())),
        std::make_shared<transport::SharedMemory>(std::move(far)));
    REQUIRE(opened.is_ok());
    lease_holder = std::move(*opened);
  }

  std::shared_ptr<transport::LeaseGrantor> grantor;
  std::shared_ptr<transport::LeaseHolder> lease_holder;
};

}  // namespace aikido::testing

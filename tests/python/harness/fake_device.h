// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Functions of the fake device (fake_device.cpp) for fake_nccl.cpp and fake_ipc.cpp.

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>
#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <functional>

namespace fake {

// Queues a task on the stream.
void enqueue(const c10::Stream& stream, std::function<void()> task);
// The same memory as a CPU tensor, for tasks of the streams.
at::Tensor on_host(const at::Tensor& tensor);
// Makes the next event on this stream report a failure.
void fail(const c10::Stream& stream);

// True if one of the requested faults is left; counts it down.
bool is_due(std::atomic<int64_t>& fault);
struct IpcFaults {
  std::atomic<int64_t> shares{0}, opens{0}, kernels{0};
  std::atomic<int64_t> kernel_ms{0};  // duration of each kernel
};
IpcFaults& ipc_faults();

// Position of device memory, for other processes.
struct Place {
  pid_t process;
  int fd;
  size_t offset;
};
Place place_of(const void* data);
void* open(const Place& place);

}  // namespace fake

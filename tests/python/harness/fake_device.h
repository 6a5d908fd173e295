// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// What fake_nccl.cpp and fake_ipc.cpp need of the device of fake_device.cpp.

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>
#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <functional>

namespace fake {

// Done by the stream behind what it has to do.
void enqueue(const c10::Stream& stream, std::function<void()> task);
// The same memory, for the streams to compute on.
at::Tensor on_host(const at::Tensor& tensor);
// The next event on this stream says that it has failed.
void fail(const c10::Stream& stream);

// So many of what it stands for go wrong; counts down.
bool is_due(std::atomic<int64_t>& fault);
struct IpcFaults {
  std::atomic<int64_t> shares{0}, opens{0}, kernels{0};
  std::atomic<int64_t> kernel_ms{0};  // what each takes
};
IpcFaults& ipc_faults();

// Where memory of a device is, for other processes.
struct Place {
  pid_t process;
  int fd;
  size_t offset;
};
Place place_of(const void* data);
void* open(const Place& place);

}  // namespace fake

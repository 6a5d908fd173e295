// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// What fake_nccl.cpp needs of the device of fake_device.cpp.

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>

#include <functional>

namespace fake {

// Done by the stream behind what it has to do.
void enqueue(const c10::Stream& stream, std::function<void()> task);
// The same memory, for the streams to compute on.
at::Tensor on_host(const at::Tensor& tensor);

}  // namespace fake

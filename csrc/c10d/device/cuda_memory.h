// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// CUDA implementation of DeviceMemory, by cuda/ipc.h and cuda/reduce.h. Only in builds
// with the CUDA toolkit.

#include <memory>

#include "c10d/common/device_memory.h"

namespace aikido::adapter {

std::shared_ptr<DeviceMemory> make_cuda_memory();

}  // namespace aikido::adapter

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Memory of CUDA devices between processes, by cuda/ipc.h and cuda/reduce.h. Part of
// builds with the CUDA toolkit only.

#include <memory>

#include "c10d/device_memory.h"

namespace aikido::adapter {

std::shared_ptr<DeviceMemory> make_cuda_memory();

}  // namespace aikido::adapter

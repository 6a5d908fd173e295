// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// What the module of fake_nccl.cpp has of fake_ipc.cpp.

#include <pybind11/pybind11.h>

namespace fake {

// For aikido_torch._C.offer_device_memory.
pybind11::capsule make_memory();

}  // namespace fake

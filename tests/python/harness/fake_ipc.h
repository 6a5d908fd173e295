// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// The part of fake_ipc.cpp that fake_nccl.cpp exports to Python.

#include <pybind11/pybind11.h>

namespace fake {

// Argument for aikido_torch._C.offer_device_memory.
pybind11::capsule make_memory();

}  // namespace fake

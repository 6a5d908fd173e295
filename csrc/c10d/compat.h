// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Every difference between the torch versions that we build for (2.11 to 2.15) is
// answered here and nowhere else.

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <torch/version.h>

#define AIKIDO_TORCH_SINCE(minor) \
  (TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= (minor))

// Virtual functions that older versions do not have: there they are plain functions.
#if AIKIDO_TORCH_SINCE(15)
#define AIKIDO_OVERRIDE_SINCE_2_15 override
#else
#define AIKIDO_OVERRIDE_SINCE_2_15
#endif

namespace aikido::adapter {

using Milliseconds = std::chrono::milliseconds;

// The time-out of one call: options say "unset" with a negative value.
inline Milliseconds timeout_or(Milliseconds of_call, Milliseconds of_group) {
  return of_call.count() > 0 ? of_call : of_group;
}

}  // namespace aikido::adapter

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Type and name of a call for torch and the profiler.

#include "c10d/common/compat.h"

namespace aikido::adapter {

struct Title {
  ::c10d::OpType type;
  const char* text;  // "aikido:" and its name; static storage
};

}  // namespace aikido::adapter

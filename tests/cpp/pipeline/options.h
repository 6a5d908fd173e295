// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once

#include "pipeline/generate.h"

namespace aikido::pipeline::testing {

inline GenerateOptions with(Method method, int stages, int micro_batches) {
  GenerateOptions options;
  options.method = method;
  options.stages = stages;
  options.micro_batches = micro_batches;
  return options;
}

}  // namespace aikido::pipeline::testing

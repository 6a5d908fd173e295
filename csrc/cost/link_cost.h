// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Cost of a transfer over a link. Plain value; any thread.

#include "base/status.h"

namespace aikido::cost {

// Cost of a transfer: time = alpha + beta * bytes (Hockney, "The communication
// challenge for MPP", Parallel Computing 20(3), 1994).
struct LinkCost {
  double alpha_s = 0;  // fixed cost of each transfer
  double beta_s = 0;   // cost of each byte
  double time_s(double bytes) const { return alpha_s + beta_s * bytes; }
};

// kInvalidArgument if alpha or beta is negative or not finite.
Status validate(const LinkCost& link);

}  // namespace aikido::cost

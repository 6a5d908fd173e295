// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "cost/link_cost.h"

#include <cmath>
#include <utility>

namespace aikido::cost {

Status validate(const LinkCost& link) {
  for (const auto& [name, value] :
       {std::pair("alpha", link.alpha_s), {"beta", link.beta_s}})
    if (!std::isfinite(value) || value < 0)
      return invalid(concat(name, " of the link is ", value,
                            "; it takes a finite number from 0 up"));
  return Status::ok();
}

}  // namespace aikido::cost

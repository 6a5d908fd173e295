// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "cost/pipelining.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace aikido::cost {
Result<Pipelining> pipelining_of(double bytes, int hops, int most,
                                 const LinkCost& link) {
  AIKIDO_TRY(validate(link));
  if (!std::isfinite(bytes) || bytes < 0)
    return invalid(concat("bytes is ", bytes, "; it takes a finite number from 0 up"));
  for (const auto& [name, value] : {std::pair("hops", hops), {"most", most}})
    if (value < 1)
      return invalid(concat(name, " is ", value, "; it takes a number from 1 up"));
  const auto with = [&](int depth) {
    return Pipelining{depth, (hops - 1.0 + depth) * link.time_s(bytes / depth)};
  };
  // T is convex in k, so one of the two integers beside the real optimum is best.
  const double wire_s = bytes * link.beta_s;
  double ideal = most;
  if (hops == 1 || wire_s == 0)
    ideal = 1;
  else if (link.alpha_s > 0)
    ideal = std::sqrt((hops - 1) * wire_s / link.alpha_s);
  const int below = static_cast<int>(std::clamp(std::floor(ideal), 1.0, 1.0 * most));
  const Pipelining low = with(below), high = with(std::min(below + 1, most));
  return high.time_s < low.time_s ? high : low;
}

}  // namespace aikido::cost

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "cost/collective_cost.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <optional>
#include <string>
#include <utility>

#include "base/text.h"

namespace aikido::cost {
namespace {

Status check(int members, double bytes, const CollectiveCosts& costs) {
  AIKIDO_TRY(validate(costs.message));
  if (members < 1)
    return invalid(
        concat("a collective of ", members, " members; it takes a number from 1 up"));
  for (const auto& [name, value] : {std::pair("bytes", bytes),
                                    {"gamma_s", costs.gamma_s},
                                    {"message_s", costs.message_s},
                                    {"shard_bytes", costs.shard_bytes}})
    if (!std::isfinite(value) || value < 0)
      return invalid(
          concat(name, " is ", value, "; it takes a finite number from 0 up"));
  if (costs.message_s > costs.message.alpha_s)
    return invalid(concat("message_s is ", costs.message_s, " and alpha ",
                          costs.message.alpha_s,
                          "; what a sender is busy with is a part of alpha"));
  if (costs.hosts.empty()) return Status::ok();
  AIKIDO_TRY(validate(costs.local));
  const int placed = std::accumulate(costs.hosts.begin(), costs.hosts.end(), 0);
  const bool is_empty = std::count_if(costs.hosts.begin(), costs.hosts.end(),
                                      [](int count) { return count < 1; }) > 0;
  if (placed != members || is_empty)
    return invalid(concat("the hosts have ", placed, " of ", members,
                          " members; it takes one or more on each, and all of them"));
  return Status::ok();
}

// `n`: members or hosts.
double ring(double n, double alpha, double wire, double add) {
  return 2 * (n - 1) * alpha + (n - 1) / n * (2 * wire + add);
}

// Time of the bytes in a step of direct, on the link of the busiest host and inside it.
double direct_wire(double n, double owners, double bytes,
                   const CollectiveCosts& costs) {
  const double remote = bytes * costs.message.beta_s;
  const double local = bytes * costs.local.beta_s;
  if (costs.hosts.empty()) return (n - 1) / owners * remote;
  double most = 0;
  for (const double a : costs.hosts) {
    const double uplink = (n - a) * std::min(a, owners) / owners * remote;
    most = std::max(most, uplink + (a - 1) / owners * local);
  }
  return most;
}

double by_owners(double n, double owners, double bytes, const CollectiveCosts& costs) {
  return 2 * (costs.message.alpha_s + (n - 2) * costs.message_s) +
         2 * direct_wire(n, owners, bytes, costs) +
         (n - 1) / owners * bytes * costs.gamma_s;
}

// See Note [costs] in the header.
double formula(Algorithm algorithm, int members, double bytes,
               const CollectiveCosts& costs) {
  const double n = members, alpha = costs.message.alpha_s;
  const double wire = bytes * costs.message.beta_s, add = bytes * costs.gamma_s;
  const auto number = static_cast<unsigned>(members);
  switch (algorithm) {
    case Algorithm::kDirect: {
      const bool is_cut = bytes < n * costs.shard_bytes;
      const double owners =
          is_cut ? std::max(1.0, std::floor(bytes / costs.shard_bytes)) : n;
      return by_owners(n, owners, bytes, costs);
    }
    case Algorithm::kOneOwner:
      return by_owners(n, 1, bytes, costs);
    case Algorithm::kRing:
      return ring(n, alpha, wire, add);
    case Algorithm::kHalvingDoubling: {
      const double p = std::bit_floor(number);
      const double beyond = p < n ? 2 * (alpha + wire) + add : 0;
      return 2 * std::log2(p) * alpha + (p - 1) / p * (2 * wire + add) + beyond;
    }
    case Algorithm::kTree: {
      const double c = std::bit_width(number - 1);
      return c * (2 * (alpha + wire) + add);
    }
    case Algorithm::kTwoLevel: {
      if (costs.hosts.empty()) return ring(n, alpha, wire, add);
      const auto [fewest, most] =
          std::minmax_element(costs.hosts.begin(), costs.hosts.end());
      const double leaders = *fewest, local_hops = *most - 1;
      const auto h = static_cast<double>(costs.hosts.size());
      return ring(h, alpha, wire, add / leaders) +
             2 * local_hops * costs.local.alpha_s +
             local_hops / leaders * (2 * bytes * costs.local.beta_s + add);
    }
  }
  return 0;
}

}  // namespace

Result<double> cost_of(Algorithm algorithm, int members, double bytes,
                       const CollectiveCosts& costs) {
  AIKIDO_TRY(check(members, bytes, costs));
  return members == 1 ? 0 : formula(algorithm, members, bytes, costs);
}

Result<Choice> choose_collective(int members, double bytes,
                                 const CollectiveCosts& costs,
                                 std::span<const Algorithm> among) {
  if (among.empty())
    return invalid("there is no collective to choose from; it takes one or more");
  std::optional<Choice> best;
  for (const Algorithm algorithm : among) {
    auto time_s = cost_of(algorithm, members, bytes, costs);
    if (!time_s) return time_s.status();
    if (!best || *time_s < best->time_s) best = Choice{algorithm, *time_s};
  }
  return *best;
}

Result<Algorithm> algorithm_named(std::string_view name) {
  std::string known;
  for (const Algorithm algorithm : kAlgorithms) {
    if (name == name_of(algorithm)) return algorithm;
    known += concat(known.empty() ? "" : ", ", name_of(algorithm));
  }
  return invalid(
      concat("the collective is \"", printable(name), "\"; it takes ", known));
}

}  // namespace aikido::cost

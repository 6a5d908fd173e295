// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "reassign/helper_group.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>

namespace aikido::reassign {
namespace {

// The ranks, host after host.
struct Ring {
  struct Place {
    size_t at = 0;         // on the ring
    size_t host_from = 0;  // the host's first place, and its number of ranks
    size_t host_size = 0;
  };
  std::vector<Rank> ranks;
  std::vector<Place> places;  // by rank
  size_t largest_host = 0;
  size_t num_hosts = 0;
};

Ring make_ring(int32_t num_ranks, std::span<const int32_t> hosts) {
  std::map<int32_t, std::vector<Rank>> ranks_of;
  std::vector<int32_t> order;  // hosts by their first rank
  for (int32_t r = 0; r < num_ranks; ++r) {
    const int32_t host = hosts.empty() ? 0 : hosts[static_cast<size_t>(r)];
    if (!ranks_of.contains(host)) order.push_back(host);
    ranks_of[host].push_back(Rank(r));
  }
  Ring ring;
  ring.places.resize(static_cast<size_t>(num_ranks));
  ring.num_hosts = order.size();
  for (const int32_t host : order) {
    const std::vector<Rank>& of_host = ranks_of[host];
    const size_t from = ring.ranks.size();
    ring.largest_host = std::max(ring.largest_host, of_host.size());
    for (const Rank rank : of_host) {
      const size_t at = ring.ranks.size();
      ring.places[static_cast<size_t>(rank.value)] = {at, from, of_host.size()};
      ring.ranks.push_back(rank);
    }
  }
  return ring;
}

// Shifts of the first `count` helpers within a host. Requires: count < host_size.
std::vector<size_t> near_shifts(size_t host_size, size_t count) {
  const auto root =
      static_cast<size_t>(std::lround(std::sqrt(static_cast<double>(host_size))));
  std::vector<size_t> order = {1, root};
  for (size_t shift = 2; shift < host_size; ++shift) order.push_back(shift);
  std::vector<size_t> shifts;
  const auto add = [&](size_t shift) {
    if (shifts.size() < count &&
        std::find(shifts.begin(), shifts.end(), shift) == shifts.end())
      shifts.push_back(shift);
  };
  for (const size_t shift : order) {
    if (count > 1 && shifts.size() + 1 == count && host_size % 2 == 0)
      add(host_size / 2);
    add(shift);
    add(host_size - shift);
  }
  return shifts;
}

std::vector<Rank> helpers_of(Rank rank, const Ring& ring, size_t num_helpers) {
  const Ring::Place& place = ring.places[static_cast<size_t>(rank.value)];
  const size_t num_ranks = ring.ranks.size();
  const size_t wanted = std::min(num_helpers, num_ranks - 1);
  // With k = 1 there is no place for a helper on another host.
  const size_t reserved = ring.num_hosts > 1 && wanted > 1 ? 1 : 0;
  const size_t near = std::min(wanted - reserved, place.host_size - 1);
  std::vector<Rank> found;
  const auto add = [&](size_t at) {
    const Rank one = ring.ranks[at % num_ranks];
    if (one != rank && std::find(found.begin(), found.end(), one) == found.end())
      found.push_back(one);
  };
  for (const size_t shift : near_shifts(place.host_size, near))
    add(place.host_from + (place.at - place.host_from + shift) % place.host_size);
  for (size_t shift = ring.largest_host; found.size() < wanted; ++shift)
    add(place.at + shift);
  return found;
}

}  // namespace

Result<HelperGroup> helper_group(Rank rank, int32_t num_ranks, int32_t num_helpers,
                                 std::span<const int32_t> hosts) {
  if (num_ranks < 1 || rank.value < 0 || rank.value >= num_ranks)
    return invalid(to_string(rank) + " has no helpers in a group of " +
                   std::to_string(num_ranks) + " ranks; pass a rank of the group");
  if (num_helpers < 0)
    return invalid("a rank cannot have " + std::to_string(num_helpers) +
                   " helpers; pass 0 or more");
  if (!hosts.empty() && hosts.size() != static_cast<size_t>(num_ranks))
    return invalid("hosts of " + std::to_string(hosts.size()) + " ranks for " +
                   std::to_string(num_ranks) + " ranks; pass one host for each rank");
  const Ring ring = make_ring(num_ranks, hosts);
  HelperGroup group;
  for (int32_t r = 0; r < num_ranks; ++r) {
    const auto helpers = helpers_of(Rank(r), ring, static_cast<size_t>(num_helpers));
    if (Rank(r) == rank)
      group.helpers = helpers;
    else if (std::find(helpers.begin(), helpers.end(), rank) != helpers.end())
      group.owners.push_back(Rank(r));
  }
  return group;
}

}  // namespace aikido::reassign

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Votes in a script: the expected majorities, and the check of the agreements on
// members. Pure.
//
//   S8 one agreement  All members that get the agreement of one number get the same
//                     ranks. A member gets ascending numbers, and is among the ranks.
//                     In a script with deaths only, an agreement ends well for each
//                     member as long as more than half of the voters live.

#include <bit>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "membership/view.h"
#include "sim/script.h"

namespace aikido::sim {

// The voters among `members`, with a bit for each rank.
uint64_t voters_of(const Script& script, uint64_t members);
// True if `some` contain more than half of the voters of `all`.
bool has_majority(const Script& script, uint64_t some, uint64_t all);

// True if `rank` is a live voter among `all`, or is connected to one. Otherwise its own
// calls fail. `cuts`: both bits of each pair that is cut off from each other.
bool reaches_voter(const Script& script, int32_t rank, uint64_t all, uint64_t killed,
                   const std::set<uint64_t>& cuts);

class Agreements {
 public:
  // `script` must outlive this object.
  explicit Agreements(const Script& script);

  // `rank` has its next agreement.
  void on_agreed(int32_t rank, const membership::Agreement& agreed);
  // `rank`, which is in a view of `members`, gets none, or the run ends before it gets
  // one. `live`: ranks that are not killed.
  void on_none(int32_t rank, uint64_t members, uint64_t live, const std::string& why);

  // The first broken guarantee; empty if there is none.
  const std::string& violation() const { return violation_; }

 private:
  void broken(const std::string& what);

  const Script& script_;
  bool has_deaths_only_ = true;
  std::map<uint32_t, uint64_t> ranks_;  // by number
  std::vector<uint32_t> last_;          // number, by rank
  std::string violation_;
};

}  // namespace aikido::sim

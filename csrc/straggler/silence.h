// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Time for which no byte of a member's contributions has arrived, although the member
// had called, over operations in a row (our design). One thread, no clock.
//
// A link that stands still shows no rate. The only evidence is how long nothing has
// arrived, and the best guess is that it takes as long again. In a single operation
// this guess is never more than twice the wait. So an owner would wait a little in each
// operation, in vain. Over operations in a row the guess doubles instead.

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "base/types.h"

namespace aikido::straggler {

class Silence {
 public:
  // A shard of `seq` was closed `after` the call of the member, without any byte of its
  // contribution. Shards of one operation count once. Returns the silence up to now.
  Duration on_close(Seq seq, Duration after) {
    if (seq != std::exchange(last_, seq)) before_ += std::exchange(present_, {});
    present_ = std::max(present_, after);
    return before_ + present_;
  }
  // Some bytes of a contribution have arrived.
  void end() { *this = {}; }

 private:
  Seq last_;
  Duration before_{0}, present_{0};  // in operations before `last_`, and in `last_`
};

}  // namespace aikido::straggler

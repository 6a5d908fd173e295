// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Check that a peer respects the send window (SendWindow) for collectives that are not
// called here. So a faulty peer cannot fill the memory of this process. Pure: takes
// events, returns decisions. One thread.

#include <cstdint>

#include "base/recycler.h"

namespace aikido::engine {

// Note [receive limit]
// The peer counts by the calls of this member that it knows of, so it never sends more
// than this member counts. But a failed or folded collective may end at the peer before
// it ends here, because the two notices use different lanes. Rule: the limit is twice
// the window, and a single collective may exceed the window. A peer beyond that limit
// is faulty, and its link is closed.
class ReceiveWindow {
 public:
  // `bytes`: the window, as the peer counts it.
  explicit ReceiveWindow(uint64_t bytes) : bytes_(bytes) {}

  // A message of `bytes` begins for collective `seq`, while `called` collectives are
  // called here. False: the peer may not send it. The fixed charge of a collective
  // counts once, because the result header of a late result comes first and alone.
  [[nodiscard]] bool admit(uint64_t seq, uint64_t bytes, uint64_t called);
  // Nothing is kept here for collective `seq` any more.
  void on_over(uint64_t seq);

  // Counted bytes, including the charges.
  uint64_t ahead_bytes() const { return ahead_bytes_; }

 private:
  uint64_t bytes_;
  uint64_t ahead_bytes_ = 0;
  Recycler recycler_{2 << 10};
  RecycledMap<uint64_t, uint64_t> ahead_{recycler_};  // by seq
};

}  // namespace aikido::engine

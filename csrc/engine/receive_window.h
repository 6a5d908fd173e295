// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Decides whether one peer keeps to the window for collectives that are not called here
// (SendWindow, seen from the other side), so that a member that does not cannot fill
// our memory. PURE: events in, decisions out. One thread.

#include <cstdint>

#include "base/recycler.h"

namespace aikido::engine {

// Note [twice the window]
// The peer counts by what it knows of our calls, and so never more than we do, but what
// has failed or been folded may be over there before it is over here: the two words go
// over different lanes. Twice the window leaves time for that, and one collective alone
// may be larger than it; beyond that the peer is wrong, and its link ends.
class ReceiveWindow {
 public:
  // `bytes`: what the peer may send, by its own count.
  explicit ReceiveWindow(uint64_t bytes) : bytes_(bytes) {}

  // A message of `bytes` begins for collective `seq`, while `called` are called here.
  // False: it is beyond what the peer may send. What a collective takes besides its
  // bytes counts once: of a late result the bare verdict comes first.
  [[nodiscard]] bool admit(uint64_t seq, uint64_t bytes, uint64_t called);
  // Nothing is kept here for collective `seq` any more.
  void on_over(uint64_t seq);

  // What is counted, with the charges.
  uint64_t ahead_bytes() const { return ahead_bytes_; }

 private:
  uint64_t bytes_;
  uint64_t ahead_bytes_ = 0;
  Recycler recycler_{2 << 10};
  RecycledMap<uint64_t, uint64_t> ahead_{recycler_};  // by seq
};

}  // namespace aikido::engine

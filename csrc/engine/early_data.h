// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Data of one peer that waits here for calls of the local member. Results and other
// data have limits of their own (receive_window.h). Progress thread.

#include <cstddef>
#include <cstdint>

#include "base/status.h"
#include "engine/receive_window.h"
#include "transport/frame.h"

namespace aikido::engine {

class EarlyData {
 public:
  // `window_bytes` limits the data, and `log_bytes` the results. `called`: highest
  // collective called here; it outlives this object.
  EarlyData(uint64_t window_bytes, uint64_t log_bytes, const uint64_t* called)
      : own_called_(called), others_(window_bytes), results_(log_bytes) {}

  // A message for a collective begins to arrive. Fails if the peer may not send it
  // before the call. `most_unasked`: bytes of a block that may be sent before they are
  // requested.
  Status admit(const transport::FrameHeader& header, size_t most_unasked);
  // Contributions to collective `seq` are not kept here any more.
  void note_dropped(uint64_t seq) { others_.on_over(seq); }
  // Results of collective `seq` that were received may come again.
  void forget_results(uint64_t seq) { results_.on_over(seq); }

 private:
  const uint64_t* const own_called_;
  ReceiveWindow others_;
  ReceiveWindow results_;
};

}  // namespace aikido::engine

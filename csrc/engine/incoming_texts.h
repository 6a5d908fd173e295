// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Receipt of messages between groups that belong to no operation: aborts, and messages
// about the view. One object for each peer. Both lanes may carry such messages, each in
// its own frames. Progress thread.

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/status.h"
#include "transport/frame.h"

namespace aikido::engine {

class IncomingTexts {
 public:
  static constexpr size_t kMaxAbort = 1024;
  // Limit of a message about the view, such as a report of many open operations of many
  // members.
  static constexpr size_t kMaxView = size_t{64} << 20;

  // Place for the payload of a frame of an abort. A text beyond kMaxAbort is cut.
  Result<std::byte*> place_abort(const transport::FrameHeader& header,
                                 std::span<const std::byte> extension);
  // The status once its text is complete. `size`: of the group.
  std::optional<Status> read_abort(const transport::FrameHeader& header,
                                   int32_t size) const;
  // The `spared` number of the last placed abort (Peer::send_abort).
  uint64_t spared() const { return spared_; }

  // Place for the payload of a frame of a message about the view.
  Result<std::byte*> place_view(const transport::FrameHeader& header);
  // The message once it is complete, until the next one begins.
  std::optional<std::span<const std::byte>> read_view(
      const transport::FrameHeader& header) const;

 private:
  using ByLane = std::array<std::vector<std::byte>, transport::kNumLanes>;

  ByLane abort_;
  ByLane view_;
  uint64_t spared_ = 0;
};

}  // namespace aikido::engine

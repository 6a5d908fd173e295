// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "engine/early_data.h"

#include <algorithm>

#include "base/text.h"

namespace aikido::engine {

using transport::FrameHeader;
using transport::FrameKind;

Status EarlyData::admit(const FrameHeader& header, size_t most_unasked) {
  if (header.offset > 0) return Status::ok();
  ReceiveWindow& window = header.kind == FrameKind::kResult ? results_ : others_;
  // A kReady states the size that its sender can take. After a bare result header the
  // data comes later.
  const bool is_empty = header.kind == FrameKind::kReady || header.payload_bytes == 0;
  // At most so much of a block is sent and kept before this member asks for it.
  const uint64_t most =
      header.kind == FrameKind::kData ? most_unasked : header.total_bytes;
  const uint64_t bytes = is_empty ? 0 : std::min(header.total_bytes, most);
  if (window.admit(header.seq, bytes, *own_called_)) return Status::ok();
  return {Code::kProtocol,
          concat("it sends more than its window for collectives that are not called "
                 "here: ",
                 window.ahead_bytes(), " bytes up to number ", header.seq, ", while ",
                 *own_called_, " are called")};
}

}  // namespace aikido::engine

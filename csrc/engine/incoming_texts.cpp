// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "engine/incoming_texts.h"

#include <algorithm>
#include <cstring>

#include "base/text.h"

namespace aikido::engine {

using transport::FrameHeader;
using transport::FrameKind;

Result<std::byte*> IncomingTexts::place_abort(const FrameHeader& header,
                                              std::span<const std::byte> extension) {
  if (header.offset == 0 && header.kind == FrameKind::kAbort) {
    spared_ = 0;
    if (!extension.empty() && extension.size() != sizeof spared_)
      return Status(Code::kProtocol, concat("an abort with an extension of ",
                                            extension.size(), " bytes"));
    if (!extension.empty()) std::memcpy(&spared_, extension.data(), sizeof spared_);
  }
  auto& text = abort_[static_cast<size_t>(lane_of(header.kind))];
  text.resize(std::min<uint64_t>(header.total_bytes, kMaxAbort));
  std::byte* const nowhere = nullptr;
  if (header.offset + header.payload_bytes > text.size()) return nowhere;
  return text.data() + header.offset;
}

std::optional<Status> IncomingTexts::read_abort(const FrameHeader& header,
                                                int32_t size) const {
  if (header.offset + header.payload_bytes != header.total_bytes) return std::nullopt;
  const auto& text = abort_[static_cast<size_t>(lane_of(header.kind))];
  const bool is_known =
      header.shard > 0 && header.shard <= static_cast<uint16_t>(Code::kInternal);
  return Status(is_known ? static_cast<Code>(header.shard) : Code::kAborted,
                printable({reinterpret_cast<const char*>(text.data()), text.size()}),
                header.tag >= 0 && header.tag < size ? Rank(header.tag) : kNoRank);
}

Result<std::byte*> IncomingTexts::place_view(const FrameHeader& header) {
  if (header.total_bytes > kMaxView) {
    return Status(Code::kProtocol,
                  concat("a message about the view of ", header.total_bytes, " bytes"));
  }
  auto& bytes = view_[static_cast<size_t>(lane_of(header.kind))];
  // Grows as data arrives, so that an announced size alone allocates nothing.
  if (header.offset == 0) bytes.clear();
  if (header.offset != bytes.size()) {
    return Status(Code::kProtocol, concat("byte ", header.offset,
                                          " of a message about "
                                          "the view after byte ",
                                          bytes.size()));
  }
  bytes.resize(header.offset + header.payload_bytes);
  return bytes.data() + header.offset;
}

std::optional<std::span<const std::byte>> IncomingTexts::read_view(
    const FrameHeader& header) const {
  if (header.offset + header.payload_bytes != header.total_bytes) return std::nullopt;
  return view_[static_cast<size_t>(lane_of(header.kind))];
}

}  // namespace aikido::engine

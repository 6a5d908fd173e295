// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Receiving direction of one lane: takes frames out of a byte stream. Payloads go to
// the memory that the handler returns, so only the stream copies large data. Progress
// thread only.
//
//   kHeader --> kPayload --> kHeader               without an extension
//   kHeader --> kExtension --> kPayload --> kHeader

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/buffer_pool.h"
#include "base/status.h"
#include "transport/byte_stream.h"
#include "transport/frame.h"
#include "transport/link.h"

namespace aikido::transport {

class FrameReceiver {
 public:
  // `handler` must outlive this object, and `stream` all calls before stop().
  FrameReceiver(ByteStream* stream, Lane lane, Rank peer, LinkHandler* handler);

  // Reads the bytes that are there, within the limit of a turn, and reports their
  // frames. Returns the reason if no further frame will come; later calls then do
  // nothing. The handler may call stop() meanwhile, but must not destroy this object.
  std::optional<Status> read_some();
  // Reads and reports nothing from now on.
  void stop() { is_stopped_ = true; }

  // See Link.
  const FrameHeader* incoming() const {
    return reading_ == Reading::kPayload ? &header_ : nullptr;
  }
  size_t num_received() const {
    return incoming() != nullptr ? header_.payload_bytes - payload_left_ : 0;
  }
  void drop_incoming() { payload_ = nullptr; }
  Buffer keep_incoming();

 private:
  enum class Reading { kHeader, kExtension, kPayload };

  Caching caching() const;
  bool parse();
  bool begin_frame(std::span<const std::byte> extension);
  const std::byte* find_block() const;
  void end_payload(size_t bytes);
  Status loss(const Status& of_stream);
  bool reject(const std::string& nonsense);

  ByteStream* stream_;
  Rank peer_;
  LinkHandler* handler_;
  bool is_stopped_ = false;
  std::optional<Status> rejection_;  // the peer has broken the protocol
  Reading reading_ = Reading::kHeader;
  FrameHeader header_;
  std::byte* payload_ = nullptr;  // null: discarded
  // may_keep_: the payload of the frame that begins is in a block. is_kept_: its
  // receiver keeps the block.
  bool may_keep_ = false, is_kept_ = false;
  size_t payload_left_ = 0;
  std::vector<std::byte> in_;
  size_t in_begin_ = 0;
  size_t in_end_ = 0;
};

}  // namespace aikido::transport

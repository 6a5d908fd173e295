// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// The frame: a header of 64 bytes, up to 255 bytes of extension, a payload. PROTOCOL.md
// has the layout byte by byte with a worked example. Encoding and decoding are pure;
// what comes over the wire is checked here and nowhere else. Any thread.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/status.h"
#include "base/types.h"

namespace aikido::transport {

inline constexpr uint16_t kFrameMagic = 0x4b41;  // "AK" on the wire
inline constexpr uint8_t kProtocolVersion = 20;
inline constexpr size_t kHeaderBytes = 64;
inline constexpr size_t kMaxExtensionBytes = 255;

enum class FrameKind : uint8_t {
  kContrib = 1,  // part of a member's input to a collective; first one carries the call
  kResult,  // part of a result from its owner; first one carries the mask if partial
  kReady,   // the sender can take the large data of a collective; carries the call
  kData,  // part of the data of broadcast or allgather; first one carries the call, and
          // the mask of those that it is to be passed on to
  kP2pAnnounce,  // a large send waits for its receive (tag in `tag`)
  kP2pReady,     // that receive is there: send
  kP2pData,      // part of a tagged message
  kCalled,       // only news: the sender has called `called`
  kAbort,        // the operation failed at the sender; the payload is the sentence
  kGoodbye,      // orderly end: the sender leaves the group
  kHeartbeat,    // the sender lives
  kP2pWithdraw,  // a tagged message will not come, or not whole
  kAskCalled,    // to be told when the receiver has called `seq`
  kP2pTaken,     // how much of what came unasked has found its receive
  kView,         // members change their view: membership/view_message.h
  kViewFirst,    // a new view, ahead of the bulk data that belongs to it
  kAck,          // a result of a shard that is not full is at the sender
  kAskPresent,   // does the receiver know of collective `seq`?
  kPresent,      // it does
  kNeed,         // the contribution that the receiver, a backup, has offered is needed
  kAskSettled,   // to be told when the receiver needs no result up to `seq`
  kAbortFirst,   // a kAbort, ahead of the bulk data that goes later
};
inline constexpr uint8_t kMaxFrameKind = static_cast<uint8_t>(FrameKind::kAbortFirst);

// Connections of a pair of members, by what goes over them: control frames never wait
// behind what the kernel holds of bulk data.
enum class Lane : uint8_t { kBulk, kControl };
inline constexpr size_t kNumLanes = 2;

// The lane of all frames of a kind.
constexpr Lane lane_of(FrameKind kind) {
  switch (kind) {
    case FrameKind::kReady:
    case FrameKind::kP2pAnnounce:
    case FrameKind::kP2pReady:
    case FrameKind::kCalled:
    case FrameKind::kAbort:
    case FrameKind::kHeartbeat:
    case FrameKind::kP2pWithdraw:
    case FrameKind::kAskCalled:
    case FrameKind::kP2pTaken:
    case FrameKind::kView:
    case FrameKind::kAck:
    case FrameKind::kAskPresent:
    case FrameKind::kPresent:
    case FrameKind::kNeed:
    case FrameKind::kAskSettled:
      return Lane::kControl;
    case FrameKind::kContrib:
    case FrameKind::kResult:
    case FrameKind::kData:
    case FrameKind::kP2pData:
    case FrameKind::kViewFirst:
    case FrameKind::kAbortFirst:
    case FrameKind::kGoodbye:  // behind all data
      return Lane::kBulk;
  }
  return Lane::kBulk;
}

struct FrameHeader {
  FrameKind kind = FrameKind::kCalled;
  uint8_t extension_bytes = 0;
  uint8_t block = 0;           // of the sender, in which the payload is; 0: it follows
  uint16_t shard = 0;          // shard of the bucket (allreduce), else 0
  uint32_t payload_bytes = 0;  // of this frame
  uint32_t epoch = 0;          // of the group
  int32_t tag = 0;             // point-to-point only
  uint64_t seq = 0;            // collective, or number of the message on its link
  uint64_t offset = 0;         // of this payload in its message, bytes
  uint64_t total_bytes = 0;    // of the message
  uint64_t called = 0;         // highest collective that the sender has called
  int32_t settled = 0;         // it needs no result up to collective called + settled
  uint32_t view = 0;           // in which the sender speaks (membership/view.h)

  friend bool operator==(const FrameHeader&, const FrameHeader&) = default;
};

// Writes the 64 bytes, checksum included.
void encode(const FrameHeader& header, std::span<std::byte, kHeaderBytes> out);

// kProtocol with a sentence when the bytes are no header of this version: wrong magic,
// version, kind or checksum, or offset + payload_bytes beyond total_bytes.
Result<FrameHeader> decode(std::span<const std::byte, kHeaderBytes> bytes);

}  // namespace aikido::transport

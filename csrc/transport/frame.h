// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Frame format: a header of 64 bytes, up to 255 bytes of extension, and a payload.
// PROTOCOL.md has the layout byte by byte with an example. Encoding and decoding are
// pure. Received headers are checked here and nowhere else. Any thread.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/status.h"
#include "base/types.h"

namespace aikido::transport {

inline constexpr uint16_t kFrameMagic = 0x4b41;  // "AK" on the wire
inline constexpr uint8_t kProtocolVersion = 23;
inline constexpr size_t kHeaderBytes = 64;
inline constexpr size_t kMaxExtensionBytes = 255;

enum class FrameKind : uint8_t {
  kContrib = 1,  // part of a member's input to a collective; the first carries the call
  kResult,  // part of a result, from its owner; the first carries the mask if partial
  kReady,   // the sender can take large data of a collective; carries the call
  kData,  // part of the data of broadcast or allgather; the first carries the call, and
          // the mask of the members to pass it on to
  kP2pAnnounce,  // a large send waits for its receive (tag in `tag`)
  kP2pReady,     // the receive is posted: send
  kP2pData,      // part of a tagged message
  kCalled,       // only reports that the sender has called `called`
  kAbort,        // the operation failed at the sender; the payload is the message
  kGoodbye,      // orderly end: the sender leaves the group
  kHeartbeat,    // the sender is alive
  kP2pWithdraw,  // a tagged message will not come, or not completely
  kAskCalled,    // asks for a frame when the receiver calls `seq`
  kP2pTaken,     // how many of the unrequested bytes have found their receive
  kView,         // view change of the members: membership/view_message.h
  kViewFirst,    // a new view, ahead of the bulk data that belongs to it
  kAck,          // the sender has a result of a shard that is not full
  kAskPresent,   // asks if the receiver knows of collective `seq`
  kPresent,      // the sender knows of collective `seq`
  kNeed,         // requests the contribution that the receiver, a backup, has offered
  kAskAcked,     // asks for a frame when the receiver needs no result up to `seq`
  kAbortFirst,   // kAbort that travels ahead of later bulk data
};
inline constexpr uint8_t kMaxFrameKind = static_cast<uint8_t>(FrameKind::kAbortFirst);

// Connections of a pair of members, by their content. Control frames never wait behind
// bulk data that the kernel holds.
enum class Lane : uint8_t { kBulk, kControl };
inline constexpr size_t kNumLanes = 2;

// Lane of all frames of a kind.
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
    case FrameKind::kAskAcked:
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
  uint8_t block = 0;   // sender's block with the payload; 0: the payload follows
  uint16_t shard = 0;  // shard of the bucket (allreduce), else 0
  uint32_t payload_bytes = 0;  // of this frame
  uint32_t epoch = 0;          // of the group
  int32_t tag = 0;             // point-to-point only
  uint64_t seq = 0;            // collective, or number of the message on its link
  uint64_t offset = 0;         // of this payload in its message, bytes
  uint64_t total_bytes = 0;    // of the message
  uint64_t called = 0;         // highest collective that the sender has called
  int32_t acked = 0;           // no result needed up to `called + acked`
  uint32_t view = 0;           // view of the sender (membership/view.h)

  friend bool operator==(const FrameHeader&, const FrameHeader&) = default;
};

// Writes the 64 bytes, including the checksum.
void encode(const FrameHeader& header, std::span<std::byte, kHeaderBytes> out);

// kProtocol with a sentence if the bytes are no header of this version: wrong magic,
// version, kind or checksum, or offset + payload_bytes exceeds total_bytes.
Result<FrameHeader> decode(std::span<const std::byte, kHeaderBytes> bytes);

}  // namespace aikido::transport

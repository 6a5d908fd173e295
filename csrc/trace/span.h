// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// What a trace is made of: something that took from one moment to another on one
// member. Plain values of fixed size, written to dumps as they are in memory: any
// thread.

#include <cstdint>
#include <type_traits>

#include "base/clock.h"

namespace aikido::trace {

enum class SpanKind : uint8_t {
  kOperation = 1,  // one collective call
  kSend,           // one message that goes out, from its queue to the kernel
  kSendChunk,      // one of its frames
  kReceiveChunk,   // a frame that comes
  kSection,        // a part of the user's step
  kStop,           // nothing of this process ran
  kHole,           // what a call has of a data shard from another than its primary
};

enum class SpanOutcome : uint8_t {
  kComplete,
  kSkipped,
  kFailed,
  kCancelled,
  kOpen,  // of a call: under way when the spans were taken
};

// Times are nanoseconds of the member's own clock; 0: there was no such moment.
//   operation: begin, called here; first, the last of those that it waits for is known
//     to have called, or its end if one has not; end, the caller has its answer
//   send: begin, queued; first, its first chunk is picked; end, the last byte is with
//     the kernel, or the message is cancelled, or its link is lost
//   hole: begin and end of its call
//   chunks: begin, picked, or its header is here; end, with the kernel, or whole
struct Span {
  int64_t begin_ns = 0;
  int64_t first_ns = 0;
  int64_t end_ns = 0;
  uint64_t bytes = 0;   // of the tensor, message or payload; hole: of its part of it
  uint64_t number = 0;  // of the collective or message; 0 in a section
  uint64_t offset = 0;  // chunk: of its payload in the message
  int64_t step = -1;    // operation, hole and section: of the user's training
  // Rank in the group: to whom, from whom; operation: who called last of those that it
  // waits for, or the first of them that has not called; hole: the backup whose
  // contribution counted, -1 where nobody's did, which is skipped.
  int32_t peer = -1;
  int32_t priority = 0;
  uint16_t name = 0;  // Recorder::name: of the group, or of the section
  // Messages: of the bucket. Operation: how many data shards there are, of the first
  // members, where others are backups; else 0. Hole: the data shard, and so the rank in
  // the group of its primary.
  uint16_t shard = 0;
  SpanKind kind = SpanKind::kSection;
  uint8_t detail = 0;  // operation, hole: collectives::CallKind; messages: FrameKind
  SpanOutcome outcome = SpanOutcome::kComplete;
  uint8_t thread = 0;  // which ring it is from; set when it is taken

  friend bool operator==(const Span&, const Span&) = default;
};
static_assert(sizeof(Span) == 72 && std::is_trivially_copyable_v<Span>);

constexpr int64_t to_ns(TimePoint at) {
  return at.time_since_epoch().count();
}

}  // namespace aikido::trace

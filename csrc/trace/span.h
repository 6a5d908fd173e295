// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Span of a trace: an activity of one member between two times. Plain values of fixed
// size, written to dumps as they are in memory. Any thread.

#include <cstdint>
#include <type_traits>

#include "base/clock.h"

namespace aikido::trace {

enum class SpanKind : uint8_t {
  kOperation = 1,  // one collective call
  kSend,           // one outgoing message, from its queue to the kernel
  kSendChunk,      // one frame of an outgoing message
  kReceiveChunk,   // one incoming frame
  kSection,        // a section of the user's step
  kStop,           // this process did not run
  kHole,           // data shard of a call that did not come from its primary
};

enum class SpanOutcome : uint8_t {
  kComplete,
  kSkipped,
  kFailed,
  kCancelled,
  kOpen,  // call in progress when the spans were taken
};

// Times are nanoseconds of the member's own clock; 0: no such time.
//   operation: begin, called here; first, the last awaited member is known to have
//     called, or the end if some member has not; end, the caller has its answer
//   send: begin, queued; first, its first chunk is chosen; end, its last byte is in
//     the kernel, or it is cancelled, or its link is lost
//   hole: begin and end of its call
//   chunk: begin, chosen, or its header has arrived; end, in the kernel, or complete
struct Span {
  int64_t begin_ns = 0;
  int64_t first_ns = 0;
  int64_t end_ns = 0;
  uint64_t bytes =
      0;  // of the tensor, message or payload; hole: of its part of the tensor
  // Of the collective or message. Section: label of the micro-batch that was taken
  // over, else 0.
  uint64_t number = 0;
  uint64_t offset = 0;  // chunk: position of its payload in the message
  int64_t step = -1;    // operation, hole and section: the user's training step
  // Rank in the group. Message: receiver or sender. Operation: the awaited member that
  // called last, or the first that has not called. Hole: the backup whose contribution
  // counted, or -1 for a skipped data shard. Section: the rank in the job whose
  // micro-batch was taken over, else -1.
  int32_t peer = -1;
  int32_t priority = 0;
  uint16_t name = 0;  // Recorder::name of the group or section
  // Message: shard of the bucket. Operation: number of data shards if there are
  // backups, else 0. Hole: the data shard, which equals the rank of its primary in the
  // group.
  uint16_t shard = 0;
  SpanKind kind = SpanKind::kSection;
  uint8_t detail = 0;  // operation, hole: collectives::CallKind; messages: FrameKind
  SpanOutcome outcome = SpanOutcome::kComplete;
  uint8_t thread = 0;  // ring that it came from; set by take()

  friend bool operator==(const Span&, const Span&) = default;
};
static_assert(sizeof(Span) == 72 && std::is_trivially_copyable_v<Span>);

constexpr int64_t to_ns(TimePoint at) {
  return at.time_since_epoch().count();
}

}  // namespace aikido::trace

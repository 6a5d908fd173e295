// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Limit of bytes in flight on all links that leave this host (our design). Pure; one
// thread.
//
// Bytes that have left cannot be recalled, and urgent data waits behind them: in the
// kernel, in the queue of the uplink, and in the queue of the peer's downlink. The
// limit is rate x residence. So all these queues together hold bytes for the residence
// time, at any rate. If bytes need less time to arrive and be acknowledged,
// the rate grows with the limit until the link is full. If the link gets slower, the
// limit follows.
//
// The limit must not cost rate: see limit_search.h.
//
// An uplink sends bytes nearly in the order of the writes. So if a byte is
// acknowledged, all bytes written before it have left the uplink, on any link, and
// count no more. So links continue if the acknowledgements of another link are late,
// because its peer reads slowly or that peer's uplink is slow. The last written bytes
// may be on such a link. Then nothing shows if they have left. So if nothing has left
// for kStill, a link with few bytes in flight may send a least chunk beyond the limit,
// one link at a time. The acknowledgement of this chunk shows it.
//
// Note [short transfers]
// A transfer that the uplink carries in a few milliseconds gains nothing from a limit,
// because its last byte leaves at the same time. But the limit costs a wake-up for each
// part. On a busy processor each wake-up is milliseconds late, while the link is idle.
// Rule: after a rest of the uplink, the first bytes are sent at once, as many as the
// uplink carries in the time `burst` of the aim. A rest is a time in which nothing
// waited here and next to nothing was in flight. A longer transfer is limited after
// that, and a slow uplink carries less in that time than the least limit. There is no
// burst if some data may be urgent.
//
// A link whose peer reads slowly must not use up the limit of all links. So no link
// gets more than the largest of these: twice the worth of its own rate, its part of the
// least limit, and one chunk, without which it would never have a turn. Only a link
// with more urgent data than all others may use up the whole limit, because the others
// would wait anyway. A link on which nothing has moved for kStuck does not count.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "transport/schedule/limit_search.h"

namespace aikido::transport {

// Rate in bytes per second of data that leaves while more data waits.
class RateMeter {
 public:
  // Length of one rate sample.
  static constexpr Duration kSample = std::chrono::milliseconds(5);

  // `delivered`: bytes since the beginning. `waits`: more data is ready, and may not be
  // sent. Returns the rate of a sample that has ended, if data waited all the time.
  std::optional<double> look(uint64_t delivered, bool waits, TimePoint now);
  // Nothing waits from now until the next look. That time belongs to no sample.
  void pause() { is_busy_ = false; }
  // 0: unknown.
  double bytes_per_s() const { return rate_; }

 private:
  double rate_ = 0;
  TimePoint since_{};
  uint64_t from_ = 0;
  bool is_busy_ = false;  // data has waited at each look of the sample
};

class InflightLimit {
 public:
  // Aim of the limit: residence time and number of chunks of the bytes in flight.
  // kUrgent applies if some data may be urgent, kStale if only useless bytes could be
  // in the way. A smaller limit needs more headers and leaves the link less full.
  // `burst`: see Note [short transfers].
  struct Aim {
    Duration residence;
    size_t num_chunks;
    Duration burst;
  };
  static constexpr Aim kUrgent{std::chrono::microseconds(500), 4, Duration::zero()};
  static constexpr Aim kStale{std::chrono::milliseconds(1), 2,
                              std::chrono::milliseconds(4)};
  // Least limit in bytes and in full segments. With fewer segments the peer's
  // acknowledgements wait for its timer.
  static constexpr size_t kLeast = 12 << 10;
  static constexpr size_t kLeastSegments = 4;
  // From this limit on, bytes in flight cost no other data time: no limit.
  static constexpr size_t kMost = 96 << 10;
  static constexpr size_t kNoBound = std::numeric_limits<size_t>::max();
  // Least size of a chunk.
  static constexpr size_t kLeastChunk = 4 << 10;
  // A link on which nothing has moved for this time does not count.
  static constexpr Duration kStuck = std::chrono::milliseconds(20);
  // If nothing has left for this time, one link may send a question.
  static constexpr Duration kStill = std::chrono::milliseconds(1);
  static_assert(LimitSearch::kLowSamples * RateMeter::kSample >
                LimitSearch::kOpenFirst);
  // Time to the next look: the least, the most, and the most if nothing moves. If looks
  // are too rare, the measured rate is only that of the looks. Then the rate would
  // fall, and looks would become rarer.
  static constexpr Duration kSoonest = std::chrono::microseconds(100);
  static constexpr Duration kLate = std::chrono::milliseconds(1);
  static constexpr Duration kLatest = std::chrono::milliseconds(10);

  // `fixed`: bytes of a fixed limit; 0: the limit follows the rate.
  explicit InflightLimit(size_t fixed) : fixed_(fixed) {}

  void set_aim(const Aim& aim) {
    aim_ = aim;
    if (aim.burst == Duration::zero()) burst_left_ = 0;
  }

  // Adds a link and returns its number. Numbers are used again.
  size_t add(size_t segment_bytes);
  void remove(size_t link);

  // `bytes` were written to the link, as a question or within the limit.
  void on_written(size_t link, size_t bytes, bool is_question = false);
  // `outstanding` of these bytes are not acknowledged. `waits`: the link has more data,
  // and may not send it. Call it for each link, then end_look().
  void on_look(size_t link, size_t outstanding, bool waits, TimePoint now);
  void end_look(TimePoint now);
  // All data of the link was written. Nothing waits until more data comes.
  void on_written_out(size_t link);

  size_t bytes() const { return bytes_; }  // kNoBound: no limit
  size_t chunk_bytes() const;              // longest chunk to send
  // Urgency of the link's data compared with the other links: equal, more urgent, or
  // such that the link may not send a question.
  enum class Standing { kEqual, kAhead, kBehind };
  // Bytes that the link may send now; 0: none until next_look(), perhaps.
  size_t room(size_t link, Standing standing = Standing::kEqual) const;
  // Longest chunk that the link may send now; 0: none.
  struct Grant {
    size_t bytes = 0;
    bool is_question = false;  // beyond the limit
  };
  Grant next_chunk(size_t link, Standing standing = Standing::kEqual) const;
  // Time until there is room for a chunk.
  Duration next_look() const;
  // True if a waiting link has bytes in flight that arrive.
  bool is_moving() const { return num_waiting_ > 0; }
  double bytes_per_s() const { return total_.bytes_per_s(); }

 private:
  // Ends of a written chunk: bytes written to its link, and to all links.
  struct Chunk {
    uint64_t end, end_of_all;
  };
  struct Flow {
    bool is_used = false;
    size_t segment_bytes = 0;
    uint64_t written = 0;
    size_t outstanding = 0;
    TimePoint moved{};
    bool waits = false;
    bool is_stuck = false;
    RateMeter meter;
    std::deque<Chunk> chunks{};  // not acknowledged
  };
  size_t bytes_of(double bytes_per_s) const;
  size_t burst_of(double bytes_per_s) const;
  void book(Flow& flow, size_t bytes);

  bool is_excused() const;

  size_t fixed_;
  Aim aim_ = kUrgent;
  size_t bytes_ = kNoBound;
  LimitSearch search_;
  bool was_excused_ = false;   // at a look of this sample
  size_t outstanding_ = 0;     // of all links that move
  uint64_t written_ = 0;       // to all links
  uint64_t left_ = 0;          // part of written_ that has left the uplink
  TimePoint left_at_{};        // last growth of left_
  bool is_still_ = false;      // left_at_ is long ago
  uint64_t question_end_ = 0;  // end of the bytes sent beyond the limit
  size_t asker_ = 0;           // link that sent these
  size_t least_ = kLeast;
  size_t num_waiting_ = 0;  // waiting links that move
  bool is_resting_ = true;  // nothing has waited since the last writes
  size_t burst_left_ = 0;   // bytes that may exceed the limit
  std::vector<Flow> flows_;
  uint64_t gone_ = 0;  // written to removed links
  RateMeter total_;
};

}  // namespace aikido::transport

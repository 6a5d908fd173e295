// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// How many bytes of all links that leave this host may be on their way at a time (our
// design). What has left is out of our hands, and what is urgent waits behind it: in
// the kernel, in the queue of the uplink, in that of the peer's downlink. With a credit
// of rate x residence, all of these together hold it for the residence, whatever the
// rate: where the bytes need less than that to get there and be acknowledged, the rate
// grows with the credit until the link is full, and where the link gets slower the
// credit follows it down. PURE; one thread.
//
// Where the way is longer than that, or somebody else fills the queues, or this process
// comes late to look, such a credit would starve us. So the rate is learnt at first
// with all of kMost, which queues of common lengths hold. When it is far lower over
// kLowSamples, kStep times the credit is tried, and again as long as that brings more,
// in the end no bound at all; what has brought more stays for a while, kOpenFirst and
// twice as long each time up to kOpen, until the bound has done for as long. A while in
// which more was on its way than the bound allows, of the time before, does not count:
// then it was not the bound. To go without a bound at once would be simpler, but
// members that share a downlink starve each other while some have a bound and others
// have not, and what overflows a queue costs more than it brings. For that reason a
// rate has to be low for longer than a member is without a bound at first: else those
// that it starves go without, too, and so on in turns. Where more brings nothing, the
// link may be slow just then, and what is learnt goes down by kLow at most: else a rate
// that the bound keeps low would be taken for that of the link for good. In a
// collective rates are low for tens of ms all the time, while two members send to a
// third, and on a busy processor they are low on average. A bound under which some
// samples in a row were high is not what keeps the others low. Who had to go without
// twice in a row does so sooner.
//
// An uplink sends in the order in which it was given, or nearly so. So what was written
// before something that is acknowledged has left it, whatever link it was for, and
// counts no more: where the acknowledgements of one link come late, since its peer
// takes little or the uplink of that peer is slow, the others go on. What was written
// last may be to such a link, and then nothing tells whether it has left. So when
// nothing has for kStill, a link on which little is on its way may send a least chunk
// beyond the credit, one link at a time: its acknowledgement tells.
//
// Note [short transfers]
// A transfer that the uplink carries in a few milliseconds gains nothing from a bound:
// its last byte leaves as soon with it as without it. But the bound costs a wake-up for
// each part of it, and where the processor is busy each of these comes milliseconds
// late, while the link rests. So behind a rest of the uplink, in which nothing waited
// here and next to nothing was on its way, the first bytes go at once: as many as the
// uplink carries in the time `burst` of the aim. A transfer that is longer is bounded
// from there on, and a slow uplink carries less in that time than the least credit.
// Where something may be urgent there is no such burst.
//
// A link whose peer takes little must not use up the credit of all. So none gets more
// than twice what its own rate is worth, its part of the least credit, or a chunk,
// without which it would never have a turn. Only what is more urgent than all that the
// others have may use up the credit of all: they would wait anyway. One on which
// nothing has moved for kStuck does not count.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <optional>
#include <vector>

#include "base/clock.h"

namespace aikido::transport {

// Bytes per second of what leaves while more waits to.
class RateMeter {
 public:
  // A rate is measured over so much time.
  static constexpr Duration kSample = std::chrono::milliseconds(5);

  // `delivered`: bytes, since the beginning. `waits`: more is there, and may not go.
  // Returns the rate of a sample that has ended, in which more waited all the time.
  std::optional<double> look(uint64_t delivered, bool waits, TimePoint now);
  // From now until the next look nothing waits: that time is of no sample.
  void pause() { is_busy_ = false; }
  // 0: not known yet.
  double bytes_per_s() const { return rate_; }

 private:
  double rate_ = 0;
  TimePoint since_{};
  uint64_t from_ = 0;
  bool is_busy_ = false;  // something has waited at each look since then
};

class UplinkCredit {
 public:
  // What is on its way may take so long, and is so many chunks: while something may be
  // urgent, and where stale bytes are all that would be in the way. Fewer bytes take
  // more headers, and keep the link less full. `burst`: see Note [short transfers].
  struct Aim {
    Duration residence;
    size_t num_chunks;
    Duration burst;
  };
  static constexpr Aim kUrgent{std::chrono::microseconds(500), 4, Duration::zero()};
  static constexpr Aim kStale{std::chrono::milliseconds(1), 2,
                              std::chrono::milliseconds(4)};
  // At least that, and so many full segments: with fewer the acknowledgements of a peer
  // come by its timer.
  static constexpr size_t kLeast = 12 << 10;
  static constexpr size_t kLeastSegments = 4;
  // From here on what is on its way costs nobody time: no bound.
  static constexpr size_t kMost = 96 << 10;
  static constexpr size_t kNoBound = std::numeric_limits<size_t>::max();
  // A chunk has so many bytes at least.
  static constexpr size_t kLeastChunk = 4 << 10;
  // A link on which nothing has moved for so long does not count.
  static constexpr Duration kStuck = std::chrono::milliseconds(20);
  // When nothing has left for so long, one link may ask.
  static constexpr Duration kStill = std::chrono::milliseconds(1);
  // So many samples tell a rate, which is learnt when it grows no more than that with
  // more credit. One is low below that share of the one that was learnt, and more
  // credit is worth it if the rate is so much higher with it. Whether it is low for
  // long so many samples tell, more than are in kOpenFirst.
  static constexpr int kSamples = 4;
  static constexpr int kLowSamples = 100;
  static constexpr double kGrown = 1.2;
  static constexpr double kStep = 4;
  static constexpr double kMostSteps = 64;  // beyond: no bound
  static constexpr double kLow = 0.7;
  static constexpr double kHigh = 1.3;
  static constexpr Duration kOpenFirst = std::chrono::milliseconds(250);
  static_assert(kLowSamples * RateMeter::kSample > kOpenFirst);
  static constexpr Duration kOpen = std::chrono::seconds(10);
  static constexpr Duration kNotAgainFor = std::chrono::seconds(5);
  // How soon to look again, at least, at most, and at most where nothing moves. The
  // rate that we see is that of our looks if they are too rare: then it would fall, and
  // they would become rarer.
  static constexpr Duration kSoonest = std::chrono::microseconds(100);
  static constexpr Duration kLate = std::chrono::milliseconds(1);
  static constexpr Duration kLatest = std::chrono::milliseconds(10);

  // `fixed`: the credit, instead of the one that follows the rate; 0: there is none.
  explicit UplinkCredit(size_t fixed) : fixed_(fixed) {}

  void set_aim(const Aim& aim) {
    aim_ = aim;
    if (aim.burst == Duration::zero()) burst_left_ = 0;
  }

  // A link, by the number that is returned; numbers are used again.
  size_t add(size_t segment_bytes);
  void remove(size_t link);

  // It was given so much, as a question or within the credit.
  void on_written(size_t link, size_t bytes, bool is_question = false);
  // Of that so much has not been acknowledged; `waits`: it has more, and may not send
  // it. To be told of each link, then end_look().
  void on_look(size_t link, size_t outstanding, bool waits, TimePoint now);
  void end_look(TimePoint now);
  // All that the link had has been written: nothing of it waits until more comes.
  void on_written_out(size_t link);

  size_t credit() const { return credit_; }  // kNoBound: there is no bound
  size_t chunk_bytes() const;                // longest that is to be sent
  // What a link has to send, beside what the others have: more urgent, or such that it
  // may not ask.
  enum class Standing { kEqual, kAhead, kBehind };
  // What the link may be given now; 0: nothing, which may change at next_look().
  size_t room(size_t link, Standing standing = Standing::kEqual) const;
  // The longest that it may be given now, of a chunk of any length; 0: nothing.
  struct Grant {
    size_t bytes = 0;
    bool is_question = false;  // beyond the credit
  };
  Grant next_chunk(size_t link, Standing standing = Standing::kEqual) const;
  // How long it takes until there is room for a chunk.
  Duration next_look() const;
  // A link that waits has something on its way that gets there.
  bool is_moving() const { return num_waiting_ > 0; }
  double bytes_per_s() const { return total_.bytes_per_s(); }

 private:
  // The bytes that were written before its end, of its link and of all.
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
  size_t credit_of(double bytes_per_s) const;
  size_t burst_of(double bytes_per_s) const;
  void book(Flow& flow, size_t bytes);

  // Learn: with more, until the rate grows no more. Bound. Open: with more, for so
  // long.
  enum class Mode { kLearn, kBound, kOpen };
  void on_sample(double bytes_per_s, TimePoint now);
  void end_learning(TimePoint now);
  bool is_excused() const;
  void begin(Mode mode);

  size_t fixed_;
  Aim aim_ = kUrgent;
  size_t credit_ = kNoBound;
  Mode mode_ = Mode::kLearn;
  int num_samples_ = 0;       // in this mode; when bound, up to kLowSamples
  double sum_ = 0;            // of them,
  double last_few_ = 0;       // and of the kSamples that are being counted
  double learnt_ = 0;         // bytes per second; 0: not yet
  double learnt_before_ = 0;  // what was low beside it, and more was tried
  double steps_ = 1;          // times the credit of the rate; when bound 1
  double worth_it_ = 1;       // the most of them that brought more
  double open_steps_ = 1;     // the last time
  bool has_learnt_ = false;
  TimePoint not_before_{};          // learning again, or the end of kOpen
  Duration open_for_ = kOpenFirst;  // the next time
  bool is_suspected_ = false;       // the bound, of keeping the rate low
  bool was_excused_ = false;        // at a look of this sample
  size_t outstanding_ = 0;          // of all on which something moves
  uint64_t written_ = 0;            // to all links,
  uint64_t left_ = 0;               // and so much of that has left the uplink
  TimePoint left_at_{};             // when that was news
  bool is_still_ = false;           // long ago
  uint64_t question_end_ = 0;       // of what was sent beyond the credit,
  size_t asker_ = 0;                // by this one
  size_t least_ = kLeast;
  size_t num_waiting_ = 0;  // links on which something moves
  bool is_resting_ = true;  // nothing has waited since the last writes
  size_t burst_left_ = 0;   // bytes that may go beyond the credit
  std::vector<Flow> flows_;
  uint64_t gone_ = 0;  // written to links that were removed
  RateMeter total_;
};

}  // namespace aikido::transport

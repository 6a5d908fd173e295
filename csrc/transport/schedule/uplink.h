// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Order of all data that this process sends to other hosts, over all links. Progress
// thread only.
//
// Links take turns in three cases: calls of different priority are made, a group
// expects such calls, or calls are made whose messages are likely to be cancelled. Then
// a link does not write by itself, but asks for a turn. The next chunk is that of the
// highest class of all links whose peer takes data. Equal links take turns. The kernel
// gets no more than the limit of bytes in flight allows (inflight_limit.h). So few
// bytes are ahead of urgent data, and few bytes leave that have become useless. In all
// other cases links write by themselves, and nothing is counted or asked of the kernel.

#include <optional>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "transport/loop/event_loop.h"
#include "transport/schedule/inflight_limit.h"
#include "transport/schedule/scheduler.h"
#include "transport/schedule/send_counters.h"

namespace aikido::transport {

class Uplink final : private Flushable, private FdHandler {
 public:
  // Time that links take turns after a call of another priority than the call before.
  static constexpr Duration kOrderedFor = std::chrono::seconds(10);
  // Time that links take turns after a call whose messages may be cancelled.
  static constexpr Duration kStaleFor = std::chrono::seconds(1);

  // Link that leaves this host.
  class Sender {
   public:
    virtual ~Sender() = default;
    virtual Scheduler& scheduler() = 0;
    // A chunk has begun, and its rest is not written yet.
    virtual bool has_begun() const = 0;
    // The link waits for room in its socket, or sends no more.
    virtual bool is_blocked() const = 0;
    // Written bytes that the peer's kernel has not acknowledged.
    virtual size_t outstanding() const = 0;
    // Payload of a full segment.
    virtual size_t segment_bytes() const = 0;
    // Writes the rest of a begun chunk, or else a chunk of at most `most` bytes.
    // Returns the written bytes including the header; 0: the link is blocked, or has no
    // data.
    virtual size_t write_chunk(size_t most) = 0;
    // Writes several chunks at once, as if there were no other link. Returns as
    // write_chunk().
    virtual size_t write_many() = 0;
  };

  // `credit_bytes`: see InflightLimit. `loop` must have stopped before the uplink is
  // destroyed. Throws std::system_error if the kernel refuses a timer.
  Uplink(EventLoop* loop, size_t credit_bytes);

  void add(Sender* sender);
  void remove(Sender* sender);

  // A call of that priority is made here. `may_cancel`: its messages are likely to
  // become useless before they have left, as messages to the owner of a shard that is
  // closed without them.
  void note(Priority priority, bool may_cancel = false);
  // From now on calls may differ in priority, until end_order() was called as often.
  void keep_order() { ++num_keepers_; }
  void end_order() { --num_keepers_; }
  // True if links ask for turns.
  bool is_ordered() const { return is_urgent() || stale_until_ > loop_->now(); }
  // `sender` has or may have data to write. It gets its turn at the end of this turn of
  // the loop, or when the limit allows more bytes.
  void ask();

  SendCounters& counters() { return counters_; }
  const SendCounters& counters() const { return counters_; }

 private:
  struct Entry {
    Sender* sender;
    size_t flow;  // in limit_
  };
  struct Choice {
    const Entry* entry = nullptr;  // null: no link has a turn
    InflightLimit::Grant grant;
  };

  bool is_urgent() const { return num_keepers_ > 0 || urgent_until_ > loop_->now(); }
  void flush() override;
  void on_events(uint32_t events) override;
  void look();
  std::optional<Priority> ahead() const;
  InflightLimit::Grant grant(const Entry& entry, std::optional<Priority> ahead) const;
  Choice choose(std::optional<Priority> ahead);
  bool has_more(const Entry& entry) const;
  bool can_start(const Entry& entry) const;
  bool all_are_equal() const;
  void count_inversion(const Entry& chosen, std::optional<Priority> ahead);
  Duration next_look(bool did_write);
  void wake_after(Duration wait);

  EventLoop* loop_;
  Fd timer_;
  bool is_timer_set_ = false;
  bool is_asked_ = false;
  std::vector<Entry> entries_;
  size_t last_ = 0;  // index in entries_ of the last turn
  InflightLimit limit_;
  SendCounters counters_;
  Priority last_priority_ = 0;
  bool has_priority_ = false;
  TimePoint urgent_until_{};
  TimePoint stale_until_{};
  int num_keepers_ = 0;
  TimePoint looked_{};
  Duration wait_{};  // until the last look that found nothing
};

}  // namespace aikido::transport

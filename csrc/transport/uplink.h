// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// What this process sends to other hosts, over all links: while calls of different
// priority are made, or a group expects to make them, or calls whose messages are
// likely to be cancelled, the links do not write by themselves, but ask for a turn. The next chunk
// is that of the highest class of all links whose peer takes anything; those that are
// equal take turns. No more is given to the kernel than the credit allows
// (uplink_credit.h), so that little is in front of what is urgent, and little leaves
// that is of no use any more. Else nothing of this happens, and nothing is counted or
// asked of the kernel. Progress thread only.

#include <optional>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "transport/event_loop.h"
#include "transport/scheduler.h"
#include "transport/send_counters.h"
#include "transport/uplink_credit.h"

namespace aikido::transport {

class Uplink final : private Flushable, private FdHandler {
 public:
  // So long after a call of another priority than the one before it,
  static constexpr Duration kOrderedFor = std::chrono::seconds(10);
  // and so long after one whose messages may be cancelled.
  static constexpr Duration kStaleFor = std::chrono::seconds(1);

  // A link that leaves this host.
  class Sender {
   public:
    virtual ~Sender() = default;
    virtual Scheduler& scheduler() = 0;
    // A chunk has begun, and its rest is still to go.
    virtual bool has_begun() const = 0;
    // It waits for room in its socket, or sends no more.
    virtual bool is_blocked() const = 0;
    // Bytes that it has written, and its peer's kernel has not acknowledged.
    virtual size_t outstanding() const = 0;
    // Payload of a full segment.
    virtual size_t segment_bytes() const = 0;
    // Writes what has begun, or else a chunk of `most` bytes at most. Returns what was
    // written, with its header; 0: it is blocked, or nothing is left.
    virtual size_t write_chunk(size_t most) = 0;
    // As if there were no other link: several chunks at once. Returns as write_chunk().
    virtual size_t write_many() = 0;
  };

  // `credit_bytes`: see UplinkCredit. `loop` runs no more when the uplink ends. Throws
  // std::system_error when the kernel refuses a timer.
  Uplink(EventLoop* loop, size_t credit_bytes);

  void add(Sender* sender);
  void remove(Sender* sender);

  // A call of that priority is made here. `may_cancel`: what it sends is likely to be of
  // no use before it has left, as to the owner of a shard that is closed without it.
  void note(Priority priority, bool may_cancel = false);
  // From here on calls may differ in priority, until end_order() was called as often.
  void keep_order() { ++num_keepers_; }
  void end_order() { --num_keepers_; }
  // Links ask for turns.
  bool is_ordered() const { return is_urgent() || stale_until_ > loop_->now(); }
  // `sender` has something to write, or may have: it gets its turn at the end of this
  // turn of the loop, or when there is credit.
  void ask();

  SendCounters& counters() { return counters_; }
  const SendCounters& counters() const { return counters_; }

 private:
  struct Entry {
    Sender* sender;
    size_t flow;  // in credit_
  };
  struct Choice {
    const Entry* entry = nullptr;  // null: nobody has a turn
    UplinkCredit::Grant grant;
  };

  bool is_urgent() const { return num_keepers_ > 0 || urgent_until_ > loop_->now(); }
  void flush() override;
  void on_events(uint32_t events) override;
  void look();
  std::optional<Priority> ahead() const;
  UplinkCredit::Grant grant(const Entry& entry, std::optional<Priority> ahead) const;
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
  size_t last_ = 0;  // of entries_: who had the last turn
  UplinkCredit credit_;
  SendCounters counters_;
  Priority last_priority_ = 0;
  bool has_priority_ = false;
  TimePoint urgent_until_{};
  TimePoint stale_until_{};
  int num_keepers_ = 0;
  TimePoint looked_{};
  Duration wait_{};  // until the last look again that brought nothing
};

}  // namespace aikido::transport

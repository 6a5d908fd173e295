// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// One collective call as a resumable state machine. It is born by the local call or by
// the first frame of another member, whichever comes first; it never blocks. Progress
// thread, where also the last that points to it lets it go: its memory, and that of
// what it holds, is used again there.

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/recycler.h"
#include "base/status.h"
#include "collectives/call.h"
#include "collectives/operation_host.h"
#include "collectives/outcome.h"
#include "collectives/parts.h"
#include "membership/view_message.h"
#include "straggler/data_shard.h"

namespace aikido::collectives {

// Reports the end of a call once. Outcome is meaningful only when the status is ok.
// Runs on the progress thread: must neither block nor throw.
using Completion = std::function<void(const Status&, const Outcome&)>;

// Memory of one piece of data that goes to or comes from a peer.
struct OutBlock {
  Rank to;
  const std::byte* data = nullptr;
  size_t bytes = 0;
};
struct InBlock {
  Rank from;
  std::byte* data = nullptr;
  size_t bytes = 0;
};

// The local half of a call. The memory stays valid until `keep_alive` is released,
// which may be after the completion: a late chunk can still be on its way out of it.
struct LocalCall {
  const std::byte* input = nullptr;  // allreduce, reduce; may equal output
  std::byte* output = nullptr;       // allreduce, reduce at the root, reduce_scatter
  // At most one per rank. Of a reduce_scatter: one per rank, in their order.
  std::vector<OutBlock> out_blocks;
  std::vector<InBlock> in_blocks;
  // Memory for a block whose InBlock has none: `bytes` of it is then the most that may
  // come. Progress thread.
  std::function<std::byte*(Rank from, size_t bytes)> allocate;
  Priority priority = 0;
  // What the local contribution is of (straggler/data_shard.h).
  int32_t data_shard = straggler::kAnyDataShard;
  TimePoint called_at{};
  // If it is traced: the step of the user's training, and when the user called.
  int64_t step = -1;
  TimePoint traced_at{};
  Completion on_done;
  std::shared_ptr<void> keep_alive;
  // Where data comes later: null where it is there (parts.h). Of `input` only.
  std::shared_ptr<Hold> hold;
  std::shared_ptr<Parts> parts;
};

class Operation : public transport::SendOwner,
                  public std::enable_shared_from_this<Operation> {
 public:
  Operation(OperationHost* host, Seq seq, Call call, Rank first_caller)
      : host_(host),
        seq_(seq),
        call_(std::move(call)),
        first_caller_(first_caller),
        borrowing_(host->recycler()) {}

  Seq seq() const { return seq_; }
  const Call& call() const { return call_; }
  // Whose frame or call brought it to life: what a mismatch is reported against.
  Rank first_caller() const { return first_caller_; }
  bool is_started() const { return started_; }
  // The caller has its answer, and no frame for it is awaited any more.
  bool is_over() const { return over_; }
  bool has_failed() const { return !failure_; }
  TimePoint called_at() const { return local_.called_at; }

  // The local member calls it. Requires: not started. A failed Status when what has
  // come from others does not fit: fails the operation on every member.
  Status start(LocalCall local);
  // Ends it with a failure. The caller hears at once, or when it calls.
  void fail(const Status& why);

  // A frame of `from` begins: where its payload goes, nullptr to throw it away. `rest`:
  // what follows the call in the first frame of a message. A failed Status when the
  // frame does not fit the call: fails the operation on every member.
  virtual Result<std::byte*> place(Rank from, const transport::FrameHeader& header,
                                   std::span<const std::byte> rest) = 0;
  // That payload is complete.
  virtual void arrived(Rank from, const transport::FrameHeader& header) = 0;

  // The result does not hold all of this member's data. Known once it is over.
  virtual bool was_skipped() const { return false; }
  // Where some members are backups: what the result lacks of primaries, as holes_of().
  // Known once it is over with a result that its caller has.
  virtual std::vector<Hole> holes() const { return {}; }
  // The result is here whole although the caller has not called yet.
  virtual bool is_committed() const { return false; }
  // Nothing of another member is missing, whether the caller is here or not.
  virtual bool has_all() const { return is_committed(); }
  // What is made of it here is nobody else's result.
  virtual bool is_own() const { return false; }
  // There is a result of every part of it, here or with a member that will send it.
  virtual bool is_decided() const { return is_committed(); }
  // No owner of a shard can have all of it unless another member has that shard too:
  // one that is owned here is open, or some shard is closed without somebody.
  virtual bool is_withheld() const { return false; }
  // How many contributions these members can make to a result, as far as known here.
  virtual int32_t most_contributions(const RankSet& members) const {
    return straggler::most_contributions(call_.policy, members);
  }
  // What others contribute from now on is not kept.
  virtual bool is_closed() const { return false; }

  // It is over here, and what others are still to get of it is on its way: it hears of
  // the view, and of the results that others send.
  virtual bool is_sending() const { return false; }

  // The view has changed, or is about to.
  virtual void on_promise() {}
  virtual void on_view() {}
  // `rank` has called this operation, or a later one.
  virtual void on_called(Rank) {}
  // The local member has what follows from it by other means and will not call it: its
  // result is dropped, and what the others need of this member it still does. Requires:
  // not started.
  virtual void pass_over() {}
  // What is had of it counts no more. Requires: not started, and out of the view.
  virtual void start_over() {}
  // `rank` needs no result of this operation any more, and will not contribute.
  virtual void on_settled(Rank) {}
  // A frame without payload: kAck, kAskPresent, kPresent.
  virtual void on_notice(Rank, const transport::FrameHeader&) {}
  // What is had of it, for a report. Adds to `had`, in the order of shards.
  virtual void report(std::vector<membership::HadShard>&) const {}
  // The same of what is closed here and is not had.
  virtual void report_closed(std::vector<membership::HadShard>&) const {}
  // The shards of which it has parts, by their numbers; ascending.
  virtual std::vector<int32_t> divided() const { return {}; }

  // Timed decisions (skip policies).
  virtual void on_time(TimePoint) {}
  virtual std::optional<TimePoint> next_look() const { return std::nullopt; }

  // Members that this one still waits for, for the text of a time-out.
  virtual std::vector<Rank> missing() const = 0;
  // One of them without whose bytes nothing can be done here, whatever comes from
  // others; kNoRank: something can. Requires: started.
  virtual Rank first_awaited() const { return kNoRank; }
  // The missing ones, and who may hold up these, for the text of a time-out.
  virtual std::vector<Rank> suspects() const { return missing(); }
  // The missing ones, and whose call they may wait for themselves.
  virtual std::vector<Rank> awaited() const { return missing(); }
  // Asks the missing members by a kReady: a call of theirs that differs comes to light,
  // also where nobody has anything to send.
  virtual void probe();

  void on_sent(uint32_t token) final;

 protected:
  virtual Status on_start() = 0;
  // Also after the end: a late chunk may outlive its operation.
  virtual void on_message_sent(uint32_t) {}

  // Whether messages of this kind are sent from the caller's memory.
  virtual bool is_callers(transport::FrameKind) const { return true; }

  // So many members get the same memory by messages of this kind and shard.
  virtual size_t num_receivers(transport::FrameKind) const { return 1; }

  // Of a frame of this kind at most; 0: as the link has it.
  virtual size_t chunk_of(transport::FrameKind) const { return 0; }

  // A message of this operation, owned by it: counts as pending until it is sent.
  transport::MessageId post(Rank to, transport::FrameKind kind, int32_t shard,
                            const std::byte* data, size_t bytes, size_t offset,
                            size_t total, bool with_call, uint32_t token = 0,
                            std::span<const std::byte> extra = {},
                            bool leaves_last = false);
  // Lets go of the caller's memory before the operation itself goes.
  void release_caller() { local_.keep_alive.reset(); }
  // The caller's answer.
  void succeed(Outcome outcome);
  void set_over() { over_ = true; }
  // What a kReady says in the place of the shard.
  static constexpr int32_t kAnySize = 1;
  Status misfit(Rank from, uint64_t bytes, size_t expected) const;
  // Bytes of a frame at most, so that no element is cut in two.
  size_t whole_elements() const;
  // All ranks but this one.
  std::vector<Rank> others() const;

  OperationHost* const host_;
  const Seq seq_;
  const Call call_;
  const Rank first_caller_;
  LocalCall local_;
  size_t pending_sends_ = 0;
  Status failure_;

 private:
  bool started_ = false;
  bool over_ = false;
  // Messages that read the caller's memory; some are through.
  RecycledVector<std::pair<Rank, transport::MessageId>> borrowing_;
};

}  // namespace aikido::collectives

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Base class of collective calls: one call as a resumable state machine. An operation
// is created by the local call or by the first frame of another member. It never
// blocks. Progress thread, which also releases the last reference: the memory of an
// operation and of its parts is used again there.

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
#include "straggler/data_shard.h"

namespace aikido::collectives {

// Reports the end of a call once. The outcome has a meaning only if the status is ok.
// Runs on the progress thread: must neither block nor throw.
using Completion = std::function<void(const Status&, const Outcome&)>;

// Memory of the data for one peer, or from one peer.
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

// Local part of a call. The memory stays valid until `keep_alive` is released. That may
// be after the completion: a late chunk may still be sent from the memory.
// Memory of the result of an operation, which the caller shares with the operation.
// Nobody writes to it. Filled before on_done() reports success.
struct ResultSlot {
  std::shared_ptr<const std::byte> memory;
};

struct LocalCall {
  const std::byte* input = nullptr;  // allreduce, reduce; may equal output
  std::byte* output = nullptr;       // allreduce, reduce at the root, reduce_scatter
  // For an allreduce with a policy that uses the view: the caller takes the memory of
  // the result from here, which saves a copy, and `output` is null.
  std::shared_ptr<ResultSlot> result_slot;
  // At most one block per rank. For a reduce_scatter: one per rank, in their order.
  std::vector<OutBlock> out_blocks;
  std::vector<InBlock> in_blocks;
  // Allocates memory for a block whose InBlock has none; InBlock::bytes is then the
  // upper limit of its size. Progress thread.
  std::function<std::byte*(Rank from, size_t bytes)> allocate;
  Priority priority = 0;
  // Data shard of the local contribution (straggler/data_shard.h).
  int32_t data_shard = straggler::kAnyDataShard;
  double weight = 1.0;  // of the local contribution, if the call is weighted
  TimePoint called_at{};
  // For a traced call: step of the user's training, and time of the user's call.
  int64_t step = -1;
  TimePoint traced_at{};
  Completion on_done;
  std::shared_ptr<void> keep_alive;
  // For data that arrives later (parts.h); null if the data is there. For `input` only.
  std::shared_ptr<Hold> hold;
  std::shared_ptr<Parts> parts;
};

class SkippableOperation;
class SkippablePart;

// Contract of every call. SkippableOperation (skippable_operation.h) adds the contract
// of calls that can end without a member.
class Operation : public transport::SendOwner,
                  public std::enable_shared_from_this<Operation> {
 public:
  Operation(OperationHost* host, Seq seq, Call call, Rank first_caller,
            SkippableOperation* skippable = nullptr)
      : host_(host),
        seq_(seq),
        call_(std::move(call)),
        first_caller_(first_caller),
        skippable_(skippable),
        borrowing_(host->recycler()) {}

  Seq seq() const { return seq_; }
  const Call& call() const { return call_; }
  // Rank whose frame or call created the operation. If calls differ, the errors name
  // this rank.
  Rank first_caller() const { return first_caller_; }
  bool is_started() const { return started_; }
  // The caller has its result or error, and the operation awaits no frame for it any
  // more.
  bool is_over() const { return over_; }
  bool has_failed() const { return failure_.has_failed(); }
  TimePoint called_at() const { return local_.called_at; }

  // The local member calls the operation. Requires: not started. A failed Status if
  // data from others does not fit: the operation then fails on every member.
  Status start(LocalCall local);
  // Ends the operation with a failure. The caller gets it at once, or when it calls.
  void fail(const Status& why);

  // A frame of `from` begins. Returns the memory for its payload; nullptr discards the
  // payload. `rest`: bytes after the call in the first frame of a message. A failed
  // Status if the frame does not fit the call: the operation then fails on every
  // member.
  virtual Result<std::byte*> place(Rank from, const transport::FrameHeader& header,
                                   std::span<const std::byte> rest) = 0;
  // The payload of that frame is complete.
  virtual void arrived(Rank from, const transport::FrameHeader& header) = 0;

  // The same object if it may end without a member; null for a strict operation.
  SkippableOperation* skippable() { return skippable_; }
  const SkippableOperation* skippable() const { return skippable_; }

  // Timed decisions.
  virtual void on_time(TimePoint) {}
  virtual std::optional<TimePoint> next_look() const { return std::nullopt; }

  // Members that this member still waits for, for the text of a time-out.
  virtual std::vector<Rank> missing() const = 0;
  // A missing member whose bytes are needed before any other bytes help; kNoRank: there
  // is none. Requires: started.
  virtual Rank first_awaited() const { return kNoRank; }
  // The missing members, and members that may delay these, for the text of a time-out.
  virtual std::vector<Rank> suspects() const { return missing(); }
  // The missing members, and members whose call these may wait for.
  virtual std::vector<Rank> awaited() const { return missing(); }
  // Asks the missing members by a kReady. So a different call of a member is detected,
  // also if no member has data to send.
  virtual void probe();

  void on_sent(uint32_t token) final;

 protected:
  virtual Status on_start() = 0;
  // Called after the end, too: a late chunk may outlive its operation.
  virtual void on_message_sent(uint32_t) {}

  // True if messages of this kind are sent from the caller's memory.
  virtual bool is_callers(transport::FrameKind) const { return true; }

  // Number of members that get the same memory by messages of this kind and shard.
  virtual size_t num_receivers(transport::FrameKind) const { return 1; }
  // Changes when messages of the same kind and shard get other bytes.
  virtual uint32_t edition() const { return 0; }

  // Largest frame of this kind, in bytes; 0: the link decides.
  virtual size_t chunk_of(transport::FrameKind) const { return 0; }

  // Posts a message of this operation. It counts as pending until it is sent.
  transport::MessageId post(Rank to, transport::FrameKind kind, int32_t shard,
                            const std::byte* data, size_t bytes, size_t offset,
                            size_t total, bool with_call, uint32_t token = 0,
                            std::span<const std::byte> extra = {},
                            bool leaves_last = false);
  // Releases the caller's memory before the operation itself ends.
  void release_caller() { local_.keep_alive.reset(); }
  // Gives the caller its answer.
  void succeed(Outcome outcome);
  void set_over() { over_ = true; }
  // Value of the shard field in a kReady without a size.
  static constexpr int32_t kAnySize = 1;
  Status misfit(Rank from, uint64_t bytes, size_t expected) const;
  // Largest number of bytes in a frame that holds whole elements only.
  size_t whole_elements() const;
  // All ranks except this one.
  std::vector<Rank> others() const;

  OperationHost* const host_;
  const Seq seq_;
  const Call call_;
  const Rank first_caller_;
  SkippableOperation* const skippable_;
  LocalCall local_;
  size_t pending_sends_ = 0;
  Status failure_;

 private:
  friend class SkippablePart;  // skippable/skippable_part.h

  bool started_ = false;
  bool over_ = false;
  // Messages that read the caller's memory; some may be sent already.
  RecycledVector<std::pair<Rank, transport::MessageId>> borrowing_;
};

}  // namespace aikido::collectives

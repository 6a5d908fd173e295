// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Services of a group for its operations. Memory and settings are kept here. Every
// other question or event goes to one of the group's parts. Progress thread.

#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/buffer_pool.h"
#include "base/clock.h"
#include "base/recycler.h"
#include "collectives/view_host.h"
#include "engine/group_counters.h"
#include "engine/group_options.h"
#include "engine/group_trace.h"
#include "engine/peers.h"
#include "engine/policy_table.h"
#include "engine/shard_owners.h"
#include "membership/view_change.h"

namespace aikido::engine {

// Events of operations that concern the whole group.
class OperationEvents {
 public:
  virtual ~OperationEvents() = default;
  // See OperationHost.
  virtual void on_over(Seq seq) = 0;
  virtual void fail_everywhere(Seq seq, const Status& why) = 0;
  // The first operation of the group that may skip was made. Before, lost members did
  // not matter to the view.
  virtual void on_first_policy() = 0;
};

class OperationServices final : public collectives::ViewHost {
 public:
  // Parts of the group. They outlive this object, and may be built after it.
  struct Parts {
    const Clock* clock;
    const GroupOptions* options;
    Peers* peers;
    PolicyTable* policies;
    membership::ViewChange* view_change;
    ShardOwners* owners;
    GroupTrace* trace;
    OperationEvents* group;
  };
  explicit OperationServices(const Parts& parts)
      : parts_(parts), pool_(parts.options->pool_bytes) {}

  // Number of the view, in all frames; 1 before the call.
  void set_epoch(Epoch epoch) { epoch_ = static_cast<uint32_t>(epoch.value); }
  // The number in place, for frames of the group itself.
  const uint32_t* place_of_epoch() const { return &epoch_; }
  GroupCounters& counters() { return counters_; }
  const GroupCounters& counters() const { return counters_; }

  // ---- OperationHost
  Rank self() const override { return parts_.options->self; }
  int32_t size() const override { return parts_.options->size; }
  uint32_t epoch() const override { return epoch_; }
  uint32_t view_number() const override { return view().number; }
  const Clock& clock() const override { return *parts_.clock; }
  const collectives::OperationSettings& settings() const override {
    return parts_.options->operation;
  }
  BufferPool& pool() override { return pool_; }
  const Recycler& recycler() const override { return recycler_; }
  transport::MessageId send(Rank to, transport::OutMessage&& message) override;
  bool send_at_once(Rank to, const transport::OutMessage& message) override;
  size_t cancel(Rank to, transport::MessageId id) override;
  bool reads_our_memory(Rank to) override { return peer(to).reads_our_memory(); }
  collectives::Learnt& learnt(Rank rank) override { return peer(rank).learnt; }
  std::optional<size_t> num_received(Rank from, transport::FrameKind kind,
                                     uint64_t number) const override {
    return peer(from).num_received(kind, number);
  }
  Buffer keep_incoming(Rank from) override { return peer(from).keep_incoming(); }
  void drop_incoming(Rank from, transport::FrameKind kind, uint64_t number) override {
    peer(from).drop_incoming(kind, number);
  }
  uint64_t called_by(Rank rank) const override { return parts_.peers->called_by(rank); }
  void fail_everywhere(Seq seq, const Status& why) override {
    parts_.group->fail_everywhere(seq, why);
  }
  void on_over(Seq seq) override { parts_.group->on_over(seq); }

  // ---- ViewHost
  straggler::GroupPolicy& policy(const straggler::PolicyOptions& options) override;
  const membership::View& view() const override { return parts_.view_change->view(); }
  bool is_promised() const override { return parts_.view_change->is_promised(); }
  bool has_gone(Rank rank) const override { return parts_.peers->has_gone(rank); }
  uint64_t acked_by(Rank rank) const override { return parts_.peers->acked_by(rank); }
  bool suspect(Rank rank) override { return parts_.owners->suspect(rank); }
  void restore_owners(Rank late) override { parts_.owners->restore_for(late); }
  size_t recall(Rank to, transport::MessageId id) override {
    return peer(to).cancel(id);
  }
  void note_share(Rank rank, size_t here, size_t total) override;
  void note_given(size_t bytes) override;
  void note_stand_in(const straggler::StandIn& stand_in) override;

 private:
  Peer& peer(Rank rank) const { return (*parts_.peers)[rank]; }

  const Parts parts_;
  BufferPool pool_;
  Recycler recycler_{64 << 10};  // bytes that may be idle
  uint32_t epoch_ = 1;
  GroupCounters counters_;
};

}  // namespace aikido::engine

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Allreduce that can end without a late member (our design; the idea of skipping is
// AIKIDO's). Bytes flow as in DirectReduction, but the owner of a shard closes it when
// its policy says so, folds the contributions that are whole, and sends result and mask
// to all members, the late ones included. So whoever exposes a result exposes the same
// one.
//
// The operation lives on every member from the first frame on, called or not: a member
// whose caller is late still owns its shard, and keeps the results for its caller. It
// lives on after its end until all members have the results, because a change of the
// view (membership/view_change.h) may make any holder the one to send them.
//
// Note [a full sum goes out as it is folded]
// With WaitAll(rebalance=True) a shard has one possible mask, all members, so a piece
// of its result goes out as soon as everybody's bytes for it are here, before the shard
// is closed: a receiver may take it whoever sends it. The last member's upload and the
// download of the result so take the time of one. While somebody owns nothing, and is
// so the last, the pieces are small: that of the last one is all that is added.
//
// Note [one mask for the bucket]
// With masks="bucket" an operation is one shard, and the owners of a cut take turns: it
// has the number that its owner has in the cut, so a view knows it like any other.
//
// Note [who owns nothing hesitates]
// A member that owns nothing was late again and again, and its results leave last. With
// operations back to back it so calls just when the others close without it, and what
// it has handed to a socket until it hears of that goes into the downlinks of those
// that send each other results. So it waits a moment before it contributes to a large
// operation, a small part of the time that these take, and sends in small frames.
//
// Where full sums are all there is, such a member is the last, and each owner has to
// send on what comes of it to all others. So its contributions go out evenly, to end
// together: over a socket that is left alone at the end more comes than its owner can
// send on.
//
// Note [closed is not had]
// A result is had once it is here whole; what is had is reported in a change of the
// view, and stays. What an owner has closed is had if every shard of the operation is
// full and its bytes have left for half of the others at least, and else when one other
// member has acknowledged it, or none needs it: where the call has failed on all
// others, nobody will. A slow owner can so give up a result that nobody else has got,
// and the others need no bytes from behind its link.
//
// Note [the input stays until the result is whole]
// The result of a shard is written beside the caller's memory and copied there when it
// is whole. Until then the input is there to be sent again, to another owner.

#include <memory>
#include <vector>

#include "collectives/even_feed.h"
#include "collectives/operation.h"
#include "collectives/owned_shard.h"
#include "collectives/shard_table.h"
#include "collectives/verdict.h"
#include "straggler/pace.h"

namespace aikido::collectives {

class PartialAllreduce final : public Operation {
 public:
  PartialAllreduce(OperationHost* host, Seq seq, Call call, Rank first_caller);

  Result<std::byte*> place(Rank from, const transport::FrameHeader& header,
                           std::span<const std::byte> rest) override;
  void arrived(Rank from, const transport::FrameHeader& header) override;
  bool is_committed() const override { return shards_left_ == 0 || is_passed_; }
  bool is_decided() const override;
  bool is_withheld() const override;
  int32_t most_contributions(const RankSet& members) const override {
    return straggler::most_contributions(call_.policy, members, said_);
  }
  bool is_closed() const override;
  bool was_skipped() const override;
  std::vector<Hole> holes() const override;
  void on_promise() override;
  void on_view() override;
  void on_called(Rank rank) override;
  void pass_over() override;
  void start_over() override;
  void on_settled(Rank rank) override;
  void on_notice(Rank from, const transport::FrameHeader& header) override;
  void report(std::vector<membership::HadShard>& had) const override;
  void report_closed(std::vector<membership::HadShard>& closed) const override;
  std::vector<int32_t> divided() const override;
  void on_time(TimePoint now) override;
  std::optional<TimePoint> next_look() const override;
  std::vector<Rank> missing() const override;
  std::vector<Rank> awaited() const override;

 private:
  // One shard, or part of one, as every member sees it.
  struct Shard {
    bool is_live = false;  // else it goes in parts, or is a part of what goes whole
    Rank owner;
    RankSet mask;  // known with the first byte of the result, or the close
    straggler::Reason reason = straggler::Reason::kComplete;
    Duration deadline{};
    size_t bytes = 0;  // of the result, here
    bool is_had = false;
    bool is_charged = false;                         // to those that have not called it
    std::vector<straggler::StandIn> stand_ins;       // known with the mask,
    std::vector<Rank> out;                           // and this too
    bool is_offered = false;                         // by us, a backup, in this view
    bool is_acknowledged = false;                    // by us
    std::vector<transport::MessageId> contribution;  // ours, on its way to its owner
    uint32_t contributed_in = 0;        // and the view it was last right in
    std::unique_ptr<OwnedShard> own;    // while it is ours to close
    std::optional<Verdict> given_up;    // with which we had closed it until a promise
    size_t results_in_flight = 0;       // to members that were in time
    std::vector<uint32_t> pieces_left;  // of them, by rank
    RankSet late;                       // who is still to get the result from us
    TimePoint late_due{};               // and when at the latest
    Verdict verdict() const { return {mask, reason, deadline, stand_ins, out}; }
    void take(Verdict verdict);
    void open_again() {
      mask = RankSet();
      stand_ins.clear();
      out.clear();
    }
  };
  // Of messages that somebody waits for; a result of shard s to rank r has the first
  // and s n + r, a piece of the contribution to it the first and s.
  static constexpr uint32_t kContributionToken = 1;
  static constexpr uint32_t kFirstResultToken = 2;
  static constexpr uint32_t kFirstPieceToken = 1u << 31;
  // Of a frame that is being received.
  static constexpr int32_t kNothing = -1;
  static constexpr int32_t code_of(transport::FrameKind kind, int32_t s) {
    return 2 * s + (kind == transport::FrameKind::kResult ? 1 : 0);
  }

  // A piece of a result on its way, of this view.
  struct Sending {
    int32_t shard;
    Rank to;
    transport::MessageId id;
  };

  Status on_start() override;
  void on_message_sent(uint32_t token) override;
  bool is_callers(transport::FrameKind kind) const override {
    return kind == transport::FrameKind::kContrib;
  }
  size_t chunk_of(transport::FrameKind kind) const override {
    return kind == transport::FrameKind::kContrib ? contribution_bytes() : 0;
  }
  size_t contribution_bytes() const;
  size_t piece_bytes() const;
  bool is_live(uint32_t s) const { return s < shards_.size() && shards_[s].is_live; }
  // Each member begins with another owner, so that no owner is everybody's first.
  int32_t in_turn(size_t i) const {
    return live_[(static_cast<size_t>(host_->self().value) + 1 + i) % live_.size()];
  }
  Shard& shard(int32_t s) { return shards_[static_cast<size_t>(s)]; }
  const Shard& shard(int32_t s) const { return shards_[static_cast<size_t>(s)]; }
  void cut();
  void on_removed();
  void take_back(int32_t s, Verdict verdict);
  ShardTable plan_in_view() const;
  void divide();
  void let_go_all();
  RankSet expected() const;
  RankSet late_elsewhere() const;
  bool is_needed() const;
  Rank owner_of(int32_t s) const;
  void renew(int32_t s);
  void note_progress();
  void drop(Rank from, transport::FrameKind kind, int32_t s);
  void take_over(int32_t s);
  void let_go(int32_t s);
  bool may_contribute() const;
  static constexpr size_t kLatePiece = 32 << 10;
  Duration hesitation_here() const;
  void contribute_all();
  void contribute(int32_t s);
  void post_contribution(int32_t s, size_t begin, size_t end, uint32_t token,
                         std::span<const std::byte> extra);
  void feed();
  void withdraw(int32_t s);
  bool is_stale(Rank from, const transport::FrameHeader& header) const;
  Result<std::byte*> place_contribution(Rank from, const transport::FrameHeader& header,
                                        int32_t s, std::span<const std::byte> rest);
  Result<std::byte*> place_result(Rank from, const transport::FrameHeader& header,
                                  int32_t s, std::span<const std::byte> rest);
  Status read_mask(Shard& shard, std::span<const std::byte> verdict) const;

  void fold_ahead(int32_t s);
  void send_ahead(int32_t s);
  std::optional<uint64_t> received_of(Rank from, int32_t s) const;
  void close_if_due(int32_t s);
  bool is_heard(int32_t s);
  void close(int32_t s, const straggler::Decision& decision);
  RankSet last_to_get(const RankSet& members, const Shard& shard) const;
  void send_result(int32_t s, size_t begin, size_t end, const RankSet& to,
                   bool is_late);
  void send_to_late(int32_t s);
  bool is_behind(Rank rank) const;
  bool must_be_in_soon(Rank rank) const;
  void pass_by_missing(const RankSet& mask);
  void send_to_caller(Rank rank);
  void cancel_results(int32_t s);
  void have_own();
  bool has_left(const Shard& shard) const;
  void on_piece_sent(int32_t s, Rank to);
  bool is_full(const Shard& shard) const {
    return shard.mask.covers(wanted()) && shard.stand_ins.empty();
  }

  void note_mask(int32_t s);
  void acknowledge(int32_t s);
  uint64_t charge(int32_t s);
  uint64_t fingerprint(int32_t s) const;
  void had(int32_t s);
  void copy_to_caller(int32_t s);
  void expose_if_done();
  Outcome make_outcome() const;
  std::byte* result();

  // With backups (partial_backup.cpp); without them nobody is one.
  bool is_backup(Rank rank) const { return rank.value >= num_data_shards_; }
  const RankSet& wanted() const {
    return call_.policy.has_stand_ins() ? wanted_ : participants_;
  }
  bool is_in_time(const Shard& shard, Rank rank) const;
  bool is_late(Rank rank) const;
  bool sends_unasked(int32_t s) const;
  void set_participants();
  void start_policy(int32_t s);
  void offer(int32_t s);
  void give(int32_t s);
  void contribute_as_backup(int32_t s);
  void have_own_input(int32_t s);
  Status read_offer(Rank from, std::span<const std::byte> rest);
  std::optional<int32_t>& said(Rank backup) {
    return said_[static_cast<size_t>(backup.value - num_data_shards_)];
  }
  void note_offer(Rank from, const transport::FrameHeader& header);
  void note_whole(int32_t s, Rank from);
  void ask_backups(int32_t s);
  void compare_copies(int32_t s);
  void commit(const Shard& shard, uint64_t charge);

  // Waiting for owners.
  void note_lag();
  void watch();
  std::optional<TimePoint> suspicion() const;
  std::optional<TimePoint> next_watch() const;
  bool are_most_here() const;
  bool has_one_owner() const;
  std::optional<int32_t> only_missing() const;
  std::optional<uint64_t> bytes_here(int32_t s) const;
  void look_at_result(TimePoint due);
  TimePoint due_by_pace(TimePoint due) const;
  bool has_late_caller(Rank owner) const;
  bool is_late_itself(Rank owner) const;
  Duration waited_in_vain() const;

  ShardTable plan_;
  std::vector<int32_t> live_;  // by index, ascending
  kernels::ReduceFn reduce_;
  straggler::GroupPolicy& group_policy_;
  const int32_t num_data_shards_;
  RankSet participants_;
  RankSet wanted_;                            // with backups: data shards
  std::vector<std::optional<int32_t>> said_;  // by backup: what it has computed
  RankSet computed_;                          // whose callers came late
  std::vector<Shard> shards_;                 // by index
  int32_t shards_left_ = 0;
  bool is_partial_ = false;     // some shard is not full
  bool is_charged_ = false;     // some shard of it
  RankSet moved_;               // owned a shard of it, and was too slow
  bool is_input_gone_ = false;  // a result that counts no more was written over it
  std::vector<Sending> sending_;
  // The whole bucket as committed. Results are read from here, not from the caller's
  // memory, which is the caller's again once the operation is over.
  Buffer result_;
  size_t contributions_in_flight_ = 0;
  std::optional<EvenFeed> feed_;  // of those, where they go out evenly
  uint64_t cancelled_bytes_ = 0;
  bool was_committed_ = false, is_passed_ = false, looks_again_ = false;
  // By rank: the frame that is being written to our memory, as code_of() it.
  std::vector<int32_t> receiving_;
  // Since when a missing owner can be measured, and what the pace says of its result.
  TimePoint ready_at_{};
  std::optional<straggler::Pace> pace_;
  straggler::Pace::Finding found_{};
  std::optional<TimePoint> fewest_at_;  // when enough for a result had called
  bool has_quorum_ = false;             // and for a quorum
  bool has_suspected_ = false, are_too_few_ = false;  // in this view
  int num_tries_ = 0;                                 // in it, to restore owners
  std::optional<TimePoint> contribute_at_;            // not before
  int num_views_ = 0;                                 // that it has gone through,
  bool was_anew_ = false;                             // but for one that cut it anew
};

}  // namespace aikido::collectives

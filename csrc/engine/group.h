// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// One process group as this member sees it: routes frames to operations, gives calls
// their numbers, keeps deadlines, and turns a lost member into failures that name it. A
// state machine on the progress thread: no threads, no sockets; links are handed to it.
// Life of an operation: born by the local call or another member's first frame; ends
// with its result, or an ABORT that is ours (told to all) or of others. One that has
// failed stays until the local caller knows.

#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/buffer_pool.h"
#include "collectives/point_to_point.h"
#include "engine/active_call.h"
#include "engine/group_counters.h"
#include "engine/group_trace.h"
#include "engine/heartbeats.h"
#include "engine/past_calls.h"
#include "engine/peer.h"
#include "engine/standing.h"
#include "membership/view_change.h"
#include "straggler/ownership.h"
#include "transport/event_loop.h"
#include "transport/link.h"

namespace aikido::engine {

struct GroupOptions {
  std::string name;  // for messages
  Rank self;
  int32_t size = 1;
  collectives::OperationSettings operation;
  HeartbeatOptions heartbeat;
  uint64_t log_bytes = 256 << 20;  // results kept for a late member, of all policies
  size_t pool_bytes = 256 << 20;
  bool keeps_order = false;  // of all links, see Uplink::keep_order()
  uint64_t largest_call_bytes = uint64_t{1} << 40;  // more in one call is nonsense
  trace::Recorder* recorder = nullptr;  // null: nothing is traced; must outlive it
};

class Group final : public transport::Timed,
                    private transport::LinkHandler,
                    private collectives::OperationHost,
                    private membership::ViewChangeHost {
 public:
  // `clock` must outlive the group and stand still during a turn.
  Group(const Clock* clock, GroupOptions options);
  ~Group() override;

  // For the link of `rank`: its handler, and the link itself once it is there.
  transport::LinkHandler* handler() { return this; }
  void attach(Rank rank, std::unique_ptr<transport::Link> link);
  // The number of the view, once all members know it; 1 before.
  void set_epoch(Epoch epoch) { epoch_ = static_cast<uint32_t>(epoch.value); }
  // Of each rank: before any call by two_level, here or elsewhere.
  void set_hosts(const std::vector<int32_t>& hosts);
  bool has_gone(Rank rank) const override;
  bool reads_our_memory(Rank to) override { return peer(to).reads_our_memory(); }
  // Why the group is of no use any more: it was aborted, or a member is lost.
  Status failure() const;
  Status silence() const;  // of the first member that is silent

  // The next collective of the local member. Completes or fails before `timeout` is
  // over. Requires: collectives::validate(call) is ok.
  void call(collectives::Call call, collectives::LocalCall local, Duration timeout);
  // The next collective as well, which the local member does not make: takes its
  // number. If `tells`, the others hear of it, and it fails with `why` for them too.
  void refuse(const Status& why, bool tells = true);
  void send(collectives::SendCall&& call);
  void receive(collectives::ReceiveCall&& call);

  // Fails everything, now and later, and tells the others.
  void abort(const Status& why);
  // This member has got what follows from all collectives up to `seq` by other means,
  // as by a copy of the state of another member: these count as called, and their
  // results are dropped. If it is out of the view, refused or not, it asks to come back
  // with nothing but that. Requires: the member that gave the state had all results up
  // to `seq`, and so had all other members of its view (is_settled() there): nobody
  // will decide them again. The shards that are owned here are still served.
  // Fails and changes nothing, as kInvalidArgument: a call up to `seq` is under way or
  // has been made beyond it, or one is strict; as kRetryLater: more results were had.
  Status pass_over(Seq seq);
  // This member is in the view, and all in it but `except` have all results up to `seq`
  // that it has. So a state behind them may be given to `except`.
  bool is_settled(Seq seq, Rank except) const;
  // Sends a Seal, as soon as that is so, or this member is out of the view.
  void seal(const Seal& seal);
  // The others have called what they will not end without this member.
  bool is_waited_for() const;
  bool is_cut_off() const;  // our last contributions came too late
  // What is said of `rank` from outside, until something else is: owners follow it.
  void advise(Rank rank, straggler::Advice advice);

  // Orderly end: says goodbye behind what is queued. Calls fail, now and later.
  void leave();
  bool is_drained() const;  // nothing is on its way out any more
  bool is_busy() const;     // calls are under way here, or others lack results of them
  void ask_settled();       // the others tell at once when they do not
  void close_links();       // the end of leave(): what is open gets its failure

  // Who takes part in calls that may skip.
  const membership::View& view() const override { return view_change_.view(); }

  void on_time(TimePoint now) override;  // does what is due
  [[nodiscard]] std::optional<TimePoint> next_look() const override;
  // Once after each batch of calls: tells the others of those that no frame has told.
  void end_turn();

  // Up to this every operation has been called here or is committed. Any thread.
  uint64_t known_up_to() const { return known_up_to_.load(); }
  // The highest number that another member has called. Any thread.
  uint64_t called_elsewhere() const { return called_elsewhere_.load(); }
  // Of this member, in the view of skippable operations. Any thread.
  Standing standing() const { return standing_here_.load(); }
  const GroupCounters& counters() const { return counters_; }
  const GroupTrace& trace() const { return trace_; }

 private:
  // For a member that does not call, stopped while the others go on.
  static constexpr uint64_t kMaxFailedAhead = 1 << 14;
  using Active = ActiveCall;

  // LinkHandler
  Result<std::byte*> on_frame_begin(Rank from, const transport::FrameHeader& header,
                                    std::span<const std::byte> extension) override;
  void on_frame(Rank from, const transport::FrameHeader& header) override;
  void on_link_lost(Rank from, const Status& why) override;
  uint64_t called() const override { return announced_; }
  int32_t settled() const override;
  transport::Need need(Rank from) const override;

  // OperationHost
  Rank self() const override { return options_.self; }
  int32_t size() const override { return options_.size; }
  uint32_t epoch() const override { return epoch_; }
  const Clock& clock() const override { return *clock_; }
  const collectives::OperationSettings& settings() const override {
    return options_.operation;
  }
  BufferPool& pool() override { return pool_; }
  const Recycler& recycler() const override { return recycler_; }
  straggler::GroupPolicy& policy(const straggler::PolicyOptions& options) override;
  transport::MessageId send(Rank to, transport::OutMessage&& message) override;
  bool send_at_once(Rank to, const transport::OutMessage& message) override;
  size_t cancel(Rank to, transport::MessageId id) override;
  size_t recall(Rank to, transport::MessageId id) override;
  collectives::Learnt& learnt(Rank r) override { return peer(r).learnt; }
  std::optional<size_t> num_received(Rank, transport::FrameKind,
                                     uint64_t) const override;
  Buffer keep_incoming(Rank from) override { return peer(from).keep_incoming(); }
  void drop_incoming(Rank from, transport::FrameKind kind, uint64_t number) override;
  bool is_promised() const override { return view_change_.is_promised(); }
  bool suspect(Rank rank) override;
  void restore_owners(Rank late) override;
  uint64_t called_by(Rank rank) const override;
  uint64_t settled_by(Rank rank) const override;
  void on_over(Seq seq) override;
  void note_share(Rank rank, size_t here, size_t total) override;
  void note_given(size_t bytes) override;
  void note_stand_in(const straggler::StandIn& stand_in) override;
  void fail_everywhere(Seq seq, const Status& why) override;

  // ViewChangeHost (group_views.cpp)
  void send_view(Rank to, const membership::ViewMessage& message) override;
  membership::Report report() const override;
  void note_calls(membership::Report& report) const override;
  std::vector<Seq> withheld() const override;
  bool can_do_without(Rank rank) const override;
  void on_promise() override;
  void on_install(const membership::View& view) override;
  std::optional<Status> compare(Rank, const membership::Report&) const override;
  void on_refused(const Status& why) override;

  Peer& peer(Rank rank) { return peers_[static_cast<size_t>(rank.value)]; }
  using Found = FoundCall;
  Result<Found> find(Rank from, const transport::FrameHeader& header,
                     std::span<const std::byte> extension);
  void note_called(Rank from, uint64_t called);
  void fail(collectives::Operation& operation, const Status& why, bool tell);
  std::shared_ptr<collectives::Operation> failed_operation(Seq seq, const Status& why);
  void drop_incoming(uint64_t seq);
  void note_dropped(uint64_t seq);
  void mismatch(collectives::Operation& operation, const collectives::Call& other,
                Rank caller);
  void check_past(Rank from, uint64_t seq, std::span<const std::byte> extension);
  void tell_abort(Seq seq, const Status& why, uint64_t spared = 0);
  void end_group(const Status& why, uint64_t spared);
  void end_as_heard();
  void on_abort(Rank from, uint64_t seq, const Status& why);
  void fail_operations(const Status& why);
  void check_lost(collectives::Operation& operation);
  void end_by_time(collectives::Operation& operation, TimePoint now);
  void end_by_loss(collectives::Operation& operation, const Status& why);
  void check_all_lost();
  void beat(TimePoint now);
  void send_clock(Rank to, std::optional<transport::OutMessage> word);
  std::vector<std::shared_ptr<collectives::Operation>> operations() const;
  // Views (group_views.cpp).
  void on_view_frame(Rank from, const transport::FrameHeader& header);
  void on_notice(Rank from, const transport::FrameHeader& header);
  void on_first_policy();
  Seq first_agreed() const;
  std::vector<membership::HadShard> had_from(uint64_t seq) const;
  void note_settled(Rank from, uint64_t settled);
  // Out and back (group_returns.cpp).
  Status check_passable(uint64_t seq) const;
  void drop_passed(uint64_t seq, bool is_out);
  void pass_unheard(const std::shared_ptr<collectives::Operation>& operation);
  bool may_leave() const;
  bool can_spare(Rank rank) const;
  void note_full(uint64_t bytes);
  void leave_out_full();
  void stay_out_if_full();
  bool is_too_much(const membership::Report& report) const;
  void update_standing();
  std::string way_back(bool is_cut) const;
  void send_seals();
  // Members that are out and expected back (group_absent.cpp).
  RankSet expected_back() const;
  Rank held_back_for(const collectives::Operation& operation) const;
  void release_held_back();
  // Results for others (group_views.cpp).
  void keep(uint64_t seq, const std::shared_ptr<collectives::Operation>& operation);
  uint64_t charge_of(const collectives::Operation& operation) const;
  void trim_kept();
  void note_failed(uint64_t seq, const Status& why);
  void tell_failed();
  void update_settled();
  void note_owners(const membership::View& view);
  uint64_t had_by_all() const;
  std::vector<straggler::Ownership::Change> owner_changes() const;
  void change_owners();
  Status hopeless(const collectives::Operation& operation) const;
  void start_held(Active& active);
  void start_barriers();
  void settle(uint64_t seq);
  void update_known();
  bool is_reachable(Rank rank) const;
  Status unreachable(Rank rank) const;
  Status death() const;
  Status loss(Rank rank) const;
  Status time_out(const collectives::Operation& operation, Duration after) const;

  const Clock* clock_;
  GroupOptions options_;
  BufferPool pool_;
  Recycler recycler_{64 << 10};  // bytes that may lie idle
  uint32_t epoch_ = 1;
  std::deque<Peer> peers_;  // by rank; they stay where they are
  Heartbeats heartbeats_;
  GroupTrace trace_;
  uint64_t called_ = 0, last_partial_ = 0;  // the last of those that may skip
  uint64_t announced_ = 0;                  // the last that the others hear of
  uint64_t num_failed_ahead_ = 0;  // operations that failed before their call here
  RecycledMap<uint64_t, Active> active_{recycler_};  // by seq
  PastCalls past_calls_;
  collectives::Mailbox mailbox_;
  std::shared_ptr<straggler::ResultLog> log_;  // of all policies
  std::vector<std::unique_ptr<straggler::GroupPolicy>> policies_;
  membership::ViewChange view_change_;
  Status refused_;  // not ok: this member is out of the view, and not taken back
  std::vector<Past> past_;  // by rank
  straggler::Ownership ownership_;
  // Skippable operations that are over here, whose results others may need.
  std::map<uint64_t, std::shared_ptr<collectives::Operation>> kept_;
  uint64_t kept_bytes_ = 0;
  // Those that are over here while others are still to get something of them.
  std::map<uint64_t, std::shared_ptr<collectives::Operation>> sending_;
  std::map<Seq, Status> failed_;  // that others may still need, and why
  uint64_t forgotten_ = 0;        // results up to this one are not kept for a return
  uint64_t settled_ = 0;          // no result up to this one is needed here
  uint64_t passed_from_ = 0, passed_ = 0;  // were passed over, the last time
  uint64_t dropped_from_ = 0;   // to passed_: who had what is not known; 0: nothing
  std::set<uint64_t> unheard_;  // passed over, and nothing of them has come yet
  std::vector<Seal> seals_;
  Status closed_;                                      // not ok: aborted or left
  std::vector<std::pair<Status, uint64_t>> given_up_;  // as heard, with what is spared
  Status loss_;            // why a call could not end, or who died
  Rank missed_ = kNoRank;  // lost or silent when a message of ours ended for it
  bool is_leaving_ = false, is_starting_barriers_ = false, is_anybody_lost_ = false;
  Rank full_ = kNoRank;                    // to be left out: its log is full
  bool is_owner_due_ = false;              // owner_changes() has some
  bool is_full_sum_over_ = false;          // which shows who is late for them
  TimePoint loss_due_ = TimePoint::min();  // no call ends by a loss before
  std::atomic<uint64_t> known_up_to_{0}, called_elsewhere_{0};
  std::atomic<Standing> standing_here_{Standing::kMember};
  GroupCounters counters_;
};

}  // namespace aikido::engine

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// One process group as this member sees it: routes frames to operations, numbers calls,
// keeps deadlines, and turns a lost member into failures that name it. State machine on
// the progress thread, without threads or sockets; its owner hands links to it. An
// operation begins with the local call or the first frame of another member. It ends
// with its result, or with an ABORT of this member (sent to all) or of another. A
// failed operation stays until the local caller knows.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "collectives/strict/point_to_point.h"
#include "engine/absent_members.h"
#include "engine/active_call.h"
#include "engine/call_outlook.h"
#include "engine/call_table.h"
#include "engine/group_options.h"
#include "engine/group_reports.h"
#include "engine/group_trace.h"
#include "engine/lifecycle.h"
#include "engine/operation_services.h"
#include "engine/own_state.h"
#include "engine/peers.h"
#include "engine/policy_table.h"
#include "engine/results_for_others.h"
#include "engine/shard_owners.h"
#include "engine/skipped_calls.h"
#include "engine/votes.h"
#include "engine/watermarks.h"
#include "membership/view_change.h"
#include "transport/link.h"
#include "transport/loop/event_loop.h"

namespace aikido::engine {

class Group final : public transport::Timed,
                    private transport::LinkHandler,
                    private OperationEvents,
                    private membership::ViewChangeHost {
 public:
  // `clock` must outlive the group, and must not advance during a turn.
  Group(const Clock* clock, GroupOptions options);
  ~Group() override;

  // For the link of `rank`: its handler, and attach() once the link exists.
  transport::LinkHandler* handler() { return this; }
  void attach(Rank rank, std::unique_ptr<transport::Link> link);
  // Number of the view, set once all members know it. It is 1 before.
  void set_epoch(Epoch epoch) { services_.set_epoch(epoch); }
  // Host of each rank. It must be set before any member calls with two_level.
  void set_hosts(const std::vector<int32_t>& hosts);
  // Reason why the group cannot be used any more: it was aborted, or a member is lost.
  Status failure() const;
  const Peers& peers() const { return peers_; }
  const CallOutlook& outlook() const { return outlook_; }

  // Next collective of the local member. It completes or fails within `timeout`.
  // Requires: collectives::validate(call) is ok.
  void call(collectives::Call call, collectives::LocalCall local, Duration timeout);
  // Also the next collective, but the local member does not make it. It takes a number.
  // If `tells`, it also fails with `why` on the other members.
  void refuse(const Status& why, bool tells = true);
  void send(collectives::SendCall&& call);
  void receive(collectives::ReceiveCall&& call);

  // Fails all calls in progress and all later calls, on all members.
  void abort(const Status& why);
  // This member has obtained all effects of the collectives up to `seq` in another way,
  // for example by a copied state. They count as called, and their results are dropped.
  // If this member is excluded, refused or not, it asks to rejoin with that state only.
  // It still serves its own shards. Requires: the giver of the state and all other
  // members of its view had all results up to `seq` (CallOutlook::is_acked()). Then no
  // member decides their results again. Fails without a change: kInvalidArgument if a
  // call up to `seq` is in progress, a later one was made, or one is strict;
  // kRetryLater if more results were received.
  Status skip_through(Seq seq);
  // Sends a Seal as soon as CallOutlook::is_acked() is true for it, or this member is
  // excluded.
  void seal(const Seal& seal);
  // Advice about `rank` from outside. Owners follow it until the next advice.
  void advise(Rank rank, straggler::Advice advice) { owners_.advise(rank, advice); }

  // Orderly end: says goodbye behind the queued messages. Calls fail, now and later.
  void leave();
  bool is_drained() const;  // no message is queued or being sent any more
  bool is_busy() const;     // calls are in progress, or others lack results of them
  void ask_acked();         // members answer as soon as they need no more results
  void close_links();       // end of leave(): fails everything that is still open

  // Roles of the ranks, and agreements on the members.
  Votes votes() {
    return Votes({clock_, options_.self, &peers_, &own_state_, &life_, &view_change_});
  }

  // View with the members that take part in skippable calls.
  const membership::View& view() const { return view_change_.view(); }

  void on_time(TimePoint now) override;  // does all work that is due
  [[nodiscard]] std::optional<TimePoint> next_look() const override;
  // After each batch of calls: announces the calls that no frame has announced.
  void end_turn();

  const OwnState& own_state() const { return own_state_; }
  const GroupCounters& counters() const { return services_.counters(); }
  const GroupTrace& trace() const { return trace_; }

 private:
  // LinkHandler
  Result<std::byte*> on_frame_begin(Rank from, const transport::FrameHeader& header,
                                    std::span<const std::byte> extension) override;
  void on_frame(Rank from, const transport::FrameHeader& header) override;
  void on_link_lost(Rank from, const Status& why) override;
  uint64_t called() const override { return marks_.announced; }
  int32_t acked() const override;
  transport::WakePolicy wake_policy(Rank from) const override;

  // OperationEvents
  void on_over(Seq seq) override;
  void fail_everywhere(Seq seq, const Status& why) override;
  void on_first_policy() override;

  // ViewChangeHost (group_views.cpp)
  void send_view(Rank to, const membership::ViewMessage& message) override;
  const membership::MemberReports& reports() const override { return reports_; }
  void on_promise() override;
  void on_install(const membership::View& view) override;
  void on_refused(const Status& why) override;

  Result<FoundCall> find(Rank from, const transport::FrameHeader& header,
                         std::span<const std::byte> extension);
  void note_called(Rank from, const transport::FrameHeader& header);
  void tell_called();
  bool may_report_late(Rank to) const;
  void fail(collectives::Operation& operation, const Status& why, bool tell);
  void mismatch(collectives::Operation& operation, const collectives::Call& other,
                Rank caller);
  void check_past(Rank from, uint64_t seq, std::span<const std::byte> extension);
  void end_group(const Status& why, uint64_t spared);
  void end_as_heard();
  void on_abort(Rank from, uint64_t seq, const Status& why);
  void fail_operations(const Status& why);
  void check_lost(collectives::Operation& operation);
  void end_by_time(collectives::Operation& operation, TimePoint now);
  void end_by_loss(collectives::Operation& operation, const Status& loss);
  void check_all_lost();
  GroupFacts facts() const {
    return {*clock_, options_,          marks_,       peers_,
            calls_,  policies_,         view_change_, own_state_,
            absent_, results_.keeper(), skipped_,     life_};
  }
  void beat(TimePoint now);
  void send_clock(Rank to, std::optional<transport::OutMessage> word);
  // View changes (group_views.cpp).
  void on_view_frame(Rank from, const transport::FrameHeader& header);
  void on_notice(Rank from, const transport::FrameHeader& header);
  void note_acked(Rank from, const transport::FrameHeader& header);
  // Exclusion and return (group_returns.cpp).
  Status check_passable(uint64_t seq) const;
  void drop_skipped(uint64_t seq, bool is_out);
  void skip_unheard(const std::shared_ptr<collectives::Operation>& operation);
  void note_full(uint64_t bytes);
  void exclude_full();
  void stay_excluded_if_full();
  void send_seals();
  void release_held_back();
  void update_acked();
  void start_held(ActiveCall& active);
  void start_barriers();
  void retire(uint64_t seq);
  void update_known();
  Status unreachable(Rank rank) const;

  const Clock* clock_;
  GroupOptions options_;
  OperationServices services_;
  Watermarks marks_;
  Peers peers_;
  GroupTrace trace_;
  CallTable calls_;
  collectives::Mailbox mailbox_;
  PolicyTable policies_;
  membership::ViewChange view_change_;
  OwnState own_state_;
  AbsentMembers absent_;
  ShardOwners owners_;
  ResultsForOthers results_;
  SkippedCalls skipped_;
  std::vector<Seal> seals_;
  Lifecycle life_;
  GroupReports reports_;
  CallOutlook outlook_;
  Rank full_ = kNoRank;  // member to exclude because its log is full
};

}  // namespace aikido::engine

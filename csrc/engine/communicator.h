// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Process group as user threads see it: connects the members, numbers the calls in
// their order, and hands them to the progress thread. Unless a comment says otherwise,
// all methods may run on any thread except the progress thread.

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "engine/engine.h"
#include "engine/group.h"
#include "engine/handoff_queue.h"
#include "engine/held_calls.h"
#include "engine/link_board.h"
#include "membership/roster.h"
#include "membership/store.h"

namespace aikido::engine {

class Communicator final : private transport::Doorkeeper {
 public:
  // Rendezvous through `store`: finds the other members and connects to all of them.
  // Blocks for at most `timeout`. The settings in `agreed` ("name=value;...") must be
  // equal on all members. kTimedOut names the missing members. kInvalidArgument names
  // both values of a setting that differs.
  static Result<std::shared_ptr<Communicator>> connect(std::shared_ptr<Engine> engine,
                                                       membership::Store& store,
                                                       GroupOptions options,
                                                       const std::string& agreed,
                                                       Duration timeout);
  // Rendezvous by roster, without a store: the members of `roster`, which sets the rank
  // and the size in `options`. The result is not connected yet.
  static std::shared_ptr<Communicator> make(std::shared_ptr<Engine> engine,
                                            const membership::Roster& roster,
                                            GroupOptions options,
                                            const std::string& agreed);
  ~Communicator() override;

  // Connects to all members. Call it once, after make(). Each other member calls it
  // too, sooner or later. Returns when every member has connected to all others. `last`
  // is the number of the last view of this member, 0 for none. The new view gets the
  // number after the highest `last` of all members. Blocks for at most `timeout`, or
  // until abort(). kTimedOut names the missing members.
  Status join(const membership::Roster& roster, Epoch last, Duration timeout);

  // As Group::skip_through() and CallOutlook::is_acked(). Both block for one turn of
  // the progress thread. No call may be made at the same time.
  Status skip_through(Seq seq);
  bool is_acked(Seq seq, Rank except);
  // As Group::seal(), behind the sends that were made before. Never blocks.
  void seal(const Seal& seal);
  // is_waited_for() is as CallOutlook::is_waited_for(). gone() returns the members from
  // which nothing more comes. Both block for one turn of the progress thread.
  bool is_waited_for();
  std::vector<Rank> gone();
  // Members that take part in skippable calls. Blocks for one turn.
  RankSet members();
  // As Group::set_hosts(). Blocks for one turn. Requires: one host for each rank.
  void set_hosts(const std::vector<int32_t>& hosts);

  // Returns the number of the collective, counted from 1. Never blocks. A call with a
  // hold waits for release(). The calls after it, sends included, wait as well, because
  // all members start calls in the order of their numbers.
  uint64_t call(collectives::Call call, collectives::LocalCall local, Duration timeout);
  // Stands for a collective that the caller does not make: takes a number, returns it,
  // and fails the collective on this member. If `tells`, it fails on all members.
  uint64_t refuse(const Status& why, bool tells = true);
  void send(collectives::SendCall&& call);
  // As send(), but without a hold, and ahead of calls that wait for their data.
  void send_ahead(collectives::SendCall&& call);
  void receive(collectives::ReceiveCall&& call);
  // The data of a held call is ready, or will not come. In the second case the call
  // fails with `failure`, and a collective fails on all members. Only the first call
  // has an effect.
  void release(collectives::Hold& hold, const Status& failure);
  // Runs `work` on the progress thread, for example to continue a call in progress.
  void post(std::function<void(Group&)> work) {
    engine_->post([this, work = std::move(work)] { work(*group_); });
  }

  // As Group::advise().
  void advise(Rank rank, straggler::Advice advice);

  // Fails everything in progress, on this member and on the others. Never blocks.
  void abort(const Status& why);
  // Orderly end. Waits for at most `linger` until the local calls have ended, all
  // queued messages have left, and all members have the results of the skippable calls.
  // Calls that have not ended by then fail. Idempotent.
  // Does nothing in a forked child, because the group belongs to the parent process.
  void shutdown(Duration linger);
  // From now on shutdown() also waits, within its limit, until `rank` has left. This
  // member needs no data from `rank`, but waits until `rank` decides to continue or to
  // leave. kNoRank: shutdown() does not wait.
  void leave_after(Rank rank) { leaves_after_ = rank; }

  const GroupOptions& options() const { return options_; }
  uint64_t num_calls() const;
  // Number of this view. It is 1 after a rendezvous through a store.
  Epoch epoch() const;
  // Reason why the group cannot be used any more. Blocks for one turn of the progress
  // thread.
  Status failure();
  // Number of results of committed operations that this member has not called yet,
  // counted without a gap from the next call. Earlier calls of this thread do not
  // count, even if the progress thread does not know of them yet.
  uint64_t committed_ahead() const;
  // Number of operations that another member has called and this member has not. These
  // operations may be uncommitted.
  uint64_t called_ahead() const;
  MemberState member_state() const { return group_->own_state().member_state(); }
  const GroupCounters& counters() const { return group_->counters(); }
  // Reason why a member on this host that this member dialled does not share memory
  // with it, although it should. Empty: no such failure is known.
  std::string sharing_failure() const;
  // True if all members share memory with rank 0 and are more than the processors of
  // its host. Rank 0 determines this at the rendezvous, so the value is equal on all
  // members. False after join().
  bool is_crowded() const { return is_crowded_; }
  // Clock of rank 0, relative to the clock of this machine. Empty: not known yet.
  // Blocks for one turn of the progress thread.
  std::optional<trace::ClockLine> clock_of_rank_0();
  Engine& engine() { return *engine_; }

 private:
  Communicator(std::shared_ptr<Engine> engine, GroupOptions options,
               std::string agreed);

  Status rendezvous(membership::Store& store, TimePoint deadline);
  Status introduce(membership::Store& store, const transport::Token& token);
  Status follow_token(membership::Store& store, TimePoint deadline);
  Status dial_lower_rank(Rank rank, membership::Store& store, TimePoint deadline);
  Status dial_published(Rank rank, membership::Store& store, TimePoint deadline);
  Status dial_member(Rank rank, const transport::Address& address,
                     const transport::Token& token, TimePoint deadline);
  Status wait_for_links(TimePoint deadline);
  Status learn_place(membership::Store& store, TimePoint deadline);
  Result<std::string> read_from(Rank rank, const std::string& key,
                                membership::Store& store, TimePoint deadline);
  Status find_members(const membership::Roster& roster, TimePoint deadline);
  Status agree_on_epoch(Epoch last, TimePoint deadline);
  void attach(Rank rank, transport::Connections connections);
  void wait_until(const std::function<bool()>& is_so, TimePoint deadline);
  struct Called {
    collectives::Call call;
    collectives::LocalCall local;
    Duration timeout;
    uint64_t number;
  };
  void take_up(Called called);
  void take_up(collectives::SendCall&& call);
  void give_up_held(const Status& why);

  // Doorkeeper, on the progress thread.
  bool knows(const transport::Hello& hello) const override;
  size_t num_expected() const override;
  void on_turned_away(const std::string& why) override;
  void on_no_room(const std::string& why) override;
  std::string refusal(const transport::Hello& hello) override;
  void on_connected(Rank rank, transport::Connections connections) override;

  std::shared_ptr<Engine> engine_;
  GroupOptions options_;
  std::string agreed_;
  transport::Token token_{};
  SystemClock clock_;
  std::unique_ptr<Group> group_;
  bool is_crowded_ = false;  // not written after connect()
  RankSet reliable_;         // that dialled this member; progress thread
  // Calls that are handed to the progress thread.
  HandoffQueue<Called> calls_;
  HandoffQueue<collectives::SendCall> sends_;
  HandoffQueue<collectives::ReceiveCall> receives_;

  LinkBoard links_;
  mutable std::mutex mutex_;
  // Guarded by mutex_.
  uint64_t num_calls_ = 0;
  HeldCalls held_;  // its size is read without the lock
  Epoch epoch_{1};
  bool is_shut_down_ = false;
  std::atomic<Rank> leaves_after_ = kNoRank;
};

}  // namespace aikido::engine

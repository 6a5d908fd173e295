// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// A process group as user threads see it: connects the members, gives calls their
// numbers in the order of the calls, and hands them to the progress thread. All methods
// from any thread but the progress thread, unless said otherwise.

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
#include "engine/tray.h"
#include "membership/roster.h"
#include "membership/store.h"

namespace aikido::engine {

class Communicator final : private transport::Doorkeeper {
 public:
  // Meets the other members through `store` and connects to all of them. Blocks until
  // `timeout` at most. Settings in `agreed` ("name=value;...") must be equal on all
  // members. kTimedOut names who is missing; kInvalidArgument has both values of a
  // setting that differs.
  static Result<std::shared_ptr<Communicator>> connect(std::shared_ptr<Engine> engine,
                                                       membership::Store& store,
                                                       GroupOptions options,
                                                       const std::string& agreed,
                                                       Duration timeout);
  // The other way, without a store: the members of `roster`, which become what
  // `options` says of rank and size. Connected to nobody yet.
  static std::shared_ptr<Communicator> make(std::shared_ptr<Engine> engine,
                                            const membership::Roster& roster,
                                            GroupOptions options,
                                            const std::string& agreed);
  ~Communicator() override;

  // Once, after make(): connects to all members, each of whom calls it as well, sooner
  // or later. Returns when all have connected to all. `last` is the view that this
  // member was in before, 0 for none; the new one gets the number after the highest of
  // all. Blocks until `timeout` at most, or abort(). kTimedOut names who has not come.
  Status join(const membership::Roster& roster, Epoch last, Duration timeout);

  // Group::pass_over() and is_settled(). They block for a turn of the progress thread;
  // no call may be made at the same time.
  Status pass_over(Seq seq);
  bool is_settled(Seq seq, Rank except);
  // Group::seal(); behind the sends made here before. Never blocks.
  void seal(const Seal& seal);
  // Group::is_waited_for(), and those of whom nothing comes any more. They block as
  // well.
  bool is_waited_for();
  std::vector<Rank> gone();
  // Who takes part in calls that may skip. Blocks as well.
  RankSet members();
  // Group::set_hosts(). Blocks as well. Requires: as many as ranks.
  void set_hosts(const std::vector<int32_t>& hosts);

  // Returns the number of the collective, counted from 1. Never blocks. One with a hold
  // waits for release(), and so do the calls after it, sends as well: all members take
  // calls up in the order of their numbers.
  uint64_t call(collectives::Call call, collectives::LocalCall local, Duration timeout);
  // A collective that its caller does not make: takes a number, which is returned, and
  // fails here; if `tells`, at all members.
  uint64_t refuse(const Status& why, bool tells = true);
  void send(collectives::SendCall&& call);
  // The same without a hold, and past the calls that wait for their data.
  void send_ahead(collectives::SendCall&& call);
  void receive(collectives::ReceiveCall&& call);
  // The data of a held call is there, or will not come: then the call fails with
  // `failure`, a collective on all members. After the first time nothing.
  void release(collectives::Hold& hold, const Status& failure);
  // `work` on the progress thread: what goes on with a call that is under way.
  void post(std::function<void()> work) { engine_->post(std::move(work)); }

  // Group::advise().
  void advise(Rank rank, straggler::Advice advice);

  // Fails everything that is under way, here and at the others. Never blocks.
  void abort(const Status& why);
  // Orderly end: waits until the calls made here are over, what is queued has left, and
  // all members have the results of those that may skip, `linger` at most. What is not
  // over by then fails. Idempotent.
  // Nothing in a forked child: the group is its parent's.
  void shutdown(Duration linger);
  // From now on shutdown() also waits until `rank` has left, within its limit: this
  // rank needs nothing of it, but what it does next. kNoRank: nobody.
  void leave_after(Rank rank) { leaves_after_ = rank; }

  const GroupOptions& options() const { return options_; }
  uint64_t num_calls() const;
  // The number of this view: 1 for members that met through a store.
  Epoch epoch() const;
  // Why the group is of no use any more. Blocks for a turn of the progress thread.
  Status failure();
  // Results of operations that are committed but not yet called here, counted without a
  // gap from the next call: what was called before on this thread does not count, even
  // if the progress thread has not heard of it.
  uint64_t committed_ahead() const;
  // Operations that another member has called and this one has not yet; none of those
  // has to be committed.
  uint64_t called_ahead() const;
  Standing standing() const { return group_->standing(); }
  const GroupCounters& counters() const { return group_->counters(); }
  // Why memory is not shared with a member of this host that was dialled here, although
  // it should be; empty: nothing is known to be wrong.
  std::string sharing_failure() const;
  // All members share memory with rank 0, and are more than its host has processors, as
  // it was when they met: the same for all. False behind join().
  bool is_crowded() const { return is_crowded_; }
  // How the clock of rank 0 goes beside that of this machine; empty: not known yet.
  // Blocks for a turn of the progress thread.
  std::optional<trace::ClockLine> clock_of_rank_0();
  Engine& engine() { return *engine_; }

 private:
  Communicator(std::shared_ptr<Engine> engine, GroupOptions options,
               std::string agreed);

  Status meet(membership::Store& store, TimePoint deadline);
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
  void enter(const std::shared_ptr<collectives::Hold>& hold,
             std::function<void()> work);
  void enter_released();
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
  // On their way to the group.
  Tray<Called> calls_;
  Tray<collectives::SendCall> sends_;
  Tray<collectives::ReceiveCall> receives_;

  mutable std::mutex mutex_;
  std::condition_variable links_changed_;
  // Guarded by mutex_.
  std::vector<bool> is_linked_;
  Status refused_;               // a member was turned away, or has no room here
  std::string sharing_failure_;  // guarded by mutex_
  std::string turned_away_;      // why somebody else was
  uint64_t num_calls_ = 0;
  // Calls in the order of their numbers, from the first that waits for its data.
  struct Held {
    std::shared_ptr<collectives::Hold> hold;  // null: only for those before it
    std::function<void()> enter;
  };
  std::deque<Held> held_;
  std::atomic<size_t> num_held_ = 0;  // those; read without the lock
  Epoch epoch_{1};
  bool is_shut_down_ = false;
  std::atomic<Rank> leaves_after_ = kNoRank;
};

}  // namespace aikido::engine

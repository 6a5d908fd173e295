// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// How a view follows from the one before: everything unusual (a late owner, a dead
// member, a broken connection, shards that move away from a slow link, a return) is
// this one procedure. Our design, in the manner of Paxos with the members of the old
// view as acceptors.
//
// Note [why a view change keeps results the same]
// Nobody takes part in a new view before it has said what it has accepted in the old
// one and promised to accept nothing more there; the old owner is asked like everyone
// else, and who does not answer is not in the new view. So what an owner alone has
// exposed is reported by itself, or held by a member that is out and must compare
// before it returns. A view needs more than half of the one before, is installed after
// more than half have accepted it, and an accepted one that shows up in an answer is
// taken over unchanged: of two attempts at most one gets through.
//
// Note [who cannot have exposed anything]
// A suspect whose uplink is what is slow answers late, and everybody would wait. Who
// does not answer is out and comes back, which costs the others an exchange; but what
// it has exposed and nobody else has would keep it out for good. So it is waited for as
// long as that can be. It cannot while the coordinator holds a shard of each operation
// back, or has closed it without somebody: then the suspect has its own shard only when
// another one has acknowledged it, who says so. Nor is it left out so soon where it
// alone keeps what somebody waits for. One that is missing while shards come back to
// another member may be the reason for that, and has the same time.
//
// Note [one that answers is spared]
// What a slow link brings too late for a heartbeat it brings in the end: such a member
// answers, stays, and is silent again. Each change of the view costs that link more,
// and what was under way is sent again, so nothing else might ever get through. Whoever
// has answered although it was silent is spared for a while, twice as long each time.
//
// Note [what nobody can compare]
// A member may have had alone what failed on all others. It must not come back with
// that: another one that is out may have had another result of it. One on which it
// failed cannot say so, since others in the view may have had it, and it never can
// later. Nor can one that has passed it over. So who asks hears that from each of them,
// goes on to the next at once, and is refused when all have said it. What failed
// meanwhile on itself too it has not had: then it asks all of them anew.
//
// A deterministic object fed with messages and `now`. Progress thread.

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "membership/view_message.h"

namespace aikido::membership {

class ViewChangeHost {
 public:
  virtual ~ViewChangeHost() = default;
  // A kView goes ahead of everything that is sent to `to` from here on.
  virtual void send_view(Rank to, const ViewMessage& message) = 0;
  // What this member has accepted. Not asked between on_promise() and on_install().
  virtual Report report() const = 0;
  // What has been called since that was asked: `known`, `open` and `needed` grow. May
  // be asked at any time.
  virtual void note_calls(Report&) const {}
  // Operations that an owner of a shard of theirs cannot have whole unless another
  // member has that shard as well: one that is owned here is open, or some shard is
  // closed without somebody. Ascending; asked with report().
  virtual std::vector<Seq> withheld() const { return {}; }
  // No call ends with an error, and none waits, because `rank` is out for a moment.
  virtual bool can_do_without(Rank) const { return false; }
  // From here on no result is accepted, and what was closed and is not had is given up.
  virtual void on_promise() = 0;
  virtual void on_install(const View& view) = 0;
  // May a member with this report come back? Compares what both have. Empty: that
  // cannot be said yet. An error without a sentence: nor ever, by this member. Note
  // [what nobody can compare]
  virtual std::optional<Status> compare(Rank rank, const Report& report) const = 0;
  // This member cannot come back by itself: its data differ, or too much is missing.
  virtual void on_refused(const Status& why) = 0;
};

class ViewChange {
 public:
  // `host` must outlive it.
  ViewChange(Rank self, int32_t size, ViewChangeHost* host);

  // How long those that do not answer are waited for at least where a call could not
  // end without them; never less than 5 s. Before the first change.
  void set_patience(Duration scarce) { scarce_ = std::max(scarce_, scarce); }

  const View& view() const { return view_; }
  bool is_promised() const { return promised_.has_value(); }
  bool is_removed() const { return !view_.has(self_); }
  // More than half of the view can be reached: it may be followed by another one.
  bool has_majority() const;

  // `rank` holds up the others: its shards are to be owned by somebody else. It stays
  // a member if it answers.
  void suspect(Rank rank, TimePoint now);
  // It is, or it is silent, and there is no view yet in which it owns nothing.
  bool is_suspected(Rank rank) const { return moved_.contains(rank); }
  // Nothing has come from `rank` for long: it is out unless it answers. Note [one that
  // answers is spared]
  void on_silent(Rank rank, TimePoint now);
  // `rank` is to be out of the next view, although it would answer: it is neither asked
  // nor waited for, unless the others that are heard of are no majority, or what one of
  // them waits for could not end without it. Forgotten when the view changes; one at a
  // time.
  void leave_out(Rank rank, TimePoint now);
  // `rank` may own shards again.
  void restore(Rank rank, TimePoint now);
  // Its connection is gone: it cannot answer, now or later.
  void on_lost(Rank rank, TimePoint now);

  // This member is out, and stays out until rejoin(): asks nobody to take it in.
  void stay_out();
  // It may ask again although it was refused: what it reports is another state.
  void rejoin(TimePoint now);

  // kProtocol when it is none that a member could send.
  Status on_message(Rank from, const ViewMessage& message, TimePoint now);
  void on_time(TimePoint now);
  // Empty: nothing is under way.
  [[nodiscard]] std::optional<TimePoint> next_look() const { return look_; }

 private:
  struct Answer {
    Report report;
    std::optional<AcceptedView> accepted;
  };
  // Who has answered although it was silent.
  struct Spared {
    int times = 0;  // in a row
    TimePoint until{};
  };
  // This member as coordinator.
  struct Attempt {
    Ballot ballot;
    std::map<Rank, Answer> answers;
    std::optional<View> proposed;
    bool is_followed = false;  // somebody would wait in vain in it
    RankSet accepted;
    TimePoint started{};
    TimePoint majority_at{};    // when more than half had answered
    Rank asked_last = kNoRank;  // who was to be left out, and is needed
    TimePoint asked_at{};       // when it was asked
  };

  bool owns(Rank rank) const;
  bool has_others(Rank rank) const;
  bool is_asked(Rank rank) const;
  int32_t num_live(Rank but) const;
  bool can_change() const { return !is_removed() && has_majority(); }
  bool is_needed() const;
  void consider();
  Duration turn_of(Rank rank) const;
  void start();
  void propose_if_due();
  std::map<Rank, Report> reports() const;
  bool is_missed_out() const;
  bool can_spare(Rank rank) const;
  Duration patience() const;
  bool is_majority(int32_t count) const;
  Status check_reach(Rank from, const Report& theirs, const Report& ours) const;
  void handle(Rank from, const ViewMessage& message);
  void answer_prepare(Rank from, const ViewMessage& message);
  void answer(Rank coordinator);
  void on_state(Rank from, const ViewMessage& message);
  void on_propose(Rank from, const ViewMessage& message);
  void on_accepted(Rank from, const ViewMessage& message);
  void on_join(Rank from, const ViewMessage& message);
  void on_refuse(Rank from, const ViewMessage& message);
  void promise(const Ballot& ballot);
  void install(const View& view);
  void spare(Rank rank);
  void join();
  void send(Rank to, ViewStep step, const Ballot& ballot);
  void send_newest(Rank to);

  const Rank self_;
  ViewChangeHost* const host_;
  View view_;
  Report own_report_;  // while promised
  std::vector<Seq> withheld_;
  std::optional<Ballot> promised_;
  std::optional<AcceptedView> accepted_;
  std::optional<Attempt> attempt_;
  uint32_t highest_counter_ = 0;
  RankSet lost_, silent_, moved_, restored_;
  RankSet unsure_;  // while it is out: who can never say whether it may come back
  std::vector<HadShard> asked_had_;  // with what it asked them
  std::vector<Spared> spared_;       // by rank
  Duration scarce_ = std::chrono::seconds(5);
  Rank left_out_ = kNoRank;
  std::map<Rank, Report> joining_;
  int num_failed_ = 0;        // attempts in a row that came to nothing
  int32_t num_joins_ = 0;     // asked for, since this member is out
  uint32_t num_lives_ = 0;    // times that it was to ask with something else
  bool is_refused_ = false;   // while it is out
  bool is_followed_ = false;  // this view, by one without those that wait in vain
  // What it asked with before may have taken it in since, or will: it has then to say
  // what it has now, in a change of that view.
  bool is_outdated_ = false;
  std::optional<TimePoint> look_;
  TimePoint now_{};
};

}  // namespace aikido::membership

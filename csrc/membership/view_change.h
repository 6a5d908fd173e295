// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// View change: the procedure by which a view follows from the view before. It handles
// every unusual event: a late owner, a dead member, a broken connection, shards that
// move away from a slow link, a rejoining member. Our design, in the manner of Paxos
// with the members of the old view as acceptors. A deterministic object fed with
// messages and `now`. Progress thread.
//
// Note [why a view change keeps results the same]
// Two members must never expose different results of one operation. Rules:
//   - A member takes part in a new view only after it has reported the results that it
//     accepted in the old view, and has promised to accept no more there. The old owner
//     is asked too, as any member. A member that does not answer is not in the new
//     view.
//   - A view needs more than half of the voters of the view before. It is installed
//     after more than half of them have accepted it. If an answer contains a view that
//     was already accepted, that view is proposed unchanged.
// So a result that an owner alone has exposed is reported by the owner, or the owner is
// excluded and must compare before it rejoins. So at most one of two attempts succeeds.
//
// Note [votes of reliable members]
// Machines that come and go may leave all at once, so they must not be needed for a
// majority. Rule: in a group with reliable ranks only reliable members are voters. Each
// majority in this folder is one of the voters of the old view: the answers, the
// acceptances, and the members that know of an operation before its owner closes it.
// Why it is safe: two majorities of the voters of one view have a common member, as two
// majorities of all members have. Members without a vote obey all other rules: they are
// asked, report, promise, and are waited for.
//
// Note [suspect without exposed results]
// A suspect with a slow uplink answers late, and all members would wait for it. A
// suspect that does not answer is excluded and rejoins, which costs the others an
// exchange. But a result that only the suspect has exposed would exclude it for good.
// So the coordinator waits for the suspect as long as it may have such a result. It
// cannot have one in two cases: the coordinator holds back a shard of each operation,
// or has closed it without some member. Then the suspect has a complete result only if
// another member has acknowledged that shard, and that member says so.
//   The coordinator also waits for a suspect that alone keeps a result which another
// member waits for. A member that is missing while shards come back to another member
// may be the reason for that, and gets the same time.
//
// Note [silent member that answers]
// A slow link may deliver a heartbeat too late, but it does deliver. Such a member
// answers, stays a member, and is silent again. Each view change adds bytes to that
// link, and all unfinished transfers are sent again, so the link might carry nothing
// else. Rule: a member that has answered although it was silent is not treated as
// silent for a while, and for twice as long each further time.
//
// Note [unread results at a promise]
// A process that got no processor for a while may find a PREPARE on one link and a
// result, which was sent long before, on another link. If it promised first, it would
// refuse that result. If its owner is stopped meanwhile, nobody reports the result, and
// the next view makes another one. Rule: a PREPARE waits for on_time(), and the caller
// reads all links before that.
//
// Note [results that cannot be compared]
// A member may alone have received a result of an operation that failed on all others.
// It must not rejoin with that result, because another excluded member may have
// received a different one. A member on which the operation failed does not know the
// result, and never will: others in the view may have received one. The same holds for
// a member that skipped the operation by copying a state. Each of them answers that it
// does not know. The rejoining member then asks the next member at once, and is refused
// when all have given that answer. If the operation meanwhile failed on the rejoining
// member too, it asks all of them anew.

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "membership/agreement_calls.h"
#include "membership/member_doubts.h"
#include "membership/rejoin_question.h"
#include "membership/view_attempt.h"
#include "membership/view_message.h"

namespace aikido::membership {

// Knowledge of a member about its operations and results, for a view change.
class MemberReports {
 public:
  virtual ~MemberReports() = default;
  // Results that this member has accepted. Not called between on_promise() and
  // on_install().
  virtual Report report() const = 0;
  // Adds the calls since report(): `known`, `open` and `needed` grow. May be called at
  // any time.
  virtual void note_calls(Report&) const {}
  // Operations of which no single other owner can have a complete result, unless
  // another member has received that owner's shard: a shard owned here is open, or some
  // shard is closed without a member. Ascending; called together with report().
  virtual std::vector<Seq> withheld() const { return {}; }
  // True if no call ends with an error, and none waits, while `rank` is excluded for a
  // moment.
  virtual bool can_do_without(Rank) const { return false; }
  // Compares the results of both: may a member with this report rejoin? nullopt: not
  // known yet. An error without a sentence: this member will never know. Note [results
  // that cannot be compared]
  virtual std::optional<Status> compare(Rank rank, const Report& report) const = 0;
};

class ViewChangeHost {
 public:
  virtual ~ViewChangeHost() = default;
  virtual const MemberReports& reports() const = 0;
  // Sends `message`. A kView goes ahead of everything that is sent to `to` later.
  virtual void send_view(Rank to, const ViewMessage& message) = 0;
  // From now on this member accepts no result. It gives up shards that it closed and
  // whose results it has not received.
  virtual void on_promise() = 0;
  virtual void on_install(const View& view) = 0;
  // This member cannot rejoin by itself: its data differ, or too much is missing. If
  // `why` names another member as the culprit, it can never rejoin: that member is
  // lost, and the view cannot change any more.
  virtual void on_refused(const Status& why) = 0;
};

class ViewChange {
 public:
  // `host` must outlive it.
  ViewChange(Rank self, int32_t size, ViewChangeHost* host);

  // Sets the least time that unanswered requests are waited for if a call could not end
  // without those members; never less than 5 s. Call it before the first change.
  void set_patience(Duration patience) { patience_ = std::max(patience_, patience); }

  // Sets the reliable ranks of the group, for its whole life. nullopt: they are not
  // known yet. Until then this member starts no view change, but answers those of
  // others. The default is none. Call it before the first change.
  void set_roles(const std::optional<RankSet>& reliable);

  const View& view() const { return view_; }
  bool is_promised() const { return promised_.has_value(); }
  bool is_removed() const { return !view_.has(self_); }
  // True if more than half of the voters can be reached, so that a view can follow.
  bool has_majority() const { return doubts_.leaves_majority(view_); }

  // `rank` delays the others: other members are to own its shards. It stays a member if
  // it answers.
  void suspect(Rank rank, TimePoint now);
  // True if excluded `rank` was refused: it comes back only with a copied state.
  bool needs_state(Rank rank) const { return refused_.contains(rank); }
  const MemberDoubts& doubts() const { return doubts_; }
  // Nothing has come from `rank` for long: it is excluded unless it answers. Note
  // [silent member that answers]
  void on_silent(Rank rank, TimePoint now);
  // The next view excludes `rank`, even if it would answer. The coordinator neither
  // asks it nor waits for it, with two exceptions: the other reachable members are no
  // majority, or an open call of one of them could not end without it. The request is
  // dropped when the view changes. One member at a time.
  void exclude(Rank rank, TimePoint now);
  // `rank` may own shards again.
  void restore(Rank rank, TimePoint now);
  // The connection to `rank` is gone: it cannot answer, now or later.
  void on_lost(Rank rank, TimePoint now);

  // Asks for an agreement on the members. If agreement() has one to take, that one is
  // enough. Otherwise the next view that this member proposes is the agreement. Each
  // member that answers is in it.
  void agree(TimePoint now);
  AgreementCalls& agreement() { return agreement_; }

  // This member is excluded and stays so until rejoin(): it sends no requests to
  // rejoin.
  void stay_excluded();
  // This member may ask again although it was refused: its report is of another state.
  void rejoin(TimePoint now);

  // kProtocol if no member could send this message.
  Status on_message(Rank from, const ViewMessage& message, TimePoint now);
  // Requires: what had arrived before the last messages was read. Note [unread results
  // at a promise]
  void on_time(TimePoint now);
  // Time of the next on_time(); nullopt: nothing is under way.
  [[nodiscard]] std::optional<TimePoint> next_look() const {
    return prepares_.empty() ? look_ : now_;
  }

 private:
  struct OwnState {
    Report report;  // while promised
    std::vector<Seq> withheld;
  };
  bool can_change() const { return knows_roles_ && !is_removed() && has_majority(); }
  bool is_needed() const;
  void consider();
  void start();
  void propose_if_due();
  Duration patience() const;
  void handle(Rank from, const ViewMessage& message);
  void answer_prepare(Rank from, const ViewMessage& message);
  void answer(Rank coordinator);
  void on_state(Rank from, const ViewMessage& message);
  void on_propose(Rank from, const ViewMessage& message);
  void on_accepted(Rank from, const ViewMessage& message);
  void on_join(Rank from, const ViewMessage& message);
  void on_refuse(Rank from, const ViewMessage& message);
  void refuse(Rank to, const ViewMessage& join, const std::string& why);
  void promise(const Ballot& ballot);
  void install(const View& view);
  void join();
  void send_newest(Rank to);

  const Rank self_;
  ViewChangeHost* const host_;
  View view_;
  OwnState own_;
  std::optional<Ballot> promised_;
  std::optional<AcceptedView> accepted_;
  std::optional<ViewAttempt> attempt_;    // of this member as coordinator
  std::map<Rank, ViewMessage> prepares_;  // by sender, not answered yet
  uint32_t highest_counter_ = 0;
  MemberDoubts doubts_;
  RankSet refused_;          // excluded members that asked to rejoin and were refused
  RejoinQuestion question_;  // of this member while it is excluded
  Duration patience_ = std::chrono::seconds(5);
  std::map<Rank, Report> joining_;
  int num_failed_ = 0;  // attempts in a row without an outcome
  AgreementCalls agreement_;
  bool knows_roles_ = true;
  bool is_followed_ = false;  // a view without the members that wait in vain follows
  std::optional<TimePoint> look_;
  TimePoint now_{};
};

}  // namespace aikido::membership

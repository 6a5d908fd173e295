// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "membership/view_change.h"

#include <algorithm>
#include <utility>

#include "base/mutation.h"
#include "base/text.h"
#include "membership/next_view.h"
#include "membership/view_liveness.h"

namespace aikido::membership {

namespace {

using std::chrono::milliseconds;

// Once more than half have answered, the coordinator waits for the rest at least this
// long, or kPatience times as long as those answers took. So the answer of a member
// with a slow link can arrive. A stopped member costs this time once.
constexpr Duration kAnswerFloor = milliseconds(100);
constexpr int kPatience = 4;
// Least wait if the missing member cannot have exposed anything, so it loses nothing. A
// healthy member answers faster.
constexpr Duration kSparedFloor = milliseconds(3);
// Least wait if the missing member may have exposed a result, and nothing shows that it
// is stopped. Its answer may be behind other data on its link. Below kOutcome.
constexpr Duration kExposedFloor = milliseconds(400);
// Members that notice the same event start one after another, so that the first is done
// before the second begins.
constexpr Duration kTurn = milliseconds(10);
constexpr int kMaxTurns = 8;
// An attempt without an outcome is given up after this time. It doubles with every
// failure in a row.
constexpr Duration kOutcome = milliseconds(500);
constexpr int kMaxDoublings = 4;

// Delay after which a member becomes coordinator, if so many come before it.
Duration turn_of(int32_t num_before) {
  return std::min(num_before, kMaxTurns) * kTurn;
}

// A message of `step` from a member in view `number`.
ViewMessage message_of(ViewStep step, uint32_t number, const Ballot& ballot) {
  ViewMessage message;
  message.step = step;
  message.view = number;
  message.ballot = ballot;
  return message;
}

// kProtocol if the message has a view with other roles than `ours`.
Status check_roles(Rank from, const ViewMessage& message, const View& ours) {
  const View* view = message.proposed   ? &*message.proposed
                     : message.accepted ? &message.accepted->view
                                        : nullptr;
  if (view == nullptr || view->reliable == ours.reliable) return Status::ok();
  return {
      Code::kProtocol,
      concat("rank ", from.value, " has a view with ", view->reliable.count(),
             " reliable ranks of the group, and this rank has ", ours.reliable.count(),
             " or others; a role never changes during the life of a group"),
      from};
}

}  // namespace

ViewChange::ViewChange(Rank self, int32_t size, ViewChangeHost* host)
    : self_(self),
      host_(host),
      view_(View::first_of(size)),
      doubts_(size),
      refused_(size),
      question_(size) {}

// True if the view must change because of later events.
bool ViewChange::is_needed() const {
  if (is_removed()) return false;
  return agreement_.is_wanted() || !joining_.empty() || question_.is_outdated() ||
         is_followed_ || doubts_.has_any_in(view_);
}

void ViewChange::suspect(Rank rank, TimePoint now) {
  now_ = now;
  // Results that only this member holds must come from it, so suspecting it would not
  // help.
  if (view_.has(rank) && owns_shards(view_, rank) && doubts_.suspect(rank)) consider();
}

void ViewChange::exclude(Rank rank, TimePoint now) {
  now_ = now;
  if (rank != self_ && view_.has(rank) && doubts_.exclude(rank)) consider();
}

void ViewChange::restore(Rank rank, TimePoint now) {
  now_ = now;
  if (view_.has(rank) && !view_.is_owner(rank) && doubts_.restore(rank)) consider();
}

void ViewChange::on_silent(Rank rank, TimePoint now) {
  now_ = now;
  if (view_.has(rank) && doubts_.note_silent(rank, now)) consider();
}

void ViewChange::set_roles(const std::optional<RankSet>& reliable) {
  knows_roles_ = reliable.has_value();
  if (!reliable) return;
  view_.reliable = *reliable;
  consider();
}

void ViewChange::agree(TimePoint now) {
  now_ = now;
  if (agreement_.call(view_, now)) consider();
}

void ViewChange::on_lost(Rank rank, TimePoint now) {
  now_ = now;
  if (!doubts_.note_lost(rank)) return;
  agreement_.note_loss(now);
  joining_.erase(rank);
  prepares_.erase(rank);
  if (promised_) own_.report.lost.insert(rank);
  if (attempt_) {
    attempt_->answers.erase(rank);
    attempt_->answers[self_].report = own_.report;
    propose_if_due();
  } else if (promised_ && !doubts_.is_lost(promised_->rank)) {
    answer(promised_->rank);
  }
  consider();
  if (!is_removed() || has_majority()) return;
  // See Note [a view that cannot change]: the member asks all remaining members.
  question_.forget_answers();
  join();
}

// Starts a change, or sets the time for it, if one is needed.
void ViewChange::consider() {
  if (attempt_ || promised_ || !is_needed() || !can_change()) return;
  const Duration turn = turn_of(doubts_.num_before(view_, self_));
  if (turn == Duration::zero()) return start();
  if (!look_) look_ = now_ + turn;
}

void ViewChange::start() {
  // Results that a returning member lacks may have been forgotten since its request.
  std::erase_if(joining_, [&](const auto& entry) {
    const auto fits = host_->reports().compare(entry.first, entry.second);
    return !fits || fits->has_failed();  // it asks again
  });
  const Ballot ballot{highest_counter_ + 1, self_};
  highest_counter_ = ballot.counter;
  is_followed_ = false;
  promise(ballot);
  attempt_ = ViewAttempt();  // clang 14 does not accept emplace() for this type
  attempt_->ballot = ballot;
  attempt_->accepted = RankSet(view_.members.world_size());
  attempt_->started = now_;
  attempt_->answers[self_] = {own_.report, accepted_};
  view_.members.for_each([&](Rank r) {
    if (r != self_ && doubts_.is_asked(view_, r))
      host_->send_view(r, message_of(ViewStep::kPrepare, view_.number, ballot));
  });
  propose_if_due();
}

void ViewChange::promise(const Ballot& ballot) {
  if (!promised_) {
    own_.report = host_->reports().report();
    own_.withheld = host_->reports().withheld();
    host_->on_promise();
  } else {
    // The coordinator that succeeds in the end must know the present number of needed
    // members.
    host_->reports().note_calls(own_.report);
  }
  promised_ = ballot;
  attempt_.reset();
  // A coordinator that waits for silent members is not hurried either.
  const bool is_small = doubts_.live(view_, kNoRank).count() < own_.report.needed;
  look_ = now_ + kOutcome * (1 << std::min(num_failed_, kMaxDoublings)) +
          turn_of(doubts_.num_before(view_, self_)) +
          (is_small ? patience_ : Duration::zero());
}

Status ViewChange::on_message(Rank from, const ViewMessage& message, TimePoint now) {
  now_ = now;
  const bool is_plan = message.step == ViewStep::kState && promised_.has_value();
  if (is_plan && message.view == view_.number)
    AIKIDO_TRY(
        check_reach(from, message.report, self_, own_.report, view_.seats.size()));
  if (knows_roles_) AIKIDO_TRY(check_roles(from, message, view_));
  handle(from, message);
  return Status::ok();
}

void ViewChange::handle(Rank from, const ViewMessage& message) {
  highest_counter_ = std::max(highest_counter_, message.ballot.counter);
  if (message.step == ViewStep::kView) {
    if (message.proposed->number > view_.number) install(*message.proposed);
    return;
  }
  if (message.step == ViewStep::kRefuse) return on_refuse(from, message);
  const bool is_silent = mutated(Mutation::kRemovedIsSilent) && is_removed();
  if (is_silent) return;
  // A sender with an older view gets the present view first.
  if (message.view < view_.number || is_removed()) return send_newest(from);
  // The sender has sent that view before, so it is on its way.
  if (message.view > view_.number) return;
  if (message.step == ViewStep::kJoin) return on_join(from, message);
  if (!view_.has(from)) return send_newest(from);
  switch (message.step) {
    case ViewStep::kPrepare:
      if (mutated(Mutation::kPromiseUnread)) return answer_prepare(from, message);
      prepares_[from] = message;
      return;
    case ViewStep::kState:
      return on_state(from, message);
    case ViewStep::kPropose:
      return on_propose(from, message);
    case ViewStep::kAccepted:
      return on_accepted(from, message);
    default:
      return;
  }
}

void ViewChange::answer_prepare(Rank from, const ViewMessage& message) {
  if (promised_ && message.ballot <= *promised_) return;  // the higher ballot wins
  promise(message.ballot);
  answer(from);
}

// Sent again if more members are lost, because the coordinator may believe that enough
// remain.
void ViewChange::answer(Rank coordinator) {
  ViewMessage message;
  message.step = ViewStep::kState;
  message.view = view_.number;
  message.ballot = *promised_;
  message.report = own_.report;
  message.accepted = accepted_;
  host_->send_view(coordinator, message);
}

void ViewChange::on_state(Rank from, const ViewMessage& message) {
  if (!attempt_ || message.ballot != attempt_->ballot || attempt_->proposed) return;
  attempt_->answers[from] = {message.report, message.accepted};
  propose_if_due();
}

// Time to wait for the missing answers, once more than half have answered.
Duration ViewChange::patience() const {
  Rank missing = kNoRank;
  int32_t num_missing = 0;
  view_.members.for_each([&](Rank r) {
    if (attempt_->answers.contains(r)) return;
    missing = r;
    ++num_missing;
  });
  Duration floor = kAnswerFloor;
  if (num_missing == 1 && !doubts_.is_lost(missing)) {
    const bool is_needed = waiting_in_vain(view_, attempt_->reports()).count() > 0;
    const bool is_moved = doubts_.is_moved(missing);
    if (!is_needed && attempt_->can_spare(view_, missing, own_.withheld) &&
        host_->reports().can_do_without(missing)) {
      if (is_moved) floor = kSparedFloor;
    } else if ((is_moved || doubts_.restored().count() > 0) &&
               !doubts_.is_silent(missing)) {
      floor = kExposedFloor;
    }
  }
  return std::max(floor, kPatience * (attempt_->majority_at - attempt_->started));
}

void ViewChange::propose_if_due() {
  if (!attempt_ || attempt_->proposed) return;
  auto& answers = attempt_->answers;
  if (!is_majority(view_, attempt_->answered(view_.members.world_size()))) return;
  if (attempt_->majority_at == TimePoint{}) attempt_->majority_at = now_;
  bool is_complete = true;
  view_.members.for_each([&](Rank r) {
    // The others had their time before the last member was asked.
    const bool had_time = attempt_->asked_last != kNoRank && r != attempt_->asked_last;
    if (doubts_.is_asked(view_, r) && !answers.contains(r) && !had_time)
      is_complete = false;
  });
  const TimePoint since = std::max(attempt_->majority_at, attempt_->asked_at);
  TimePoint due = since + patience();
  if (!is_complete && now_ >= due &&
      would_block(view_, attempt_->reports(), Makers::kParticipants))
    due = std::max(due, since + patience_);
  if (is_complete) due = now_;
  if (agreement_.is_wanted()) due = std::max(due, agreement_.quiet_at());
  if (now_ < due) {
    look_ = due;
    return;
  }
  if (attempt_->lacks_excluded(view_, doubts_)) {
    attempt_->asked_last = doubts_.take_to_exclude();
    attempt_->asked_at = now_;
    host_->send_view(attempt_->asked_last,
                     message_of(ViewStep::kPrepare, view_.number, attempt_->ballot));
    return propose_if_due();
  }
  const AcceptedView* const earlier = attempt_->accepted_before();
  ViewPlan plan;
  plan.moved = doubts_.moved();
  plan.restored = doubts_.restored();
  plan.joining = joining_;
  plan.answers = attempt_->reports();
  plan.agrees = agreement_.is_wanted();
  attempt_->proposed = earlier != nullptr ? earlier->view : next_view(view_, plan);
  // Some of its members wait in vain. If the rest is a majority, another view follows
  // at once.
  const RankSet& members = attempt_->proposed->members;
  RankSet left = members;
  waiting_in_vain(view_, plan.answers).for_each([&](Rank r) { left.erase(r); });
  attempt_->is_followed = !(left == members) &&
                          is_majority(*attempt_->proposed, left) &&
                          !mutated(Mutation::kKeepInVain);
  // Members that are not taken in ask again.
  std::erase_if(joining_, [&](const auto& entry) {
    return !attempt_->proposed->has(entry.first);
  });
  look_ = now_ + kOutcome * (1 << std::min(num_failed_, kMaxDoublings));
  accepted_ = AcceptedView{attempt_->ballot, *attempt_->proposed};
  if (mutated(Mutation::kInstallUnvoted)) return install(View(*attempt_->proposed));
  ViewMessage message;
  message.step = ViewStep::kPropose;
  message.view = view_.number;
  message.ballot = attempt_->ballot;
  message.proposed = attempt_->proposed;
  view_.members.for_each([&](Rank r) {
    if (r != self_ && !doubts_.is_lost(r)) host_->send_view(r, message);
  });
  ViewMessage own;
  own.ballot = attempt_->ballot;
  on_accepted(self_, own);
}

void ViewChange::on_propose(Rank from, const ViewMessage& message) {
  if (promised_ && message.ballot < *promised_) return;
  if (message.proposed->number != view_.number + 1) return;
  promise(message.ballot);
  accepted_ = AcceptedView{message.ballot, *message.proposed};
  host_->send_view(from, message_of(ViewStep::kAccepted, view_.number, message.ballot));
}

void ViewChange::on_accepted(Rank from, const ViewMessage& message) {
  if (!attempt_ || message.ballot != attempt_->ballot || !attempt_->proposed) return;
  attempt_->accepted.insert(from);
  const bool is_enough = mutated(Mutation::kInstallUnreliable)
                             ? 2 * attempt_->accepted.count() > view_.members.count()
                             : is_majority(view_, attempt_->accepted);
  if (is_enough) install(View(*attempt_->proposed));
}

void ViewChange::install(const View& view) {
  if (!promised_) host_->on_promise();
  const View old = std::exchange(view_, view);
  is_followed_ = attempt_ && attempt_->is_followed && attempt_->proposed == view;
  promised_.reset();
  accepted_.reset();
  attempt_.reset();
  prepares_.clear();  // their senders are told of the new view
  look_.reset();
  num_failed_ = 0;
  question_.on_view(is_removed(), !old.has(self_));
  for (auto it = joining_.begin(); it != joining_.end();)
    it = view_.has(it->first) ? joining_.erase(it) : std::next(it);
  doubts_.on_view(old, view_, self_, now_);
  view_.members.for_each([&](Rank r) { refused_.erase(r); });
  agreement_.on_view(view_);
  const bool is_silent = mutated(Mutation::kRemovedIsSilent) && is_removed();
  if (!is_silent && !mutated(Mutation::kViewNotPassedOn)) {
    for (int32_t r = 0; r < view_.members.world_size(); ++r) {
      const Rank rank(r);
      const bool is_told = old.has(rank) || view_.has(rank);
      if (is_told && rank != self_ && !doubts_.is_lost(rank)) send_newest(rank);
    }
  }
  host_->on_install(view_);
  if (is_removed()) return join();
  consider();
}

// ---- time, messages ----

void ViewChange::on_time(TimePoint now) {
  now_ = now;
  for (const auto& [from, prepare] : std::exchange(prepares_, {}))
    answer_prepare(from, prepare);
  if (!look_ || now < *look_) return;
  look_.reset();
  if (is_removed()) return join();
  if (attempt_ && !attempt_->proposed && attempt_->majority_at != TimePoint{})
    return propose_if_due();
  if (!can_change()) return;
  if (promised_) {
    ++num_failed_;
  } else if (!is_needed()) {
    return;
  }
  start();
}

void ViewChange::send_newest(Rank to) {
  ViewMessage message;
  message.step = ViewStep::kView;
  message.view = view_.number;
  message.ballot.counter = highest_counter_;
  message.proposed = view_;
  host_->send_view(to, message);
}

}  // namespace aikido::membership

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
// First time for which an answering member is protected from a new exclusion. It starts
// again at this value if the member was not silent for kForgiven times as long.
constexpr Duration kSpared = milliseconds(100);
constexpr int kForgiven = 8;
// Limit for the distance between members, in operations. Larger if operations have few
// shards.
constexpr uint64_t kMinOpen = 1024;
constexpr uint64_t kMaxOpenShards = uint64_t{1} << 18;

}  // namespace

ViewChange::ViewChange(Rank self, int32_t size, ViewChangeHost* host)
    : self_(self),
      host_(host),
      view_(View::first_of(size)),
      lost_(size),
      silent_(size),
      moved_(size),
      restored_(size),
      refused_(size),
      unsure_(size),
      spared_(static_cast<size_t>(size)) {}

bool ViewChange::is_majority(int32_t count) const {
  return mutated(Mutation::kMinorityView) || 2 * count > view_.members.count();
}

bool ViewChange::has_majority() const {
  int32_t live = 0;
  view_.members.for_each([&](Rank r) { live += lost_.contains(r) ? 0 : 1; });
  return is_majority(live);
}

// Number of members that may answer soon, except `but`.
int32_t ViewChange::num_live(Rank but) const {
  int32_t num = 0;
  view_.members.for_each([&](Rank r) {
    if (r != but && !lost_.contains(r) && !silent_.contains(r)) ++num;
  });
  return num;
}

bool ViewChange::owns(Rank rank) const {
  return std::any_of(view_.cuts.begin(), view_.cuts.end(), [&](const Cut& cut) {
    for (int32_t n = 0; n < cut.num_numbers(); ++n)
      if (cut.owner(n) == rank) return true;
    return false;
  });
}

// True if the view must change because of later events.
bool ViewChange::is_needed() const {
  if (is_removed()) return false;
  bool is_needed =
      !joining_.empty() || to_exclude_ != kNoRank || is_outdated_ || is_followed_;
  view_.members.for_each([&](Rank r) {
    if (lost_.contains(r) || silent_.contains(r) || moved_.contains(r) ||
        restored_.contains(r))
      is_needed = true;
  });
  return is_needed;
}

// True if another member can take over the shards of `rank`.
bool ViewChange::has_others(Rank rank) const {
  bool has_others = false;
  view_.members.for_each([&](Rank r) {
    if (r != rank && !moved_.contains(r) && !lost_.contains(r)) has_others = true;
  });
  return has_others;
}

void ViewChange::suspect(Rank rank, TimePoint now) {
  now_ = now;
  // Results that only this member holds must come from it, so suspecting it would not
  // help.
  if (!view_.has(rank) || !owns(rank) || !moved_.insert(rank)) return;
  restored_.erase(rank);
  consider();
}

void ViewChange::exclude(Rank rank, TimePoint now) {
  now_ = now;
  if (rank == self_ || !view_.has(rank) || to_exclude_ != kNoRank) return;
  to_exclude_ = rank;
  consider();
}

void ViewChange::restore(Rank rank, TimePoint now) {
  now_ = now;
  if (!view_.has(rank) || view_.is_owner(rank) || !restored_.insert(rank)) return;
  consider();
}

void ViewChange::on_silent(Rank rank, TimePoint now) {
  now_ = now;
  const bool is_spared = now < spared_[static_cast<size_t>(rank.value)].until;
  if (!view_.has(rank) || is_spared || !silent_.insert(rank)) return;
  moved_.insert(rank);
  consider();
}

void ViewChange::on_lost(Rank rank, TimePoint now) {
  now_ = now;
  if (!lost_.insert(rank)) return;
  joining_.erase(rank);
  prepares_.erase(rank);
  if (promised_) own_report_.lost.insert(rank);
  if (attempt_) {
    attempt_->answers.erase(rank);
    attempt_->answers[self_].report = own_report_;
    propose_if_due();
  } else if (promised_ && !lost_.contains(promised_->rank)) {
    answer(promised_->rank);
  }
  consider();
  if (!is_removed() || has_majority()) return;
  // See Note [a view that cannot change]: the member asks all remaining members.
  unsure_ = RankSet(view_.members.world_size());
  join();
}

// Delay after which a rank becomes coordinator. Healthy ranks come first.
Duration ViewChange::turn_of(Rank rank) const {
  int turns = 0;
  view_.members.for_each([&](Rank r) {
    const bool is_before =
        moved_.contains(r) == moved_.contains(rank) ? r < rank : !moved_.contains(r);
    if (is_before && !lost_.contains(r) && r != to_exclude_) ++turns;
  });
  return std::min(turns, kMaxTurns) * kTurn;
}

// True if the member is asked for its report, and so may be in the next view.
bool ViewChange::is_asked(Rank rank) const {
  if (mutated(Mutation::kSuspectNotAsked) && moved_.contains(rank)) return false;
  // Without a member that is to be excluded, a majority may be missing.
  const bool is_spared = rank == to_exclude_ && is_majority(num_live(rank));
  return !lost_.contains(rank) && !is_spared;
}

// Starts a change, or sets the time for it, if one is needed.
void ViewChange::consider() {
  if (attempt_ || promised_ || !is_needed() || !can_change()) return;
  const Duration turn = turn_of(self_);
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
  attempt_ = Attempt();  // clang 14 does not accept emplace() for this type
  attempt_->ballot = ballot;
  attempt_->accepted = RankSet(view_.members.world_size());
  attempt_->started = now_;
  attempt_->answers[self_] = {own_report_, accepted_};
  view_.members.for_each([&](Rank r) {
    if (r != self_ && is_asked(r)) send(r, ViewStep::kPrepare, ballot);
  });
  propose_if_due();
}

void ViewChange::promise(const Ballot& ballot) {
  if (!promised_) {
    own_report_ = host_->reports().report();
    withheld_ = host_->reports().withheld();
    host_->on_promise();
  } else {
    // The coordinator that succeeds in the end must know the present number of needed
    // members.
    host_->reports().note_calls(own_report_);
  }
  promised_ = ballot;
  attempt_.reset();
  // A coordinator that waits for silent members is not hurried either.
  const bool is_small = num_live(kNoRank) < own_report_.needed;
  look_ = now_ + kOutcome * (1 << std::min(num_failed_, kMaxDoublings)) +
          turn_of(self_) + (is_small ? patience_ : Duration::zero());
}

// A plan visits all operations that are open on any member. A report that claims more
// open operations than possible is refused before.
Status ViewChange::check_reach(Rank from, const Report& theirs,
                               const Report& ours) const {
  const uint64_t max_open = std::max(kMinOpen, kMaxOpenShards / view_.seats.size());
  const uint64_t high = std::max(theirs.known.value, theirs.acked.value);
  const uint64_t own_high = std::max(ours.known.value, ours.acked.value);
  const bool is_ahead = high > ours.acked.value + max_open;
  const bool is_behind = own_high > theirs.acked.value + max_open;
  if (!is_ahead && !is_behind) return Status::ok();
  return Status(
      Code::kProtocol,
      concat("rank ", from.value, " knows of operation ", high, " and has all up to ",
             theirs.acked.value, ", rank ", self_.value, " knows of ", own_high,
             " and has all up to ", ours.acked.value, ": at most ", max_open,
             " operations can be open"),
      from);
}

Status ViewChange::on_message(Rank from, const ViewMessage& message, TimePoint now) {
  now_ = now;
  const bool is_plan = message.step == ViewStep::kState && promised_.has_value();
  if (is_plan && message.view == view_.number)
    AIKIDO_TRY(check_reach(from, message.report, own_report_));
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
  message.report = own_report_;
  message.accepted = accepted_;
  host_->send_view(coordinator, message);
}

void ViewChange::on_state(Rank from, const ViewMessage& message) {
  if (!attempt_ || message.ballot != attempt_->ballot || attempt_->proposed) return;
  attempt_->answers[from] = {message.report, message.accepted};
  propose_if_due();
}

std::map<Rank, Report> ViewChange::reports() const {
  std::map<Rank, Report> reports;
  for (const auto& [rank, answer] : attempt_->answers)
    reports.emplace(rank, answer.report);
  return reports;
}

// True if the member to be excluded was not asked, but the others need its results.
// Waiting for silent members pays only if too few take part otherwise, because their
// results are needed by one member alone. But asking costs next to nothing.
bool ViewChange::is_missed_out() const {
  if (to_exclude_ == kNoRank || is_asked(to_exclude_) || lost_.contains(to_exclude_) ||
      attempt_->answers.contains(to_exclude_))
    return false;
  const auto makers =
      mutated(Mutation::kHadMakesAnother) ? Makers::kParticipants : Makers::kLacking;
  return would_block(view_, reports(), makers) && !mutated(Mutation::kLeaveOutNeeded);
}

// See Note [suspect without exposed results].
bool ViewChange::can_spare(Rank rank) const {
  const auto& answers = attempt_->answers;
  Seq low(UINT64_MAX), high;
  for (const auto& [other, answer] : answers) {
    low = std::min(low, answer.report.acked);
    high = std::max({high, answer.report.known, answer.report.acked});
  }
  for (Seq seq(low.value + 1); seq <= high; ++seq.value) {
    const Cut& cut = view_.cut_of(seq);
    const auto is_here = [&](int32_t number) {
      return std::any_of(answers.begin(), answers.end(), [&](const auto& entry) {
        return entry.second.report.has(seq, number);
      });
    };
    bool is_whole = true;    // the answers contain every shard
    bool lacks_own = false;  // a shard is missing that only `rank` could have exposed
    for (int32_t s = 0; s < std::ssize(cut.owners); ++s) {
      if (is_here(s)) continue;
      // A member that has not seen the operation does not know if the shard is divided.
      if (cut.is_divided(s)) {
        for (int32_t n = 0; n < cut.num_numbers(); ++n)
          is_whole &= cut.shard_of(n) != s || n == s || is_here(n);
        continue;
      }
      is_whole = false;
      // A result that it holds from the previous view is complete.
      lacks_own |= cut.owner(s) == rank && view_.held_at(seq, s) == nullptr;
    }
    const bool is_withheld =
        lacks_own && std::binary_search(withheld_.begin(), withheld_.end(), seq);
    if (!is_whole && !is_withheld) return false;
  }
  return true;
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
  if (num_missing == 1 && !lost_.contains(missing)) {
    const bool is_needed = waiting_in_vain(view_, reports()).count() > 0;
    const bool is_moved = moved_.contains(missing);
    if (!is_needed && can_spare(missing) && host_->reports().can_do_without(missing)) {
      if (is_moved) floor = kSparedFloor;
    } else if ((is_moved || restored_.count() > 0) && !silent_.contains(missing)) {
      floor = kExposedFloor;
    }
  }
  return std::max(floor, kPatience * (attempt_->majority_at - attempt_->started));
}

void ViewChange::propose_if_due() {
  if (!attempt_ || attempt_->proposed) return;
  auto& answers = attempt_->answers;
  if (!is_majority(static_cast<int32_t>(answers.size()))) return;
  if (attempt_->majority_at == TimePoint{}) attempt_->majority_at = now_;
  bool is_complete = true;
  view_.members.for_each([&](Rank r) {
    // The others had their time before the last member was asked.
    const bool had_time = attempt_->asked_last != kNoRank && r != attempt_->asked_last;
    if (is_asked(r) && !answers.contains(r) && !had_time) is_complete = false;
  });
  const TimePoint since = std::max(attempt_->majority_at, attempt_->asked_at);
  TimePoint due = since + patience();
  if (!is_complete && now_ >= due &&
      would_block(view_, reports(), Makers::kParticipants))
    due = std::max(due, since + patience_);
  if (!is_complete && now_ < due) {
    look_ = due;
    return;
  }
  if (is_missed_out()) {
    attempt_->asked_last = std::exchange(to_exclude_, kNoRank);
    attempt_->asked_at = now_;
    send(attempt_->asked_last, ViewStep::kPrepare, attempt_->ballot);
    return propose_if_due();
  }
  const AcceptedView* earlier = nullptr;
  ViewPlan plan;
  plan.moved = moved_;
  plan.restored = restored_;
  plan.joining = joining_;
  plan.answers = reports();
  // An earlier proposal may have been accepted by a majority, so the one with the
  // highest ballot must be proposed again.
  for (const auto& [rank, answer] : answers) {
    if (answer.accepted && !mutated(Mutation::kIgnoreAccepted) &&
        (earlier == nullptr || answer.accepted->ballot > earlier->ballot))
      earlier = &*answer.accepted;
  }
  attempt_->proposed = earlier != nullptr ? earlier->view : next_view(view_, plan);
  // Some of its members wait in vain. If the rest is a majority, another view follows
  // at once.
  const RankSet& members = attempt_->proposed->members;
  RankSet left = members;
  waiting_in_vain(view_, plan.answers).for_each([&](Rank r) { left.erase(r); });
  attempt_->is_followed = !(left == members) && 2 * left.count() > members.count() &&
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
    if (r != self_ && !lost_.contains(r)) host_->send_view(r, message);
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
  send(from, ViewStep::kAccepted, message.ballot);
}

void ViewChange::on_accepted(Rank from, const ViewMessage& message) {
  if (!attempt_ || message.ballot != attempt_->ballot || !attempt_->proposed) return;
  attempt_->accepted.insert(from);
  if (is_majority(attempt_->accepted.count())) install(View(*attempt_->proposed));
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
  // Answers about an earlier view belong to another question.
  if (std::exchange(num_joins_, 0) > 0) ++num_lives_;
  unsure_ = RankSet(view_.members.world_size());
  to_exclude_ = kNoRank;
  is_refused_ = is_refused_ && is_removed();
  is_outdated_ = is_outdated_ && !old.has(self_);
  for (auto it = joining_.begin(); it != joining_.end();)
    it = view_.has(it->first) ? joining_.erase(it) : std::next(it);
  // A member that has lost its own shards was slow itself, so its suspicions do not
  // count.
  const bool was_slow = old.is_owner(self_) && !view_.is_owner(self_);
  // Members in the new view have answered, and their shards were taken over as far as
  // possible.
  for (int32_t r = 0; r < view_.members.world_size(); ++r) {
    const Rank rank(r);
    if (silent_.erase(rank) && view_.has(rank)) spare(rank);
    if (was_slow || !view_.has(rank) || !owns(rank) || !has_others(rank))
      moved_.erase(rank);
    if (!view_.has(rank) || view_.is_owner(rank)) restored_.erase(rank);
    if (view_.has(rank)) refused_.erase(rank);
  }
  const bool is_silent = mutated(Mutation::kRemovedIsSilent) && is_removed();
  if (!is_silent && !mutated(Mutation::kViewNotPassedOn)) {
    for (int32_t r = 0; r < view_.members.world_size(); ++r) {
      const Rank rank(r);
      const bool is_told = old.has(rank) || view_.has(rank);
      if (is_told && rank != self_ && !lost_.contains(rank)) send_newest(rank);
    }
  }
  host_->on_install(view_);
  if (is_removed()) return join();
  consider();
}

// See Note [silent member that answers].
void ViewChange::spare(Rank rank) {
  Spared& spared = spared_[static_cast<size_t>(rank.value)];
  const auto time = [&] {
    return kSpared * (1 << std::min(spared.times, kMaxDoublings));
  };
  if (now_ > spared.until + kForgiven * time()) spared.times = 0;
  spared.until = now_ + time();
  ++spared.times;
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

void ViewChange::send(Rank to, ViewStep step, const Ballot& ballot) {
  ViewMessage message;
  message.step = step;
  message.view = view_.number;
  message.ballot = ballot;
  host_->send_view(to, message);
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

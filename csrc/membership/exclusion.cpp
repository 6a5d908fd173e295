// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
//
// Part of ViewChange for members that are excluded from the view: their requests to
// rejoin, and the answers of the members.

#include <utility>
#include <vector>

#include "base/text.h"
#include "membership/view_change.h"

namespace aikido::membership {

namespace {

// Interval at which an excluded member asks the next member to take it in.
constexpr Duration kJoinAgain = std::chrono::milliseconds(500);

// See Note [a view that cannot change].
Status cannot_return(const View& view, const MemberDoubts& doubts, Rank self) {
  std::string lost;
  Rank culprit = kNoRank;
  view.members.for_each([&](Rank r) {
    if (!doubts.is_lost(r)) return;
    lost += concat(culprit == kNoRank ? "" : ", ", "rank ", r.value);
    if (culprit == kNoRank) culprit = r;
  });
  return {Code::kPeerLost,
          concat("rank ", self.value,
                 " was left out while it was late, and cannot return: ", lost,
                 " left the group or failed, and ",
                 no_majority_text(view, doubts.reachable(view)),
                 "; start again from a checkpoint"),
          culprit};
}

}  // namespace

void ViewChange::stay_excluded() {
  question_.refuse();
  look_.reset();
}

void ViewChange::rejoin(TimePoint now) {
  now_ = now;
  question_.ask_anew(is_removed());
  if (is_removed()) join();
}

void ViewChange::join() {
  std::vector<Rank> sponsors;
  view_.members.for_each([&](Rank r) {
    if (!doubts_.is_lost(r)) sponsors.push_back(r);
  });
  if (sponsors.empty() || (question_.is_refused() && has_majority()))
    return look_.reset();
  ViewMessage message;
  message.step = ViewStep::kJoin;
  message.view = view_.number;
  message.report = host_->reports().report();
  const auto index = static_cast<size_t>(question_.ask(message.report.received));
  message.ballot.counter = question_.number();
  host_->send_view(sponsors[index % sponsors.size()], message);
  look_ = now_ + kJoinAgain;
}

// Note [a view that cannot change]
// If half of the voters of a view are lost, there can be no other view, and no member
// is taken in. An excluded member must not wait for that, not even a member that waits
// for the state of another (stay_excluded). But it may know only an old view, or have
// lost other members than the view has. So it asks each remaining member. A member
// without a majority answers that it can never tell, as in Note [results that cannot be
// compared].
void ViewChange::on_join(Rank from, const ViewMessage& message) {
  if (view_.has(from)) return send_newest(from);
  refused_.erase(from);
  if (!has_majority()) return refuse(from, message, "");
  const auto ours = promised_ ? own_.report : host_->reports().report();
  auto fits = host_->reports().compare(from, message.report);
  if (const Status reach =
          check_reach(from, message.report, self_, ours, view_.seats.size());
      reach.has_failed()) {
    fits = reach;
  } else if (message.report.acked.value + 1 < view_.cuts.front().first.value) {
    fits = Status(Code::kPeerLost,
                  concat("rank ", from.value, " has all results up to operation ",
                         message.report.acked.value, " only, and how those before ",
                         view_.cuts.front().first.value,
                         " are cut is not known any "
                         "more; copy the state of another rank and reconfigure"));
  }
  if (!fits) return;  // the member asks again
  if (fits->has_failed()) return refuse(from, message, fits->message());
  joining_[from] = message.report;
  if (!attempt_ && !promised_ && can_change()) start();
}

void ViewChange::refuse(Rank to, const ViewMessage& join, const std::string& why) {
  ViewMessage refusal;
  refusal.step = ViewStep::kRefuse;
  refusal.view = view_.number;
  refusal.ballot = join.ballot;
  refusal.text = why;
  if (!why.empty()) refused_.insert(to);
  host_->send_view(to, refusal);
}

// See Note [results that cannot be compared].
void ViewChange::on_refuse(Rank from, const ViewMessage& message) {
  const bool is_done = question_.is_refused() && has_majority();
  if (!is_removed() && !view_.has(from)) refused_.insert(from);
  if (!is_removed() || is_done || message.ballot.counter != question_.number()) return;
  std::string why = printable(message.text);
  if (why.empty()) {
    // In another view the question is asked again.
    if (message.view != view_.number || !view_.has(from)) return;
    if (!question_.note_unsure(from)) return;
    const auto received = host_->reports().report().received;
    if (!question_.are_unsure(doubts_.reachable(view_)) ||
        !question_.is_about(received))
      return join();
    if (!has_majority()) {
      question_.refuse();
      look_.reset();
      return host_->on_refused(cannot_return(view_, doubts_, self_));
    }
    why = concat("rank ", self_.value,
                 " was left out while it was late, and cannot return: one of the "
                 "results that it has received, up to operation ",
                 received.empty() ? 0 : received.back().seq.value,
                 ", no other member has, since that operation ended with an error "
                 "there or was skipped through; copy the state of another rank and "
                 "reconfigure");
  }
  question_.refuse();
  look_.reset();
  // The other member may not have noticed yet that there is no majority.
  if (!has_majority()) look_ = now_ + kJoinAgain;
  // The other members must not wait for this member, because it waits for the state of
  // one of them. A refusal without a sentence says nothing about its receiver.
  ViewMessage refused;
  refused.ballot.counter = question_.number();
  view_.members.for_each([&](Rank r) {
    if (r != from && !doubts_.is_lost(r)) refuse(r, refused, "");
  });
  host_->on_refused({Code::kPeerLost, why, self_});
}

}  // namespace aikido::membership

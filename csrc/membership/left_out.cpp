// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
// What a ViewChange does about a member that is out of the view: how it asks to come
// back, and who takes it in.
#include <utility>
#include <vector>

#include "base/text.h"
#include "membership/view_change.h"

namespace aikido::membership {

namespace {

// A member that is out asks another one to take it in.
constexpr Duration kJoinAgain = std::chrono::milliseconds(500);

}  // namespace

void ViewChange::stay_out() {
  is_refused_ = true;
  look_.reset();
}

void ViewChange::rejoin(TimePoint now) {
  now_ = now;
  is_refused_ = false;
  unsure_ = RankSet(view_.members.world_size());
  ++num_lives_;
  if (!is_removed()) return;
  is_outdated_ = is_outdated_ || num_joins_ > 0;
  join();
}

void ViewChange::join() {
  std::vector<Rank> sponsors;
  view_.members.for_each([&](Rank r) {
    if (!lost_.contains(r)) sponsors.push_back(r);
  });
  if (sponsors.empty() || is_refused_) return look_.reset();
  ViewMessage message;
  message.step = ViewStep::kJoin;
  message.view = view_.number;
  message.report = host_->report();
  // What has failed since it asked it has not had: that is another question.
  if (std::exchange(asked_had_, message.report.had) != message.report.had) {
    if (num_joins_ > 0) ++num_lives_;
    unsure_ = RankSet(view_.members.world_size());
  }
  message.ballot.counter = num_lives_;
  host_->send_view(sponsors[static_cast<size_t>(num_joins_++) % sponsors.size()],
                   message);
  look_ = now_ + kJoinAgain;
}

void ViewChange::on_join(Rank from, const ViewMessage& message) {
  if (view_.has(from)) return send_newest(from);
  const auto ours = promised_ ? own_report_ : host_->report();
  auto fits = host_->compare(from, message.report);
  if (const Status reach = check_reach(from, message.report, ours); !reach) {
    fits = reach;
  } else if (message.report.settled.value + 1 < view_.cuts.front().first.value) {
    fits = Status(Code::kPeerLost,
                  concat("rank ", from.value, " has all results up to operation ",
                         message.report.settled.value, " only, and how those before ",
                         view_.cuts.front().first.value,
                         " are cut is not known any "
                         "more; copy the state of another rank and reconfigure"));
  }
  if (!fits) return;  // it asks again
  if (!*fits) {
    ViewMessage refusal;
    refusal.step = ViewStep::kRefuse;
    refusal.view = view_.number;
    refusal.ballot = message.ballot;
    refusal.text = fits->message();
    return host_->send_view(from, refusal);
  }
  joining_[from] = message.report;
  if (!attempt_ && !promised_ && can_change()) start();
}

// Note [results that cannot be compared]
void ViewChange::on_refuse(Rank from, const ViewMessage& message) {
  if (!is_removed() || is_refused_ || message.ballot.counter != num_lives_) return;
  std::string why = printable(message.text);
  if (why.empty()) {
    // In another view it is asked again.
    if (message.view != view_.number || !view_.has(from)) return;
    if (!unsure_.insert(from)) return;
    const auto had = host_->report().had;
    if (!unsure_.covers(view_.members) || had != asked_had_) return join();
    why = concat("rank ", self_.value,
                 " was left out while it was late, and cannot return: one of the "
                 "results that it has had, up to operation ",
                 had.empty() ? 0 : had.back().seq.value,
                 ", no other member has, since that operation ended with an error "
                 "there or was passed over; copy the state of another rank and "
                 "reconfigure");
  }
  is_refused_ = true;
  look_.reset();
  host_->on_refused({Code::kPeerLost, why, self_});
}

}  // namespace aikido::membership

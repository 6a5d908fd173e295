// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "reassign/reassigner.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "reassign/mutation.h"

namespace aikido::reassign {
namespace {

// Steps for which late messages about grants are understood.
constexpr uint64_t kRememberedSteps = 64;
// News are worth a message if the expected end has moved by so many items, and by this
// share of an own step. One item that was given or taken is news.
constexpr double kNewsItems = 0.9;
constexpr double kNewsShare = 0.1;

Duration from_ns(double ns) {
  constexpr double kLongest = 1e18;
  return Duration(static_cast<int64_t>(std::clamp(ns, 0.0, kLongest)));
}

}  // namespace

Status check(const ReassignOptions& options) {
  AIKIDO_TRY(check(options.grant));
  if (!(options.behind >= 0))
    return invalid("behind is " + std::to_string(options.behind) +
                   "; it must be 0 or more steps");
  if (options.answer_timeout.count() <= 0)
    return invalid("answer_timeout is " +
                   std::to_string(to_ms(options.answer_timeout)) +
                   " ms; it must be above 0");
  if (!(options.absent_patience >= 0 && options.absent_patience <= 10))
    return invalid("absent_patience is " + std::to_string(options.absent_patience) +
                   "; it must be between 0 and 10 steps");
  return Status::ok();
}

Reassigner::Reassigner(Rank self, HelperGroup group, const ReassignOptions& options)
    : self_(self), options_(options), work_(self), ledger_(self) {
  for (const Rank rank : group.helpers) peers_[rank].is_helper = true;
  for (const Rank rank : group.owners) peers_[rank].is_owner = true;
  AIKIDO_CHECK(!peers_.contains(self), to_string(self), " is in its own helper group");
}

void Reassigner::begin(uint64_t step, std::vector<ItemSpec> items, TimePoint now) {
  AIKIDO_CHECK(step > report_.step && !is_active(), "step ", step,
               " begins after step ", report_.step,
               is_active() ? ", which is not over" : "");
  if (step > kRememberedSteps) ledger_.forget_before(step - kRememberedSteps);
  report_ = {};
  report_.step = step;
  report_.num_begun_with = static_cast<uint32_t>(items.size());
  work_.begin(step, std::move(items));
  request_.reset();
  phase_ = StepPhase::kWorking;
  for (auto& [rank, peer] : peers_) peer.declined_finish.reset();
  absent_until_ = now + from_ns(options_.absent_patience * work_.step_ns(now));
  tell(MessageKind::kProgress, now);
  ask_if_worth(now);
}

Claim Reassigner::claim(TimePoint now) {
  if (!is_active()) return {};
  if (const auto item = work_.claim()) return start(*item, now);
  work_.stop();
  ask_if_worth(now);
  if (const auto until = wait_until(now)) {
    phase_ = StepPhase::kWaiting;
    Claim wait;
    wait.kind = Claim::Kind::kWait;
    wait.until = *until;
    return wait;
  }
  finish(now);
  return {};
}

bool Reassigner::on_claimed(const ItemTable::Claimed& claimed, TimePoint now) {
  if (!is_active()) return true;
  return start(work_.own(claimed.index), now).is_last;
}

Claim Reassigner::start(const NamedItem& item, TimePoint now) {
  work_.start(item, now);
  phase_ = StepPhase::kWorking;
  if (item.id.owner != self_) report_.taken.push_back(item.id);
  tell_if_moved(now);
  ask_if_worth(now);
  Claim claim{Claim::Kind::kItem, item.id, item.spec, false, {}};
  claim.is_last = !work_.has_claimable() && !wait_until(now);
  if (claim.is_last) finish(now);
  return claim;
}

void Reassigner::on_finished(Duration took, TimePoint now) {
  const auto finished = work_.finish(took);
  if (!finished) return;
  const ItemId id = finished->id;
  if (id.owner != self_ && !peers_[id.owner].is_lost) {
    Message done{MessageKind::kDone, 0, id.step, {}, id.owner, id.index, {}};
    send(id.owner, std::move(done), now);
  }
  tell_if_moved(now);
}

std::vector<ItemId> Reassigner::leave(TimePoint now) {
  std::vector<ItemId> left;
  const auto& running = work_.running();
  if (running && running->id.owner != self_) report_.taken.pop_back();
  std::vector<Block> blocks = work_.take_all();
  // From the tail: only the tail of a grant can be given back.
  for (auto block = blocks.rbegin(); block != blocks.rend(); ++block) {
    const auto count = static_cast<uint32_t>(block->items.size());
    if (block->owner != self_) {
      give_back_block(*block, count, 0, now);
      continue;
    }
    for (uint32_t i = 0; i < count; ++i)
      left.push_back({report_.step, self_, block->first + i});
  }
  std::sort(left.begin(), left.end());
  if (is_active()) finish(now);
  return left;
}

void Reassigner::on_outcome(uint64_t step, const RankSet& contributors) {
  ledger_.on_outcome(step, contributors);
}

void Reassigner::on_peer_lost(Rank rank, TimePoint now) {
  const auto it = peers_.find(rank);
  if (it == peers_.end()) return;
  it->second.is_lost = true;
  if (request_ && request_->to == rank) request_.reset();
  ledger_.helper_gone(rank);
  ask_if_worth(now);
}

void Reassigner::on_time(TimePoint now) {
  const auto look = work_.next_look();
  if (look && now >= *look) {
    work_.look(now);
    tell_if_moved(now);
  }
  ask_if_worth(now);
}

std::optional<TimePoint> Reassigner::next_look() const {
  std::optional<TimePoint> next;
  if (!is_active()) return next;
  const auto add = [&](TimePoint time) { next = std::min(next.value_or(time), time); };
  if (request_) add(request_->deadline);
  if (const auto look = work_.next_look()) add(*look);
  return next;
}

bool Reassigner::is_active() const {
  return phase_ == StepPhase::kWorking || phase_ == StepPhase::kWaiting;
}

void Reassigner::finish(TimePoint now) {
  phase_ = StepPhase::kOver;
  request_.reset();
  tell(MessageKind::kStepEnd, now);
}

std::optional<TimePoint> Reassigner::wait_until(TimePoint now) const {
  std::optional<TimePoint> next;
  const auto add = [&](TimePoint time) {
    if (time > now) next = std::min(next.value_or(time), time);
  };
  if (request_) add(request_->deadline);
  if (const auto answers = ledger_.answers_until(report_.step)) add(*answers);
  const bool has_absent =
      std::any_of(peers_.begin(), peers_.end(), [&](const auto& one) {
        const Peer& peer = one.second;
        return peer.is_owner && !peer.is_lost && peer.step < report_.step;
      });
  if (has_absent) add(absent_until_);
  return next;
}

News Reassigner::news(TimePoint now) const {
  News news;
  news.ns_per_cost = work_.ns_per_cost(now);
  news.remaining = from_ns(work_.remaining_ns(now));
  if (!is_active()) return news;
  news.num_unclaimed = work_.table()->unclaimed().count;
  news.unclaimed_cost = static_cast<float>(work_.unclaimed_cost());
  return news;
}

void Reassigner::tell_if_moved(TimePoint now) {
  if (!is_active() || !work_.rate().ns_per_cost()) return;
  const double moved = std::abs(static_cast<double>((now - told_finish_).count()) +
                                work_.remaining_ns(now));
  const double step = work_.step_ns(now);
  const double item = step / std::max<uint32_t>(report_.num_begun_with, 1);
  if (is_rate_told_ && moved <= std::max(kNewsItems * item, kNewsShare * step)) return;
  tell(MessageKind::kProgress, now);
}

void Reassigner::tell(MessageKind kind, TimePoint now) {
  told_finish_ = now + from_ns(work_.remaining_ns(now));
  is_rate_told_ = work_.rate().ns_per_cost().has_value();
  for (const auto& [rank, peer] : peers_)
    if (!peer.is_lost) send(rank, {kind, 0, report_.step, {}, kNoRank, 0, {}}, now);
}

void Reassigner::give_back_block(const Block& block, uint32_t count, uint32_t serial,
                                 TimePoint now) {
  if (count == 0 || peers_[block.owner].is_lost) return;
  const auto size = static_cast<uint32_t>(block.items.size());
  Message back{MessageKind::kGrant, serial, report_.step, {}, block.owner, 0, {}};
  back.first = block.first + size - count;
  back.items.assign(block.items.end() - count, block.items.end());
  send(block.owner, std::move(back), now);
}

void Reassigner::send(Rank to, Message message, TimePoint now) {
  message.news = news(now);
  OutgoingMessage out{to, message.kind, encode(message)};
  ++report_.num_messages;
  report_.num_bytes += out.payload.size();
  messages_.push_back(std::move(out));
}

}  // namespace aikido::reassign

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
//
// Moves of a Reassigner: which rank it asks, and its answers to the messages of others.

#include <algorithm>
#include <string>

#include "reassign/mutation.h"
#include "reassign/reassigner.h"

namespace aikido::reassign {
namespace {

double ns_until(TimePoint time, TimePoint now) {
  return std::max(0.0, static_cast<double>((time - now).count()));
}

std::vector<double> costs_of(std::span<const ItemSpec> items) {
  std::vector<double> costs;
  costs.reserve(items.size());
  for (const ItemSpec& item : items) costs.push_back(item.cost);
  return costs;
}

double sum_of(const std::vector<double>& costs) {
  double sum = 0;
  for (const double cost : costs) sum += cost;
  return sum;
}

}  // namespace

Status Reassigner::on_message(Rank from, std::span<const std::byte> payload,
                              TimePoint now) {
  const auto it = peers_.find(from);
  if (it == peers_.end())
    return {Code::kProtocol,
            to_string(from) + " sends a message about moved work to " +
                to_string(self_) +
                ", and is not in its helper group; check that all "
                "ranks have the same number of helpers and the same hosts",
            from};
  auto decoded = decode_message(payload);
  if (!decoded) return decoded.status().with_context(to_string(from));
  Message& message = *decoded;
  Peer& peer = it->second;
  note_news(peer, message, now);
  const bool is_over = message.step != report_.step || !is_active();
  const GrantKey key{from, message.serial};
  switch (message.kind) {
    case MessageKind::kProgress:
      break;
    case MessageKind::kStepEnd:
      if (message.step == peer.step) peer.is_over = true;
      break;
    case MessageKind::kRequest:
      answer_request(from, message, now);
      break;
    case MessageKind::kCancel:
      answer_cancel(from, message, now);
      break;
    case MessageKind::kGrant:
      AIKIDO_TRY(take_grant(from, std::move(message), now));
      break;
    case MessageKind::kConfirm:
      ledger_.confirm(key);
      break;
    case MessageKind::kRefuse:
      if (!is_broken(Rule::kRefusedComesBack)) take_back(ledger_.refuse(key, is_over));
      break;
    case MessageKind::kDecline:
      note_declined(peer);
      ledger_.end_recall(from, message.serial);
      end_request(from, message.serial);
      break;
    case MessageKind::kDone:
      if (message.owner == self_)
        AIKIDO_TRY(ledger_.done(from, message.step, message.first));
      break;
  }
  ask_if_worth(now);
  return Status::ok();
}

void Reassigner::note_news(Peer& peer, const Message& message, TimePoint now) {
  if (message.step < peer.step) return;
  if (message.step > peer.step) peer.is_over = false;
  peer.step = message.step;
  peer.news = message.news;
  peer.finish = now + message.news.remaining;
}

bool Reassigner::is_in_step(const Peer& peer) const {
  return peer.step == report_.step && !peer.is_over && !peer.is_lost;
}

void Reassigner::expire_request(TimePoint now) {
  if (!request_ || now < request_->deadline) return;
  note_declined(peers_[request_->to]);
  request_.reset();
}

void Reassigner::note_declined(Peer& peer) {
  peer.declined_finish = peer.finish;
  peer.is_declined_early = work_.has_claimable();
}

void Reassigner::end_request(Rank from, uint32_t serial) {
  if (request_ && request_->to == from && request_->serial == serial) request_.reset();
}

void Reassigner::ask_if_worth(TimePoint now) {
  if (!is_active()) return;
  expire_request(now);
  // Without a measured item the rank does not know how long its own items take.
  const bool is_unknown = !work_.rate().ns_per_cost() && report_.num_begun_with > 0;
  if (request_ || is_unknown) return;
  const auto chosen = best_candidate(now);
  if (!chosen) return;
  if (serial_ == 0 || !is_broken(Rule::kOwnSerial)) ++serial_;
  const TimePoint deadline = is_broken(Rule::kRequestExpires)
                                 ? TimePoint::max()
                                 : now + options_.answer_timeout;
  request_ = Request{chosen->rank, serial_, chosen->is_recall, deadline};
  if (chosen->is_recall) ledger_.recall(chosen->rank, report_.step, serial_);
  const auto kind = chosen->is_recall ? MessageKind::kCancel : MessageKind::kRequest;
  send(chosen->rank, {kind, serial_, report_.step, {}, kNoRank, 0, {}}, now);
}

std::optional<Reassigner::Candidate> Reassigner::best_candidate(TimePoint now) const {
  const bool is_idle_soon = !work_.has_claimable();
  if (!is_idle_soon && !work_.has_finished()) return std::nullopt;
  const double behind_ns = options_.behind * work_.step_ns(now);
  const double mine = work_.remaining_ns(now);
  std::optional<Candidate> best;
  for (const auto& [rank, peer] : peers_) {
    if (!is_in_step(peer)) continue;
    const double lag = ns_until(peer.finish, now) - mine;
    if (lag <= 0 || (!is_idle_soon && lag <= behind_ns)) continue;
    if (best && lag <= best->lag_ns) continue;
    if (peer.is_owner && is_gain_from(peer, peer.news, now))
      best = Candidate{rank, false, lag};
    if (!is_idle_soon || !peer.is_helper) continue;
    const std::vector<ItemSpec> open = ledger_.open_items(rank, report_.step);
    if (open.size() < 2) continue;  // the first one has probably begun
    News offered;
    offered.num_unclaimed = static_cast<uint32_t>(open.size()) - 1;
    offered.unclaimed_cost =
        static_cast<float>(sum_of(costs_of(std::span(open).subspan(1))));
    if (is_gain_from(peer, offered, now)) best = Candidate{rank, true, lag};
  }
  return best;
}

bool Reassigner::is_gain_from(const Peer& peer, const News& offered,
                              TimePoint now) const {
  const double their_ns = peer.news.ns_per_cost;
  if (offered.num_unclaimed == 0 || their_ns == 0) return false;
  // A rank that has not computed anything yet may be as fast as the other.
  const double measured = work_.ns_per_cost(now);
  const double own_ns = measured > 0 ? measured : their_ns;
  const double cost =
      static_cast<double>(offered.unclaimed_cost) / offered.num_unclaimed;
  const double their_end = ns_until(peer.finish, now);
  const double mine = work_.remaining_ns(now);
  if (their_end - mine <= options_.grant.least_gain * their_end) return false;
  // An answer to a rank with own work does not bind it when it will be idle soon.
  const bool is_declined =
      peer.declined_finish && !(peer.is_declined_early && !work_.has_claimable());
  if (is_declined &&
      peer.finish <= *peer.declined_finish + scaled(Duration(1), cost * their_ns))
    return false;
  return is_gain({their_end, their_ns}, {mine, own_ns}, cost,
                 static_cast<double>(options_.grant.move_cost.count()));
}

Load Reassigner::load_of(const Peer& peer, TimePoint now) const {
  const double ns = peer.news.ns_per_cost;
  return {ns_until(peer.finish, now), ns > 0 ? ns : work_.ns_per_cost(now)};
}

void Reassigner::answer_request(Rank from, const Message& message, TimePoint now) {
  const Peer& asking = peers_[from];
  const double ns = work_.ns_per_cost(now);
  uint32_t count = 0;
  if (is_active() && message.step == report_.step && asking.is_helper && ns > 0) {
    const ItemRange unclaimed = work_.table()->unclaimed();
    const auto costs =
        costs_of(std::span(work_.items()).subspan(unclaimed.first, unclaimed.count));
    std::vector<Load> others;
    for (const auto& [rank, peer] : peers_)
      if (rank != from && peer.is_helper && is_in_step(peer) &&
          peer.news.ns_per_cost > 0)
        others.push_back(load_of(peer, now));
    GrantQuestion question;
    question.costs = costs;
    question.owner = {work_.committed_ns(now), ns};
    question.helper = load_of(asking, now);
    question.others = others;
    question.deviation = work_.rate().deviation();
    question.is_first = !ledger_.has_granted(from, report_.step);
    question.num_begun_with = report_.num_begun_with;
    count = grant_size(question, options_.grant);
  }
  ItemRange given{0, 0};
  if (count > 0 && is_broken(Rule::kGiveOnce))
    given = {work_.table()->unclaimed().end() - count, count};
  else if (count > 0)
    given = work_.table()->give_tail(count);
  if (given.count == 0) {
    send(from,
         {MessageKind::kDecline, message.serial, message.step, {}, kNoRank, 0, {}},
         now);
    return;
  }
  const auto first = work_.items().begin() + given.first;
  Message grant{
      MessageKind::kGrant,         message.serial, report_.step, {}, self_, given.first,
      {first, first + given.count}};
  report_.num_given += given.count;
  ledger_.add({from, message.serial}, report_.step, given.first, grant.items,
              now + options_.answer_timeout);
  send(from, std::move(grant), now);
  tell_if_moved(now);
}

void Reassigner::answer_cancel(Rank from, const Message& message, TimePoint now) {
  Block* const block = work_.last_block_of(from);
  uint32_t count = 0;
  const double ns = work_.ns_per_cost(now);
  if (is_active() && message.step == report_.step && block && ns > 0) {
    const std::vector<double> costs = costs_of(block->items);
    GrantQuestion question;
    question.costs = costs;
    question.owner = {std::max(0.0, work_.remaining_ns(now) - sum_of(costs) * ns), ns};
    question.helper = load_of(peers_[from], now);
    question.deviation = work_.rate().deviation();
    GrantOptions options = options_.grant;
    options.rule = GrantRule::kEqualFinish;
    count = grant_size(question, options);
  }
  if (count == 0) {
    send(from,
         {MessageKind::kDecline, message.serial, message.step, {}, kNoRank, 0, {}},
         now);
    return;
  }
  const auto& running = work_.running();
  if (is_broken(Rule::kReturnUnbegun) && running && running->id.owner == from &&
      running->id.index + 1 == block->first) {
    block->items.insert(block->items.begin(), running->spec);
    --block->first;
    count = static_cast<uint32_t>(block->items.size());
  }
  give_back_block(*block, count, message.serial, now);
  if (!is_broken(Rule::kReturnedIsGone)) work_.shorten(block, count);
}

Status Reassigner::take_grant(Rank from, Message message, TimePoint now) {
  const bool is_over = message.step != report_.step || !is_active();
  if (message.owner == self_) {
    ledger_.end_recall(from, message.serial);
    end_request(from, message.serial);
    const ItemRange range{message.first, static_cast<uint32_t>(message.items.size())};
    auto back = ledger_.give_back(from, message.step, range, is_over);
    if (!back) return back.status();
    take_back(std::move(*back));
    return Status::ok();
  }
  if (message.owner != from)
    return {Code::kProtocol,
            to_string(from) + " grants items of " + to_string(message.owner) +
                "; only an owner grants its items",
            from};
  end_request(from, message.serial);
  const bool is_late = is_broken(Rule::kStepOfGrant) ? !is_active() : is_over;
  auto answer = is_late ? MessageKind::kRefuse : MessageKind::kConfirm;
  if (is_late && is_broken(Rule::kTakeConfirmed)) answer = MessageKind::kConfirm;
  if (is_late && is_broken(Rule::kRefuseLate)) return Status::ok();
  if (!is_late) work_.add({from, message.first, std::move(message.items)});
  send(from, {answer, message.serial, message.step, {}, kNoRank, 0, {}}, now);
  return Status::ok();
}

void Reassigner::take_back(ReturnedItems returned) {
  if (returned.items.empty()) return;
  report_.num_given -= static_cast<uint32_t>(returned.items.size());
  work_.add({self_, returned.first, std::move(returned.items)});
}

}  // namespace aikido::reassign

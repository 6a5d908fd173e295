// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "engine/peers.h"

#include <utility>

#include "base/text.h"
#include "engine/failures.h"

namespace aikido::engine {

Peers::Peers(const Clock* clock, const Settings& settings, const Own& own)
    : clock_(clock),
      group_(settings.group),
      self_(settings.self),
      marks_(own.marks),
      heartbeats_(settings.heartbeat, settings.size) {
  for (int32_t r = 0; r < settings.size; ++r)
    peers_.emplace_back(clock, own.epoch, &own.marks->announced, &own.marks->acked,
                        settings.window_bytes, settings.log_bytes);
}

void Peers::attach(Rank rank, std::unique_ptr<transport::Link> link) {
  (*this)[rank].attach(std::move(link));
  heartbeats_.add(rank, clock_->now());
}

void Peers::on_lost(Rank rank, const Status& why) {
  Peer& p = (*this)[rank];
  if (p.end.has_left) {
    p.set_lost(p.end.reason_to_leave.value_or(left_member(rank, group_)));
  } else {
    p.set_lost(lost_member(rank, group_, p.end.given_up.value_or(why)));
    last_loss_ = p.end.loss;
  }
  is_anybody_lost_ = true;
  heartbeats_.remove(rank);
}

bool Peers::has_gone(Rank rank) const {
  const Peer& p = (*this)[rank];
  return p.end.has_left || p.is_lost();
}

Status Peers::loss(Rank rank) const {
  const Peer& p = (*this)[rank];
  const auto silence = heartbeats_.silence(rank);
  if (p.is_lost() || !silence) return p.end.loss;
  return silent_member(rank, group_, *silence);
}

Status Peers::death() const {
  for (const Peer& p : peers_)
    if (p.is_lost() && !p.end.has_left) return p.end.loss;
  return {};
}

Status Peers::silence() const {
  const auto silent = heartbeats_.silent();
  return silent.empty() ? Status::ok() : loss(silent.front());
}

std::vector<Rank> Peers::not_called(std::vector<Rank> awaited, uint64_t seq) const {
  std::erase_if(awaited, [&](Rank rank) { return (*this)[rank].called() >= seq; });
  return awaited;
}

const std::optional<Status>& Peers::reason_to_leave() {
  if (!last_loss_ && missed_ != kNoRank && heartbeats_.silence(missed_))
    last_loss_ = loss(missed_);
  return last_loss_;
}

void Peers::send_abort(Seq seq, const Status& why, uint64_t spared) {
  for (int32_t r = 0; r < static_cast<int32_t>(peers_.size()); ++r) {
    if (Rank(r) == self_) continue;
    Peer& p = (*this)[Rank(r)];
    if (seq.value > p.called() + kMaxFailedAhead) {
      p.give_up(Status(Code::kPeerLost, concat("it has not called for more than ",
                                               kMaxFailedAhead, " failed calls")));
    } else {
      p.send_abort(seq, why, spared);
    }
  }
}

void Peers::drop_incoming(uint64_t seq) {
  using transport::FrameKind;
  for (Peer& p : peers_) {
    for (const auto kind : {FrameKind::kContrib, FrameKind::kResult, FrameKind::kData})
      p.drop_incoming(kind, seq);
  }
}

}  // namespace aikido::engine

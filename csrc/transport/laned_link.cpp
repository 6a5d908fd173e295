// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "transport/laned_link.h"

#include <algorithm>
#include <utility>

namespace aikido::transport {
namespace {
// Bit that marks the message numbers of the control lane.
constexpr MessageId kControlBit = MessageId{1} << 63;
}  // namespace

LanedLink::LanedLink(Rank peer, LinkHandler* handler) : peer_(peer), handler_(handler) {
  for (const Lane lane : {Lane::kBulk, Lane::kControl}) {
    end(lane).owner = this;
    end(lane).lane = lane;
  }
}

MessageId LanedLink::send(OutMessage&& message) {
  const Lane lane = lane_for(message.header.kind);
  const MessageId id = end(lane).link->send(std::move(message));
  return lane == Lane::kControl ? id | kControlBit : id;
}

bool LanedLink::send_at_once(const OutMessage& message) {
  return end(lane_for(message.header.kind)).link->send_at_once(message);
}

void LanedLink::let_go(MessageId id) {
  const Lane lane = (id & kControlBit) != 0 ? Lane::kControl : Lane::kBulk;
  end(lane).link->let_go(id & ~kControlBit);
}

void LanedLink::hurry() {
  for (End& e : ends_) e.link->hurry();
}

size_t LanedLink::cancel(MessageId id) {
  const Lane lane = (id & kControlBit) != 0 ? Lane::kControl : Lane::kBulk;
  return end(lane).link->cancel(id & ~kControlBit);
}

void LanedLink::hang_up() {
  for (End& e : ends_) e.link->hang_up();
}

bool LanedLink::is_drained() const {
  return std::all_of(ends_.begin(), ends_.end(),
                     [](const End& e) { return e.link->is_drained(); });
}

void LanedLink::close() {
  for (End& e : ends_) e.link->close();
}

// Note [end of a link]
// If a peer dies, both its lanes end. A peer that leaves ends its bulk lane first, and
// a lane may break alone. In each case the other lane can still contain important
// frames: the last contribution of the departed member, or the ABORT with its reason.
// So the other lane is read to its end. That does not take long, because hang_up() lets
// no new data in.
void LanedLink::on_lane_lost(const Status& why) {
  if (!first_loss_) first_loss_ = why;
  for (End& e : ends_) {
    if (!e.is_lost) return e.link->hang_up();
  }
  handler_->on_link_lost(peer_, *first_loss_);
}

}  // namespace aikido::transport

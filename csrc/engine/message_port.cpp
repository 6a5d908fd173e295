// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "engine/message_port.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "engine/group.h"

namespace aikido::engine {

MessagePort::MessagePort(Group* group, const Clock* clock, const Place& place,
                         std::shared_ptr<MessagePortHandler> handler)
    : group_(group),
      clock_(clock),
      tag_(place.tag),
      self_(place.self),
      handler_(std::move(handler)) {
  for (const Rank rank : place.peers) peers_.emplace_back(rank);
}

void MessagePort::open() {
  watch_group();
  for (Peer& peer : peers_) receive_from(peer);
}

// See Note [end of the group].
void MessagePort::watch_group() {
  collectives::ReceiveCall call;
  call.from = self_.rank;
  call.tag = tag_;
  call.data = self_.slot.data();
  call.bytes = kSlotBytes;
  call.deadline = TimePoint::max();
  call.is_background = true;
  call.on_done = [self = shared_from_this()](const Status& status, Rank) {
    if (status.has_failed()) self->end(status);
  };
  group_->receive(std::move(call));
}

// A message that waits already completes its receive within Group::receive(). The loop
// keeps the stack flat.
void MessagePort::receive_from(Peer& peer) {
  if (peer.is_posting) return;
  peer.is_posting = true;
  while (!has_ended_ && !peer.is_over && !peer.is_receiving && !peer.has_failed) {
    peer.is_receiving = true;
    collectives::ReceiveCall call;
    call.from = peer.rank;
    call.tag = tag_;
    call.data = peer.slot.data();
    call.bytes = kSlotBytes;
    call.deadline = TimePoint::max();
    call.is_background = true;
    call.on_done = [self = shared_from_this(), &peer](const Status& status, Rank) {
      self->on_received(peer, status);
    };
    group_->receive(std::move(call));
    if (std::exchange(peer.has_arrived, false)) take(peer);
    if (waits_for(peer)) break;
  }
  peer.is_posting = false;
}

void MessagePort::on_received(Peer& peer, const Status& status) {
  peer.is_receiving = false;
  if (has_ended_) return;
  if (status.has_failed()) return on_failed(peer, /*is_send=*/false);
  peer.has_arrived = true;
  if (peer.is_posting) return;
  peer.has_arrived = false;
  take(peer);
  receive_from(peer);
}

void MessagePort::take(Peer& peer) {
  uint16_t length = 0;
  std::memcpy(&length, peer.slot.data(), sizeof length);
  if (length == 0) return lose(peer);
  if (length > kMostBytes)
    return end({Code::kProtocol,
                to_string(peer.rank) + " sends a message of " + std::to_string(length) +
                    " bytes in a slot for " + std::to_string(kMostBytes) +
                    "; check that all ranks run the same version",
                peer.rank});
  if (const auto handler = handler_; handler && !peer.is_lost)
    handler->on_message(peer.rank, std::span(peer.slot).subspan(sizeof length, length));
}

void MessagePort::send(Rank to, std::span<const std::byte> bytes) {
  send_bytes(to, bytes, /*is_news=*/false);
}

void MessagePort::send_news(Rank to, std::span<const std::byte> bytes) {
  send_bytes(to, bytes, /*is_news=*/true);
}

void MessagePort::send_bytes(Rank to, std::span<const std::byte> bytes, bool is_news) {
  AIKIDO_CHECK(!bytes.empty() && bytes.size() <= kMostBytes, "a message of ",
               bytes.size(), " bytes");
  const auto it = std::find_if(peers_.begin(), peers_.end(),
                               [to](const Peer& peer) { return peer.rank == to; });
  AIKIDO_CHECK(it != peers_.end(), to_string(to), " is no peer of this port");
  if (has_ended_ || it->is_lost) return;
  auto slot = std::make_shared<Slot>();
  const auto length = static_cast<uint16_t>(bytes.size());
  std::memcpy(slot->data(), &length, sizeof length);
  std::copy(bytes.begin(), bytes.end(), slot->begin() + sizeof length);
  send_slot(*it, {std::move(slot), is_news});
}

void MessagePort::send_slot(Peer& peer, Held message) {
  if (!waits_for(peer) && peer.held.empty()) return post(peer, std::move(message.slot));
  if (message.is_news)
    std::erase_if(peer.held, [](const Held& each) { return each.is_news; });
  peer.held.push_back(std::move(message));
  if (!retry_) retry_ = clock_->now() + kRetryInterval;
  if (peer.held.size() > kMostHeld) give_up(peer);
}

void MessagePort::post(Peer& peer, std::shared_ptr<Slot> slot) {
  collectives::SendCall call;
  call.to = peer.rank;
  call.tag = tag_;
  call.data = slot->data();
  call.bytes = kSlotBytes;
  call.priority = kMaxPriority;
  call.urgency = transport::Urgency::kServed;
  call.deadline = TimePoint::max();
  call.on_done = [self = shared_from_this(), &peer](const Status& status, Rank) {
    if (status.has_failed()) self->on_failed(peer, /*is_send=*/true);
  };
  call.keep_alive = std::move(slot);
  group_->send(std::move(call));
}

// After a failed send it is not known if the peer has the message, so no other message
// may follow it.
void MessagePort::on_failed(Peer& peer, bool is_send) {
  if (has_ended_) return;
  if (is_gone(peer)) return lose(peer);
  if (is_silent(peer)) {
    if (is_send) return give_up(peer);
  } else {
    // The peer has given up a message, or the group ends within this turn.
    peer.has_failed = true;
  }
  if (!retry_) retry_ = clock_->now() + kRetryInterval;
}

// The peer is silent. It learns of this end when it is heard again.
void MessagePort::give_up(Peer& peer) {
  if (peer.is_lost) return;
  peer.held.assign(1, {std::make_shared<Slot>()});
  if (!retry_) retry_ = clock_->now() + kRetryInterval;
  tell_lost(peer);
}

// Nothing more comes from the peer.
void MessagePort::lose(Peer& peer) {
  peer.is_over = true;
  peer.held.clear();
  tell_lost(peer);
}

void MessagePort::tell_lost(Peer& peer) {
  if (std::exchange(peer.is_lost, true)) return;
  if (const auto handler = handler_) handler->on_peer_lost(peer.rank);
}

void MessagePort::close() {
  handler_.reset();
  if (has_ended_) return;
  for (Peer& peer : peers_)
    if (!std::exchange(peer.is_lost, true)) send_slot(peer, {std::make_shared<Slot>()});
  post(self_, std::make_shared<Slot>());
}

void MessagePort::end(const Status& why) {
  if (std::exchange(has_ended_, true)) return;
  retry_.reset();
  const auto handler = std::exchange(handler_, nullptr);
  if (handler) handler->on_end(why);
}

void MessagePort::on_time(TimePoint now) {
  if (!retry_ || now < *retry_) return;
  retry_.reset();
  for (Peer& peer : peers_) {
    if (std::exchange(peer.has_failed, false)) tell_lost(peer);
    while (!has_ended_ && !peer.held.empty() && !waits_for(peer)) {
      auto slot = std::move(peer.held.front().slot);
      peer.held.pop_front();
      post(peer, std::move(slot));
    }
    receive_from(peer);
    if (!peer.held.empty() || (!peer.is_over && !peer.is_receiving))
      retry_ = now + kRetryInterval;
  }
  if (has_ended_) retry_.reset();
}

bool MessagePort::is_gone(const Peer& peer) const {
  return group_->peers().has_gone(peer.rank);
}

bool MessagePort::is_silent(const Peer& peer) const {
  return group_->peers().heartbeats().is_silent(peer.rank);
}

bool MessagePort::waits_for(const Peer& peer) const {
  return is_silent(peer) && !is_gone(peer);
}

}  // namespace aikido::engine

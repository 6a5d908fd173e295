// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Port through which a member exchanges short messages with some members of its group,
// beside the calls of the user. A receive is always posted for each of them, and has no
// deadline, so a message needs no call of its receiver. The messages of a pair arrive
// once, in the order of sending. A message wakes its receiver, and the posted receives
// do not make other data wake it. Progress thread.
//
// Note [slots]
// A receive of the mailbox takes messages of exactly its size. So each message fills a
// slot of kSlotBytes: its length as u16 (little endian), its bytes, and zeros. Length 0
// is the goodbye of a port: nothing follows it. A closed port discards messages until
// the other goodbye. So no message stays in the memory of a member that has closed its
// port. The next port has another tag.
//
// Note [end of the group]
// At the end of a group all receives fail. But a receive from a silent member has
// failed before. So the port also has a receive from its own rank, which fails only
// with the group. close() ends it with a message to the own rank.

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "base/types.h"

namespace aikido::engine {

class Group;

// Events of a port.
class MessagePortHandler {
 public:
  virtual ~MessagePortHandler() = default;
  // `bytes` is valid during the call.
  virtual void on_message(Rank from, std::span<const std::byte> bytes) = 0;
  // Nothing more comes from `rank`, and nothing reaches it. Once for each peer.
  virtual void on_peer_lost(Rank rank) = 0;
  // The group has ended. Nothing follows.
  virtual void on_end(const Status& why) = 0;
};

// Ends of a peer, and what they cause:
//
//     event                                  handler       later messages to the peer
// - its link breaks, or it leaves          on_peer_lost  dropped
// - its goodbye                            on_peer_lost  dropped
// - it has given up a message              on_peer_lost  dropped
// - it is silent (Heartbeats)              -             held until it is heard again
// - silent with a message on its way to    on_peer_lost  dropped; a goodbye as soon as
//   it, or with kMostHeld messages held                  it is heard again
//   (of all news held only the last counts)
class MessagePort final : public std::enable_shared_from_this<MessagePort> {
 public:
  static constexpr size_t kSlotBytes = 512;
  static constexpr size_t kMostBytes = kSlotBytes - sizeof(uint16_t);
  static constexpr size_t kMostHeld = 1024;
  static constexpr Duration kRetryInterval = std::chrono::milliseconds(100);

  struct Place {
    Rank self;
    int32_t tag = 0;          // of this port alone
    std::vector<Rank> peers;  // without `self`
  };
  // `clock` and `group` must outlive the end of the port. That is close(), or on_end()
  // at the end of the group. The port owns `handler` until then.
  MessagePort(Group* group, const Clock* clock, const Place& place,
              std::shared_ptr<MessagePortHandler> handler);

  // Posts the receives. Call it once. The handler may be called within.
  void open();
  // Requires: 1 to kMostBytes bytes, and `to` is a peer. Dropped if `to` is lost. The
  // handler may learn within the call that a peer is lost, or that the group has ended.
  void send(Rank to, std::span<const std::byte> bytes);
  // Sends a message that makes earlier news superfluous. A silent peer gets only the
  // last one, so news never fill kMostHeld. Otherwise as send().
  void send_news(Rank to, std::span<const std::byte> bytes);
  // Says goodbye to all peers. The handler is not called any more.
  void close();

  // Retries what a silent peer has interrupted. Call it at next_look().
  void on_time(TimePoint now);
  std::optional<TimePoint> next_look() const { return retry_; }

 private:
  using Slot = std::array<std::byte, kSlotBytes>;
  struct Held {
    std::shared_ptr<Slot> slot;
    bool is_news = false;
  };
  struct Peer {
    explicit Peer(Rank r) : rank(r) {}
    Rank rank;
    bool is_lost = false;       // gets no more messages
    bool is_over = false;       // sends no more messages
    bool has_failed = false;    // a send or receive, for no reason that is known here
    bool is_receiving = false;  // a receive is posted
    bool is_posting = false;    // within receive_from()
    bool has_arrived = false;   // a message came within receive_from()
    Slot slot{};
    std::deque<Held> held;  // while the peer is silent
  };

  void watch_group();
  void receive_from(Peer& peer);
  void on_received(Peer& peer, const Status& status);
  void take(Peer& peer);
  void send_bytes(Rank to, std::span<const std::byte> bytes, bool is_news);
  void send_slot(Peer& peer, Held message);
  void post(Peer& peer, std::shared_ptr<Slot> slot);
  void on_failed(Peer& peer, bool is_send);
  void give_up(Peer& peer);
  void lose(Peer& peer);
  void tell_lost(Peer& peer);
  void end(const Status& why);
  bool is_gone(const Peer& peer) const;
  bool is_silent(const Peer& peer) const;
  bool waits_for(const Peer& peer) const;

  Group* const group_;
  const Clock* const clock_;
  const int32_t tag_;
  Peer self_;
  std::deque<Peer> peers_;                       // addresses are stable
  std::shared_ptr<MessagePortHandler> handler_;  // null after the end
  bool has_ended_ = false;                       // with the group
  std::optional<TimePoint> retry_;
};

}  // namespace aikido::engine

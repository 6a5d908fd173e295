// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Tagged messages between two members, matched in the order of sending within a source
// and tag. Small messages are sent at once and wait at the receiver. Larger messages
// are announced and wait at the sender until their receive is posted. So they go
// straight into its memory. Two kinds of small messages are announced as well: messages
// beyond the window of waiting bytes at the receiver, and messages that are less urgent
// than an earlier message to the same member. So the receiver learns of all messages in
// their order, and an overtaking message need not wait there. A member may send to
// itself. If a message fits several receives, the receive that was posted first takes
// it. A receive from any source takes the message that came first. The cost of a call
// or frame grows with the logarithm of the number of waiting messages. Progress thread
// only.

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/buffer_pool.h"
#include "base/recycler.h"
#include "collectives/operation.h"

namespace aikido::collectives {

// End of a send or receive; `peer` is the source of the received message.
using MessageCompletion = std::function<void(const Status&, Rank peer)>;

struct SendCall {
  Rank to;
  int32_t tag = 0;
  const std::byte* data = nullptr;
  size_t bytes = 0;
  Priority priority = 0;
  TimePoint deadline{};
  // Urgency of the data for a member that waits for other data, or for none.
  transport::Urgency urgency = transport::Urgency::kNone;
  MessageCompletion on_done;
  std::shared_ptr<void> keep_alive;  // as in LocalCall
  std::shared_ptr<Hold> hold;
};

struct ReceiveCall {
  std::optional<Rank> from;  // empty: from anyone
  int32_t tag = 0;
  std::byte* data = nullptr;
  size_t bytes = 0;
  TimePoint deadline{};
  // Posted all the time, so it says nothing about the need for data. The urgency of its
  // messages does.
  bool is_background = false;
  MessageCompletion on_done;
  std::shared_ptr<void> keep_alive;
};

class Mailbox {
 public:
  explicit Mailbox(OperationHost* host);
  ~Mailbox();

  void send(SendCall&& call);
  void receive(ReceiveCall&& call);

  // For frames of the kinds kP2p...; as Operation::place and arrived.
  Result<std::byte*> place(Rank from, const transport::FrameHeader& header);
  void arrived(Rank from, const transport::FrameHeader& header);

  // Ends the calls that depend on `peer` alone. Complete messages stay.
  void on_peer_lost(Rank peer, const Status& why);
  // Ends the calls that wait for `peer`; returns true if there were any. Announced
  // messages of `peer` stay, because it may come back.
  bool on_peer_silent(Rank peer, const Status& why);
  // Ends the receives from `from` (kNoRank: from anyone) without a message; returns
  // true if there were any.
  bool fail_receives(Rank from, const Status& why);
  void fail_all(const Status& why);
  // Ends the calls past their deadline. `silent`: reason why one member sends nothing,
  // or ok; a receive from anyone ends with it. Returns true if such a receive ended.
  bool on_time(TimePoint now, const Status& silent);
  std::optional<TimePoint> next_look() const;
  // True if messages still have to leave, or matched messages still have to arrive.
  bool is_busy() const;
  // True if some receive has found no message yet, without those of the background.
  bool has_receives() const {
    return std::any_of(receives_.begin(), receives_.end(),
                       [](const auto& entry) { return !entry.second.is_background; });
  }

 private:
  class Outbound;
  // A message on its way to this member.
  struct Inbound {
    int32_t tag = 0;
    size_t total = 0;
    size_t got = 0;
    bool is_announced = false;   // waits for our request
    Code withdrawn = Code::kOk;  // not ok: it will not come, for this reason
    Buffer early;
    uint64_t arrival = 0;  // while it waits for its receive: its key in waiting_
    std::shared_ptr<Outbound> local;     // sent by this member to itself
    std::optional<ReceiveCall> receive;  // matched
  };
  struct PeerMessages {
    explicit PeerMessages(const Recycler& recycler) : inbound(recycler) {}
    uint64_t next_sent = 1;  // number of our next message to that peer
    uint64_t next_seen = 1;  // first message from that peer not seen yet
    // Bytes of messages that were sent unasked, since the beginning. To that peer:
    // sent, and taken there as far as reported. From that peer: taken here, and
    // reported.
    uint64_t sent = 0, taken_there = 0;
    Priority most_urgent = kMinPriority;  // of our messages to that peer
    uint64_t taken = 0, told_taken = 0;
    uint64_t come = 0;  // unasked, complete or not
    RecycledMap<uint64_t, Inbound> inbound;
  };

  // Key that matches receives and messages: source (kNoRank for any), tag, and order of
  // posting or of arrival.
  using Place = std::tuple<Rank, int32_t, uint64_t>;
  template <class Places>
  static auto first_at(Places& places, Rank from, int32_t tag);

  PeerMessages& source(Rank rank) { return sources_[static_cast<size_t>(rank.value)]; }
  transport::OutMessage data_of(const SendCall& call, uint64_t number) const;
  Status check_window(Rank from, const transport::FrameHeader& header) const;
  static bool is_most_urgent(PeerMessages& there, Priority priority);
  void match(Rank from);
  std::optional<ReceiveCall> take_receive(Rank from, int32_t tag);
  void wait(Rank from, uint64_t number, Inbound& in);
  void stop_waiting(Rank from, Inbound& in);
  std::vector<ReceiveCall> take_receives(
      const std::function<bool(Rank from, const ReceiveCall&)>& is_meant);
  std::vector<std::shared_ptr<Outbound>> sends_to(Rank peer) const;
  void end(ReceiveCall& receive, const Status& status, Rank from);
  void forget_deadline(TimePoint deadline);
  std::string what_waits(Rank from) const;
  void note_taken(Rank from, uint64_t bytes);
  void begin(Rank from, uint64_t number, Inbound& in);
  void complete(Rank from, uint64_t number, const Status& status);
  void withdraw(Rank from, const transport::FrameHeader& header);
  void give_up(Rank from, uint64_t number, Inbound& in, const Status& why);
  void send_control(Rank to, transport::FrameKind kind, uint64_t number, int32_t tag,
                    size_t total, Code code = Code::kOk);

  OperationHost* host_;
  std::vector<PeerMessages> sources_;
  RecycledMap<Place, ReceiveCall> receives_;  // without a message
  // Messages without a receive, each under its source and under kNoRank. The value is
  // the source and the number of the message there.
  RecycledMap<Place, std::pair<Rank, uint64_t>> waiting_;
  uint64_t next_posted_ = 1;
  uint64_t next_arrival_ = 1;
  RecycledMap<std::pair<Rank, uint64_t>, std::shared_ptr<Outbound>> outbound_;
  // Deadlines of all sends and receives that are not over.
  std::multiset<TimePoint, std::less<>, Recycling<TimePoint>> deadlines_;
};

}  // namespace aikido::collectives

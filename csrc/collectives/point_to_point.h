// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Tagged messages between two members, matched in the order of sending within a source
// and tag. Small ones are sent at once and wait at the receiver; larger ones are
// announced and wait at the sender until their receive is posted, so that they go
// straight into its memory. So do small ones when as many wait at the receiver as the
// window allows, and those that are less urgent than one that went to the same member:
// so the receiver hears of all in their order, and what overtakes them need not wait
// there. A member may send to itself. Of the receives that a message fits the one that
// was posted first takes it, and a receive from anyone takes what came first.
// What a call or a frame costs grows with the logarithm of what waits. Progress thread
// only.

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

// The end of a send or receive; `peer` is the source of what was received.
using MessageCompletion = std::function<void(const Status&, Rank peer)>;

struct SendCall {
  Rank to;
  int32_t tag = 0;
  const std::byte* data = nullptr;
  size_t bytes = 0;
  Priority priority = 0;
  TimePoint deadline{};
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
  MessageCompletion on_done;
  std::shared_ptr<void> keep_alive;
};

class Mailbox {
 public:
  explicit Mailbox(OperationHost* host);
  ~Mailbox();

  void send(SendCall&& call);
  void receive(ReceiveCall&& call);

  // Frames of the kinds kP2p...; as Operation::place and arrived.
  Result<std::byte*> place(Rank from, const transport::FrameHeader& header);
  void arrived(Rank from, const transport::FrameHeader& header);

  // Ends what depends on `peer` alone. Messages that have come whole stay.
  void on_peer_lost(Rank peer, const Status& why);
  // Ends the calls that wait for `peer`, and returns whether there were any. What it
  // has announced stays: it may come back.
  bool on_peer_silent(Rank peer, const Status& why);
  // Ends the receives from `from` (kNoRank: from anyone) that have found no message,
  // and returns whether there were any.
  bool fail_receives(Rank from, const Status& why);
  void fail_all(const Status& why);
  // Ends what is past its deadline. `silent`: why one member sends nothing, or ok; a
  // receive from anyone ends with it. Returns whether one did.
  bool on_time(TimePoint now, const Status& silent);
  std::optional<TimePoint> next_look() const;
  // Messages are to leave, or have found their receives here and are still to come.
  bool is_busy() const;
  // A receive has found no message yet.
  bool has_receives() const { return !receives_.empty(); }

 private:
  class Outbound;
  // A message on its way to us.
  struct Inbound {
    int32_t tag = 0;
    size_t total = 0;
    size_t got = 0;
    bool is_announced = false;   // waits for our word
    Code withdrawn = Code::kOk;  // not ok: it will not come, and why not
    Buffer early;
    uint64_t arrival = 0;  // while it waits for its receive: its key in waiting_
    std::shared_ptr<Outbound> local;     // sent by ourselves
    std::optional<ReceiveCall> receive;  // matched
  };
  struct Source {
    explicit Source(const Recycler& recycler) : inbound(recycler) {}
    uint64_t next_sent = 1;  // number of our next message to that peer
    uint64_t next_seen = 1;  // first message from that peer not seen yet
    // Bytes of messages that went unasked, since the beginning: sent to that peer,
    // taken there as far as we were told; taken here, and told.
    uint64_t sent = 0, taken_there = 0;
    Priority most_urgent = kMinPriority;  // of our messages to that peer
    uint64_t taken = 0, told_taken = 0;
    uint64_t come = 0;  // unasked, whole or not
    RecycledMap<uint64_t, Inbound> inbound;
  };

  // Where receives and messages meet, by source (kNoRank for anyone) and tag, and in
  // which order: of posting, or of arrival.
  using Place = std::tuple<Rank, int32_t, uint64_t>;
  template <class Places>
  static auto first_at(Places& places, Rank from, int32_t tag);

  Source& source(Rank rank) { return sources_[static_cast<size_t>(rank.value)]; }
  transport::OutMessage data_of(const SendCall& call, uint64_t number) const;
  Status check_window(Rank from, const transport::FrameHeader& header) const;
  static bool is_most_urgent(Source& there, Priority priority);
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
  std::vector<Source> sources_;
  RecycledMap<Place, ReceiveCall> receives_;  // that have found no message yet
  // Messages that have found no receive yet, each under its source and under kNoRank:
  // the source and the number of the message there.
  RecycledMap<Place, std::pair<Rank, uint64_t>> waiting_;
  uint64_t next_posted_ = 1;
  uint64_t next_arrival_ = 1;
  RecycledMap<std::pair<Rank, uint64_t>, std::shared_ptr<Outbound>> outbound_;
  // Of all sends and receives that are not over.
  std::multiset<TimePoint, std::less<>, Recycling<TimePoint>> deadlines_;
};

}  // namespace aikido::collectives

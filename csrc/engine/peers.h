// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Members of a group as one of them sees them: their links, and the reasons why a
// member cannot be reached. A member is lost when its connection breaks. It has left
// when its connection ends after a goodbye. It is silent while nothing comes from it.
// Progress thread.

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "base/types.h"
#include "engine/heartbeats.h"
#include "engine/leave_grace.h"
#include "engine/peer.h"
#include "engine/watermarks.h"
#include "transport/link.h"

namespace aikido::engine {

class Peers {
 public:
  // Limit of the failed calls that a member has not called, for example because it is
  // stopped.
  static constexpr uint64_t kMaxFailedAhead = 1 << 14;

  struct Settings {
    std::string group;  // name in messages
    Rank self;
    int32_t size = 1;
    HeartbeatOptions heartbeat;
    uint64_t window_bytes = 0;  // see Peer
    uint64_t log_bytes = 0;     // see Peer
  };
  // Values of the local member that its frames report. They outlive the peers.
  struct Own {
    const uint32_t* epoch;
    const Watermarks* marks;
  };
  // `clock` must outlive the peers.
  Peers(const Clock* clock, const Settings& settings, const Own& own);

  // The local rank has a Peer too, without a link. Addresses are stable.
  Peer& operator[](Rank rank) { return peers_[static_cast<size_t>(rank.value)]; }
  const Peer& operator[](Rank rank) const {
    return peers_[static_cast<size_t>(rank.value)];
  }
  auto begin() { return peers_.begin(); }
  auto end() { return peers_.end(); }
  auto begin() const { return peers_.begin(); }
  auto end() const { return peers_.end(); }
  Heartbeats& heartbeats() { return heartbeats_; }
  const Heartbeats& heartbeats() const { return heartbeats_; }
  LeaveGrace& grace() { return grace_; }
  const LeaveGrace& grace() const { return grace_; }

  void attach(Rank rank, std::unique_ptr<transport::Link> link);
  // The connection to `rank` has ended for the reason `why`. Requires: `rank` was not
  // lost before.
  void on_lost(Rank rank, const Status& why);

  bool is_anybody_lost() const { return is_anybody_lost_; }
  // Nothing will come from `rank`: it has left, or is lost.
  bool has_gone(Rank rank) const;
  // Reason why nothing comes from `rank`: it is lost, or silent. Ok: neither holds.
  Status loss(Rank rank) const;
  // Loss of the first member that is lost without a goodbye. Ok: there is none.
  Status death() const;
  // Reason of the first silent member. Ok: there is none.
  Status silence() const;
  // Reason why no message can be exchanged with `rank`. kNoRank stands for any member:
  // then a death counts, and an orderly leave does not.
  Status unreachable(Rank rank) const { return rank == kNoRank ? death() : loss(rank); }
  // True if unreachable() is ok, without building its text. Called for each message.
  bool is_reachable(Rank rank) const {
    if (is_anybody_lost_) return unreachable(rank).is_ok();
    return rank == kNoRank || !heartbeats_.is_silent(rank);
  }
  // Highest collective that `rank` is known to have called, and collective up to which
  // it needs no result. Also for the local member.
  uint64_t called_by(Rank rank) const {
    return rank == self_ ? marks_->called : (*this)[rank].called();
  }
  uint64_t acked_by(Rank rank) const {
    return rank == self_ ? marks_->acked : (*this)[rank].acked();
  }
  // Ranks of `awaited` that have not called collective `seq`, as far as known.
  std::vector<Rank> not_called(std::vector<Rank> awaited, uint64_t seq) const;

  // Sends an abort to all other members (Peer::send_abort). A member that has not
  // called for more than kMaxFailedAhead failed calls is given up.
  void send_abort(Seq seq, const Status& why, uint64_t spared = 0);
  // Discards the payloads of collective `seq` that are being received.
  void drop_incoming(uint64_t seq);

  // The last loss of a member, or of a call that failed for a loss. Another member may
  // report a loss before the connection ends here. nullopt: none since forgive().
  const std::optional<Status>& last_loss() const { return last_loss_; }
  void note_loss(const Status& why) { last_loss_ = why; }
  void forgive() { last_loss_.reset(); }
  // A send or receive failed because `rank` is lost or silent.
  void note_missed(Rank rank) { missed_ = rank; }
  // Reason of the local member for leaving: the last loss, otherwise the silence of
  // the missed member. nullopt: there is no reason. The first answer stays.
  const std::optional<Status>& reason_to_leave();

 private:
  const Clock* const clock_;
  const std::string group_;
  const Rank self_;
  const Watermarks* const marks_;
  std::deque<Peer> peers_;  // by rank
  Heartbeats heartbeats_;
  LeaveGrace grace_;
  bool is_anybody_lost_ = false;
  std::optional<Status> last_loss_;
  Rank missed_ = kNoRank;
};

}  // namespace aikido::engine

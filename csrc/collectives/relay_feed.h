// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Who gets which bytes of a broadcast from its root, and passes them on (our design). A
// root that sends all to everybody sends n - 1 times as much as anybody receives, and
// its link is what all wait for. So it hands out pieces: each goes to one receiver, the
// relay of it, which passes it on to the others. Where a broadcast is a scatter and an
// allgather (Thakur, Rabenseifner and Gropp, 2005, section 4.2), its bytes are divided
// likewise, but evenly and at the start: all wait for a rank that comes late, or whose
// uplink is slow. Here a relay gets more once it has passed on what it had, so a slow
// one gets little, and one that joins later has what it missed from the root. Pure; one
// thread.

#include <cstddef>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "base/rank_set.h"
#include "collectives/relay_pace.h"

namespace aikido::collectives {

class RelayFeed {
 public:
  // What a relay has and has not passed on: so many pieces, for its link to stay busy
  // while we are told what has left, but no more than half of an even share. A slower
  // one than the fastest has that much less, so that all need the same time for what
  // they have; one that is not known yet has kUnknownAhead pieces, and what it has
  // passed on. What it passes on in kWorth it may have in any case, up to an even share
  // and twice what it has ever passed on without a pause: where ranks share processors
  // each turn that is spared counts.
  static constexpr size_t kMostAhead = 8, kUnknownAhead = 2;
  static constexpr Duration kWorth = std::chrono::milliseconds(4);
  // A receiver's link is idle for what its relays lag behind, a piece each: that is
  // this share of all, if such pieces are no smaller than kLeastPiece.
  static constexpr size_t kLagShare = 128;
  static constexpr size_t kLeastPiece = 16 << 10;
  // Until all have joined, who may miss what goes now, a relay has no more than what it
  // has passed on, or would have at its pace, and this.
  static constexpr size_t kFirstPiece = 8 << 10;

  struct Piece {
    Rank to;
    size_t begin, end;  // bytes
    // To whom `to` passes it on. Empty: what it has missed, or nobody else is there.
    RankSet pass_to;
    bool was_missed;  // not to be told of by on_passed()
  };

  // Of `bytes` to so many receivers, ranks of a world of `world_size`, in pieces of
  // `chunk_bytes` at most.
  RelayFeed(int32_t world_size, int32_t num_receivers, size_t bytes,
            size_t chunk_bytes);

  // From now on it gets all, and passes on. Requires: it has not joined; `pace`, which
  // is updated, outlives the feed.
  void join(Rank rank, RelayPace* pace);
  // The next piece that may go; empty: none until somebody joins, or has passed one on.
  std::optional<Piece> next(TimePoint now);
  // So many bytes that it got, of all pieces, have left it again. False: that is less
  // than it has said before, or more than it has.
  [[nodiscard]] bool on_passed(Rank relay, size_t bytes, TimePoint now);
  // What it had missed has left us.
  void on_caught_up(Rank rank) { at(rank).is_behind = false; }

  // All is handed out to those that have joined.
  bool is_handed_out() const;
  // It has pieces that it has not passed on, or has not got what it had missed.
  bool is_busy(Rank rank) const {
    return at(rank).handed > at(rank).passed || at(rank).is_behind;
  }

 private:
  struct Relay {
    size_t missed = 0;       // bytes from the first, still to be handed to it
    bool is_behind = false;  // they have not left us
    size_t handed = 0;       // bytes of its pieces
    size_t passed = 0;
    // Since it last got something while it had nothing, or nobody to pass it on to: so
    // much had been handed to it then.
    TimePoint busy_since{};
    size_t handed_before = 0;
    bool was_alone = false;  // at its last piece
    RelayPace* pace = nullptr;
    double rate() const { return pace == nullptr ? 0 : pace->bytes_per_second(); }
  };
  Relay& at(Rank rank) { return relays_[static_cast<size_t>(rank.value)]; }
  const Relay& at(Rank rank) const { return relays_[static_cast<size_t>(rank.value)]; }

  bool have_all_joined() const { return joined_.count() == num_receivers_; }
  size_t next_bytes(const Relay& relay, double fastest, TimePoint now) const;
  size_t most_ahead(const Relay& relay, double fastest) const;

  int32_t num_receivers_;
  size_t bytes_;
  size_t chunk_bytes_;
  size_t piece_bytes_, first_piece_;
  size_t begin_ = 0;  // of the next piece
  std::optional<TimePoint> began_at_;
  RankSet joined_;
  std::vector<Relay> relays_;  // by rank
};

}  // namespace aikido::collectives

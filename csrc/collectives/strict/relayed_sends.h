// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Relayed sends of a broadcast (our design): the root hands out pieces, and the
// receivers pass them on. Without relays the root sends n - 1 times as much as any
// member receives, and all wait for its link. With relays each piece goes to one
// receiver, its relay, which passes it on to the others. A scatter followed by an
// allgather (Thakur, Rabenseifner and Gropp, 2005, section 4.2) divides the bytes
// likewise, but evenly and at the start: then all wait for a rank that comes late or
// has a slow uplink. Here a relay gets more pieces after it has passed on its pieces.
// So a slow relay gets little. A member that joins later gets its missed bytes from the
// root. Pure; one thread.

#include <cstddef>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "base/rank_set.h"
#include "collectives/strict/relay_pace.h"

namespace aikido::collectives {

class RelayedSends {
 public:
  // Limit of the pieces that a relay has and has not passed on. kMostAhead pieces keep
  // its link busy until the news that bytes have left, but not more than half of an
  // even share. A relay that is slower than the fastest relay has proportionally less,
  // so that all need the same time. A relay of unknown pace has kUnknownAhead pieces,
  // plus the bytes that it has passed on. In any case a relay may have the bytes that
  // it passes on in kWorth, up to an even share and twice the most that it has passed
  // on without a pause: if ranks share processors, each saved turn counts.
  static constexpr size_t kMostAhead = 8, kUnknownAhead = 2;
  static constexpr Duration kWorth = std::chrono::milliseconds(4);
  // The link of a receiver is idle while its relays lag behind by one piece each. That
  // is 1/kLagShare of all bytes, if such pieces are not smaller than kLeastPiece.
  static constexpr size_t kLagShare = 128;
  static constexpr size_t kLeastPiece = 16 << 10;
  // Members that join later miss the pieces that are handed out now. So until all
  // members have joined, a relay gets at most this many bytes more than it has passed
  // on, or would have passed on at its pace.
  static constexpr size_t kFirstPiece = 8 << 10;

  struct Piece {
    Rank to;
    size_t begin, end;  // bytes
    // Members to which `to` passes the piece on. Empty: `to` had missed the piece, or
    // no other member has joined.
    RankSet pass_to;
    bool was_missed;  // true: on_passed() does not count it
  };

  // A broadcast of `bytes` bytes to `num_receivers` ranks of a world of `world_size`,
  // in pieces of at most `chunk_bytes`.
  RelayedSends(int32_t world_size, int32_t num_receivers, size_t bytes,
               size_t chunk_bytes);

  // From now on `rank` gets all pieces, and passes pieces on. Requires: it has not
  // joined; `pace`, which is updated, outlives this object.
  void join(Rank rank, RelayPace* pace);
  // Next piece to send; nullopt: none until a member joins, or has passed a piece on.
  std::optional<Piece> next(TimePoint now);
  // `bytes` bytes of all pieces of `relay` have left it again. Returns false if that is
  // less than it has reported before, or more than it has.
  [[nodiscard]] bool on_passed(Rank relay, size_t bytes, TimePoint now);
  // The bytes that `rank` had missed have left the root.
  void on_caught_up(Rank rank) { at(rank).is_behind = false; }

  // True if all bytes are handed out to the members that have joined.
  bool is_handed_out() const;
  // True if `rank` has pieces that it has not passed on, or lacks bytes that it missed.
  bool is_busy(Rank rank) const {
    return at(rank).handed > at(rank).passed || at(rank).is_behind;
  }

 private:
  struct Relay {
    size_t missed = 0;       // bytes from the first that must still be handed to it
    bool is_behind = false;  // these bytes have not left the root
    size_t handed = 0;       // bytes of its pieces
    size_t passed = 0;
    // Time of the last piece that came while it had no other piece to pass on, or no
    // member to pass it to; and the bytes handed to it before.
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

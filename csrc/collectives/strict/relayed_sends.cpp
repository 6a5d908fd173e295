// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "collectives/strict/relayed_sends.h"

#include <algorithm>
#include <utility>

namespace aikido::collectives {

namespace {

double seconds(Duration time) {
  return std::chrono::duration<double>(time).count();
}

}  // namespace

RelayedSends::RelayedSends(int32_t world_size, int32_t num_receivers, size_t bytes,
                           size_t chunk_bytes)
    // A receiver idles while its relays lag by one piece each, so pieces get smaller
    // with more receivers; see kLagShare.
    : num_receivers_(num_receivers),
      bytes_(bytes),
      chunk_bytes_(chunk_bytes),
      piece_bytes_(std::clamp(
          bytes / (kLagShare * static_cast<size_t>(std::max(1, num_receivers - 1))),
          std::min(kLeastPiece, chunk_bytes), chunk_bytes)),
      first_piece_(std::min(kFirstPiece, chunk_bytes)),
      joined_(world_size),
      relays_(static_cast<size_t>(world_size)) {}

void RelayedSends::join(Rank rank, RelayPace* pace) {
  joined_.insert(rank);
  at(rank).missed = begin_;
  at(rank).is_behind = begin_ > 0;
  at(rank).pace = pace;
}

bool RelayedSends::is_handed_out() const {
  return begin_ == bytes_ && std::all_of(relays_.begin(), relays_.end(),
                                         [](const Relay& r) { return r.missed == 0; });
}

// A member that still misses bytes is no relay, because its pieces would wait behind
// these bytes. The first member to join never misses any.
std::optional<RelayedSends::Piece> RelayedSends::next(TimePoint now) {
  std::optional<Rank> behind;
  std::optional<Rank> least;
  size_t piece = 0;
  double fastest = 0;
  for (const Relay& r : relays_) fastest = std::max(fastest, r.rate());
  joined_.for_each([&](Rank r) {
    const Relay& relay = at(r);
    if (relay.missed > 0) behind = behind.value_or(r);
    // The relay with the fewest outstanding bytes is next.
    if (relay.is_behind) return;
    const auto key = [this](Rank of) {
      return std::pair(at(of).handed - at(of).passed, at(of).handed);
    };
    if (least && key(r) >= key(*least)) return;
    const size_t bytes = next_bytes(relay, fastest, now);
    if (bytes == 0) return;
    least = r;
    piece = bytes;
  });
  if (behind) {
    const size_t end = std::exchange(at(*behind).missed, 0);
    return Piece{*behind, 0, end, RankSet(joined_.world_size()), true};
  }
  if (!least) return std::nullopt;
  began_at_ = began_at_.value_or(now);
  Relay& relay = at(*least);
  const bool is_alone = joined_.count() == 1;
  // A new busy period begins, from which the pace is measured. While a relay is alone
  // it passes nothing on.
  if (relay.handed == relay.passed || (relay.was_alone && !is_alone)) {
    relay.busy_since = now;
    relay.handed_before = relay.handed;
  }
  relay.was_alone = is_alone;
  relay.handed += piece;
  begin_ += piece;
  RankSet others = joined_;
  others.erase(*least);
  return Piece{*least, begin_ - piece, begin_, std::move(others), false};
}

// 0: the relay has enough pieces, or nothing is left.
size_t RelayedSends::next_bytes(const Relay& relay, double fastest,
                                TimePoint now) const {
  size_t most = most_ahead(relay, fastest);
  // Larger pieces for a fast relay, up to half of its limit.
  const bool is_fast = most > kMostAhead * piece_bytes_;
  size_t bytes =
      is_fast ? std::clamp(most / 2, piece_bytes_, chunk_bytes_) : piece_bytes_;
  // Until all members have joined, pieces are small, because later members will miss
  // them.
  if (!have_all_joined()) {
    size_t passed = relay.passed;
    if (relay.rate() > 0) {
      const double at_pace = relay.rate() * seconds(now - began_at_.value_or(now));
      passed = std::min(passed, static_cast<size_t>(at_pace));
    }
    most = std::min(most, passed + first_piece_);
    bytes = std::min(bytes, std::max(first_piece_, passed));
  }
  bytes = std::min(bytes, bytes_ - begin_);
  const size_t ahead = relay.handed - relay.passed;
  return ahead == 0 || ahead + bytes <= most ? bytes : 0;
}

size_t RelayedSends::most_ahead(const Relay& relay, double fastest) const {
  const size_t even = bytes_ / static_cast<size_t>(num_receivers_);
  const size_t least = std::min(kMostAhead * piece_bytes_, even / 2);
  if (relay.rate() <= 0)
    return std::min(least, kUnknownAhead * piece_bytes_ + relay.passed);
  const double share = static_cast<double>(least) * relay.rate() / fastest;
  const double worth = std::min(relay.rate() * seconds(kWorth),
                                2 * static_cast<double>(relay.pace->longest()));
  return static_cast<size_t>(std::clamp(worth, share, static_cast<double>(even)));
}

bool RelayedSends::on_passed(Rank relay, size_t bytes, TimePoint now) {
  Relay& its = at(relay);
  // The number comes from the relay. It must grow, and must not exceed the handed
  // bytes.
  if (bytes <= its.passed || bytes > its.handed) return false;
  its.passed = bytes;
  if (!its.was_alone && bytes > its.handed_before)
    its.pace->on_passed(bytes - its.handed_before, now - its.busy_since,
                        bytes == its.handed);
  return true;
}

}  // namespace aikido::collectives

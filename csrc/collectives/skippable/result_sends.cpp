// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "collectives/skippable/result_sends.h"

#include <algorithm>
#include <utility>

#include "base/mutation.h"
#include "collectives/skippable/message_tokens.h"

namespace aikido::collectives {

using transport::FrameKind;

namespace {
// A member that has fewer than this number of operations left to its limit on
// consecutive skips gets its results together with the others. The number is at most
// 1/kHeadStart of the limit.
constexpr uint32_t kHeadStart = 8;
// A member that is behind gets twice as many operations as it is behind, but at most
// 1/kLongHeadStart of the limit.
constexpr uint32_t kLongHeadStart = 3;
}  // namespace

std::byte* ResultSends::memory() {
  if (!memory_)
    memory_ = host_->pool().take_shared(std::max<size_t>(1, call_.bytes()));
  return memory_.get();
}

// See Note [late results leave last].
bool ResultSends::must_be_in_soon(Rank rank) const {
  const uint32_t limit = call_.policy.max_consecutive_skips;
  const uint64_t behind = seq_.value - std::min(seq_.value, host_->called_by(rank));
  const uint64_t left =
      std::max<uint64_t>(std::min(kHeadStart, limit / kHeadStart),
                         std::min<uint64_t>(2 * behind, limit / kLongHeadStart));
  return history_.consecutive_skips(rank) + left >= limit;
}

// True if the member was skipped before and has called nothing since.
bool ResultSends::is_behind(Rank rank) const {
  return history_.is_behind(rank, seq_);
}

// Note [late results leave last]
// A member that was skipped, and has called nothing since, has time. Its results leave
// when the operation is over here. If they were given to a socket before, they would
// share the uplink with results that others wait for. If there are no others, only such
// a member can acknowledge a result that is not full, so it is served at once.
//   All other members get the result at once, as in a full operation, because they wait
// for it or will do so in a moment. If it left last, a member would call the next
// operation later and be late again. On busy links it would fall further behind with
// each operation.
//   For the same reason all last messages hurry when the member calls again
// (Link::hurry). And if the member is close to its limit on consecutive skips, its
// results leave with the rest, because all members will wait for it. A member that is
// further behind needs this sooner: it gains about one operation for each result that
// comes so.
RankSet ResultSends::last_to_get(const RankSet& members,
                                 const PartialShard& shard) const {
  RankSet late(host_->size());
  members.for_each([&](Rank r) {
    const bool is_here = !shards_.is_backup(r) && shards_.is_in_time(shard, r);
    if (!is_here && is_behind(r) && !must_be_in_soon(r)) late.insert(r);
  });
  return late;
}

void ResultSends::send_to_late(int32_t s) {
  PartialShard& mine = shards_.at(s);
  if (mine.late.count() == 0) return;
  // A failed call is told of no view, so its closed result may be of an earlier view.
  if (has_failed() && !mutated(Mutation::kFailedSends)) return;
  // An owner whose own caller is late has nothing else to send.
  const bool is_free = is_over() || (!is_started() && mine.results_in_flight == 0);
  if (!is_free && host_->clock().now() < mine.late_due) return;
  send(s, 0, shards_.plan().num_bytes(s), std::exchange(mine.late, RankSet()), true);
}

void ResultSends::send_to_caller(Rank rank) {
  RankSet to(host_->size());
  to.insert(rank);
  for (const int32_t s : shards_.live())
    if (shards_.at(s).late.count() > 0 && shards_.at(s).late.erase(rank))
      send(s, 0, shards_.plan().num_bytes(s), to, true);
}

void ResultSends::send(int32_t s, size_t begin, size_t end, const RankSet& to,
                       bool is_late) {
  const PartialShard& mine = shards_.at(s);
  std::vector<std::byte> header;  // only with the first piece
  if (begin == 0) header = encode_result_header(mine.header());
  num_receivers_ = static_cast<size_t>(to.count());
  ++edition_;
  for (int32_t step = 1; step < host_->size(); ++step) {
    const Rank rank((host_->self().value + step) % host_->size());
    if (!to.contains(rank)) continue;
    if (!is_late) {
      ++shards_.at(s).results_in_flight;
      shards_.at(s).pieces_left.resize(static_cast<size_t>(host_->size()));
      ++shards_.at(s).pieces_left[static_cast<size_t>(rank.value)];
    }
    const bool leaves_last = is_late && is_behind(rank);
    const auto id = post(
        rank, FrameKind::kResult, s, memory() + shards_.plan().first_byte(s) + begin,
        end - begin, begin, shards_.plan().num_bytes(s), begin == 0,
        is_late
            ? 0
            : kFirstResultToken + static_cast<uint32_t>(s * host_->size() + rank.value),
        header, leaves_last);
    sending_.push_back({s, rank, id});
  }
}

void ResultSends::cancel(int32_t s) {
  for (const Sending& piece : sending_)
    if (piece.shard == s) host_->cancel(piece.to, piece.id);
  shards_.at(s).late = RankSet();
  std::erase_if(sending_, [&](const Sending& piece) { return piece.shard == s; });
}

void ResultSends::cancel_to(Rank rank) {
  std::erase_if(sending_, [&](const Sending& piece) {
    if (piece.to == rank) host_->cancel(rank, piece.id);
    return piece.to == rank;
  });
}

bool ResultSends::on_left(int32_t s, Rank to) {
  PartialShard& mine = shards_.at(s);
  if (mine.results_in_flight == 0) return false;  // a piece of an earlier view
  --mine.results_in_flight;
  auto& left = mine.pieces_left[static_cast<size_t>(to.value)];
  if (left > 0) --left;
  send_to_late(s);
  return left == 0 || mine.results_in_flight == 0;
}

bool ResultSends::has_left(const PartialShard& mine) const {
  if (mine.results_in_flight == 0) return true;
  int32_t num_others = 0, num_left = 0;
  shards_.participants().for_each([&](Rank r) {
    if (r == host_->self()) return;
    ++num_others;
    const bool is_last = mine.late.count() > 0 && mine.late.contains(r);
    if (!is_last && mine.pieces_left[static_cast<size_t>(r.value)] == 0) ++num_left;
  });
  return 2 * num_left >= num_others;
}

}  // namespace aikido::collectives

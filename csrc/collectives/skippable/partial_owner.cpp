// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "collectives/skippable/partial_owner.h"

#include <algorithm>
#include <utility>

#include "base/mutation.h"
#include "collectives/skippable/result_header.h"
#include "collectives/weights.h"

namespace aikido::collectives {

using transport::FrameHeader;
using transport::FrameKind;

namespace {
// Results for late members wait for those of the others. They wait at most this long,
// or as long as the operation has taken, whichever is longer.
constexpr Duration kLateDelay = std::chrono::milliseconds(200);

// True if no member was skipped in the last operation. After a skip, pieces that are
// sent ahead are likely to be wasted.
bool skips_nobody(const straggler::History& history, int32_t size) {
  for (int32_t r = 0; r < size; ++r)
    if (history.consecutive_skips(Rank(r)) > 0) return false;
  return true;
}

bool has_whole_elements(const FrameHeader& header, size_t element) {
  return header.offset % element == 0 && header.payload_bytes % element == 0;
}
}  // namespace

ShardOwner::ShardOwner(SkippableOperation& operation, const Others& others)
    : SkippablePart(operation),
      group_policy_(others.policy),
      shards_(others.shards),
      incoming_(others.incoming),
      results_(others.sends),
      contributions_(others.contributions),
      called_(others.called),
      suspicion_(others.suspicion),
      backups_(others.backups),
      received_(others.received),
      reduce_(kernels::find_reduce(call_.op, call_.dtype)) {}

size_t ShardOwner::piece_bytes() const {
  return shards_.piece_bytes(view_host_->view(), host_->settings().chunk_bytes);
}

void ShardOwner::take_over(int32_t s) {
  PartialShard& mine = shards_.at(s);
  if (!mine.own)
    mine.own = std::make_unique<OwnedShard>(host_->self(), host_->size(),
                                            shards_.plan().num_bytes(s));
  OwnedShard& own = *mine.own;
  if (own.is_closed) return;  // only with a mutation
  start_policy(s);
  own.policy->expect(expected());
  own.folded = own.sent = 0;
  own.has_asked = own.is_due = false;
  own.present = RankSet(host_->size());
  for (int32_t r = 0; r < host_->size(); ++r) {
    const Rank rank(r);
    if (rank == host_->self()) continue;
    if (!shards_.participants().contains(rank)) {
      incoming_.drop(rank, FrameKind::kContrib, s);
      own.forget(rank);
    } else if (own.has(rank)) {
      backups_.note_whole(s, rank);
    }
  }
}

void ShardOwner::start_policy(int32_t s) {
  OwnedShard& own = *shards_.at(s).own;
  if (call_.policy.has_stand_ins()) {
    auto policy = group_policy_.start_with_backups(
        // In a later view, the owner does not wait for members that were late for other
        // shards.
        seq_, call_.bytes(),
        shards_.num_views() == 0 ? RankSet(host_->size()) : shards_.late_elsewhere(),
        max_stand_ins(call_, host_->size()));
    own.backups = policy.get();
    own.policy = std::move(policy);
  } else if (shards_.num_views() == 0) {
    RankSet owners(host_->size());
    for (const PartialShard& each : shards_.all())
      if (each.is_live) owners.insert(each.owner);
    own.policy = group_policy_.start(seq_, call_.bytes(), owners);
  } else {
    own.policy =
        group_policy_.start_again(seq_, call_.bytes(), shards_.late_elsewhere());
  }
  const membership::View& view = view_host_->view();
  // In a new view the first callers are only the members that heard of it first, so a
  // quorum is required.
  if (shards_.num_views() > 0 ||
      2 * std::ssize(view.cut_of(seq_).owners) <= view.members.count())
    own.policy->require_quorum();
  for (int32_t r = 0; r < host_->size(); ++r)
    if (called_.has_called(Rank(r)))
      own.policy->on_called(Rank(r), host_->clock().now());
}

// Members whose contributions may still come.
RankSet ShardOwner::expected() const {
  RankSet ranks = shards_.participants();
  if (!contributions_.has_input()) ranks.erase(host_->self());
  shards_.participants().for_each([&](Rank r) {
    if (r != host_->self() && view_host_->acked_by(r) >= seq_.value) ranks.erase(r);
  });
  return ranks;
}

Result<std::byte*> ShardOwner::place(Rank from, const FrameHeader& header, int32_t s,
                                     std::span<const std::byte> rest) {
  std::byte* const nowhere = nullptr;
  const membership::View& view = view_host_->view();
  if (is_stale(shards_, view, from, header.view)) return nowhere;
  PartialShard& mine = shards_.at(s);
  // Contributions that arrive after the close are kept until the result is received,
  // because the result may be given up.
  if (!mine.own) {
    // Too late, or meant for the owner in another view.
    if (header.view != view.number || mine.owner == host_->self()) return nowhere;
    return misfit(from, header.total_bytes, 0);
  }
  if (shards_.is_backup(from) && header.offset == 0) {
    AIKIDO_TRY(backups_.read(from, rest));
    if (header.payload_bytes == 0 && header.total_bytes > 0) return nowhere;
  }
  if (mine.own->has(from)) {
    mine.own->place(from, header.offset, host_->pool());
    return nowhere;  // it is complete since an earlier view
  }
  std::byte* const place = mine.own->place(from, header.offset, host_->pool(), [&] {
    // A leased block may stay until the result is received. Backups' contributions are
    // compared as a whole, so they are copied.
    const bool may_stay = shards_.num_data_shards() == host_->size() &&
                          has_whole_elements(header, size_of(call_.dtype));
    return may_stay ? host_->keep_incoming(from) : Buffer();
  });
  if (place == nullptr && header.view == view.number)
    return misfit(from, header.total_bytes, shards_.plan().num_bytes(s));
  if (place != nullptr && call_.is_weighted && header.offset == 0) {
    auto weight = decode_weight(rest);
    if (!weight) return weight.status();
    mine.own->set_weight(from, *weight);
  }
  return place;
}

// Folds the pieces for which all members' bytes have arrived. So most of the work is
// done before the close. A given-up result is not overwritten, because it may become
// valid again.
void ShardOwner::fold_ahead(int32_t s) {
  OwnedShard* own = shards_.at(s).own.get();
  if (own == nullptr || own->is_closed || has_failed()) return;
  if (shards_.at(s).given_up && !mutated(Mutation::kFoldGivenUp)) return;
  const bool is_one = shards_.wanted().contains(host_->self());
  // The owner's own input takes part only after its call.
  if (is_one ? !is_started() : !shards_.is_backup(host_->self())) return;
  const size_t first = shards_.plan().first_byte(s);
  const size_t total = shards_.plan().num_bytes(s);
  const size_t chunk = piece_bytes();
  const size_t ready = own->ready(shards_.wanted(), local_.input);
  while (own->folded < total) {
    const size_t end = std::min(total, own->folded + chunk);
    if (end > ready) return;
    own->fold(results_.memory() + first, reduce_, counted(shards_.wanted()),
              is_one ? local_.input + first : nullptr, own->folded, end, call_.dtype,
              scale_of(call_, shards_.wanted().count(), host_->size()));
    own->folded = end;
    send_ahead(s);
  }
}

// See Note [a full sum goes out as it is folded].
void ShardOwner::send_ahead(int32_t s) {
  PartialShard& mine = shards_.at(s);
  OwnedShard& own = *mine.own;
  if (!shards_.participants().is_full() || view_host_->is_promised() || is_over() ||
      has_failed())
    return;
  const bool is_certain = call_.policy.rebalance;
  const bool is_likely = shards_.num_data_shards() == host_->size() &&
                         skips_nobody(group_policy_.history(), host_->size());
  if (!is_certain && (own.folded == shards_.plan().num_bytes(s) || !is_likely)) return;
  const RankSet known = std::exchange(mine.mask, shards_.participants());
  RankSet others = shards_.participants();
  others.erase(host_->self());
  mine.close.weight = own.total_weight(counted(mine.mask));
  results_.send(s, std::exchange(own.sent, own.folded), own.folded, others, false);
  if (!is_certain) mine.mask = known;
}

void ShardOwner::close_if_due(int32_t s) {
  OwnedShard* own = shards_.at(s).own.get();
  if (own == nullptr || own->is_closed || view_host_->is_promised()) return;
  if (shards_.at(s).owner != host_->self() || is_over() || has_failed()) return;
  if (own->backups != nullptr) backups_.ask(s);
  const TimePoint now = host_->clock().now();
  own->tell_progress(
      now, [&](Rank r) { return incoming_.num_received(r, FrameKind::kContrib, s); });
  const straggler::Decision decision = own->policy->decide(now);
  // The decision is final only when enough members are known to be present. Meanwhile a
  // late member may still arrive.
  own->is_due = decision.closes();
  if (own->is_due && is_heard(s)) close(s, decision);
}

// True if more than half of the voters of the view know of the operation. So no smaller
// part of the view goes on alone.
bool ShardOwner::is_heard(int32_t s) {
  if (mutated(Mutation::kSmallQuorum)) return true;
  OwnedShard& own = *shards_.at(s).own;
  const RankSet& members = view_host_->view().members;
  RankSet heard(host_->size());
  members.for_each([&](Rank r) {
    const bool is_here = r == host_->self() || own.present.contains(r) ||
                         host_->called_by(r) >= seq_.value;
    if (is_here) heard.insert(r);
  });
  const bool is_mutated = mutated(Mutation::kTransientQuorum);
  if (is_mutated ? 2 * heard.count() > members.count()
                 : membership::is_majority(view_host_->view(), heard))
    return true;
  if (!own.has_asked) {
    own.has_asked = true;
    members.for_each([&](Rank r) {
      if (r != host_->self())
        post(r, FrameKind::kAskPresent, s, nullptr, 0, 0, 0, false);
    });
  }
  return false;
}

void ShardOwner::close(int32_t s, const straggler::Decision& decision) {
  PartialShard& mine = shards_.at(s);
  OwnedShard& own = *mine.own;
  mine.mask = own.policy->arrived();
  if (own.backups != nullptr) {
    own.stand_ins = own.backups->stand_ins();
    if (!mutated(Mutation::kStandInIsArrival)) mine.stand_ins = own.stand_ins;
    const size_t room =
        max_stand_ins(call_, host_->size()) - own.backups->stand_ins().size();
    // Not the excluded members of this view, because a full result must be the same in
    // every view.
    view_host_->view().cut_of(seq_).out.for_each([&](Rank r) {
      if (mine.out.size() < room) mine.out.push_back(r);
    });
  }
  mine.close = {decision.reason, told_deadline(decision.deadline),
                own.total_weight(counted(mine.mask))};
  own.is_closed = true;
  own.tell_close(host_->clock().now(), [&](Rank r) {
    return incoming_.num_received(r, FrameKind::kContrib, s);
  });
  // Usually each member owns a shard, and then there is nobody to look up.
  if (std::ssize(view_host_->view().cuts.back().owners) < host_->size())
    shards_.participants().for_each([&](Rank r) {
      if (!shards_.is_backup(r) && !view_host_->view().is_owner(r))
        view_host_->note_share(r, own.bytes_here(r), shards_.plan().num_bytes(s));
    });
  // The result is sent now. It counts as received when another member has acknowledged
  // it.
  group_policy_.history().on_closed(seq_, received_.charge(s));
  const size_t first = shards_.plan().first_byte(s);
  const size_t total = shards_.plan().num_bytes(s);
  const size_t chunk = piece_bytes();
  if (!(mine.mask == shards_.wanted()) || !own.stand_ins.empty()) {
    own.folded = 0;
    if (std::exchange(own.sent, 0) > 0)
      results_.cancel(s);  // drops pieces that were sent ahead as a sum of all members
  }
  RankSet in_time = view_host_->view().members;
  in_time.erase(host_->self());
  mine.late = results_.last_to_get(in_time, mine);
  mine.late.for_each([&](Rank r) { in_time.erase(r); });
  // Late members learn at once that their bytes are not needed any more.
  if (total > 0 && mine.late.count() > 0) results_.send(s, 0, 0, mine.late, true);
  size_t begin = own.sent;
  while (begin < total || total == 0) {
    const size_t end = std::max(own.folded, std::min(total, begin + chunk));
    own.fold(results_.memory() + first, reduce_, counted(mine.mask, own.stand_ins),
             is_started() ? local_.input + first : nullptr, std::max(begin, own.folded),
             end, call_.dtype, scale_of(call_, mine.mask.count(), host_->size()));
    results_.send(s, begin, end, in_time, false);
    begin = end;
    if (total == 0) break;
  }
  const TimePoint now = host_->clock().now();
  const Duration took = is_started() ? now - local_.called_at : Duration::zero();
  mine.late_due = in_time.count() > 0 ? now + std::max(kLateDelay, took) : now;
  results_.send_to_late(s);
  received_.note_mask(s);
  suspicion_.on_progress();
  suspicion_.note_close();
  received_.receive_closed();
}

void ShardOwner::add_own_input(int32_t s) {
  if (!shards_.at(s).own) return;
  backups_.have_own_input(s);
  fold_ahead(s);
  close_if_due(s);
}

void ShardOwner::arrived(Rank from, const FrameHeader& header) {
  const auto s = static_cast<int32_t>(header.shard);
  OwnedShard* own = shards_.at(s).own.get();
  if (own == nullptr) return;
  if (own->arrived(from, header.payload_bytes) && !own->is_closed)
    backups_.note_whole(s, from);
  fold_ahead(s);
  close_if_due(s);
}

void ShardOwner::on_present(int32_t s, Rank from) {
  shards_.at(s).own->present.insert(from);
  close_if_due(s);
}

void ShardOwner::on_called(Rank rank) {
  const TimePoint now = host_->clock().now();
  for (const PartialShard& mine : shards_.all())
    if (mine.own && !mine.own->is_closed) mine.own->policy->on_called(rank, now);
}

void ShardOwner::expect_fewer(int32_t s) {
  OwnedShard* own = shards_.at(s).own.get();
  if (own == nullptr || own->is_closed) return;
  own->policy->expect(expected());
  close_if_due(s);
}

std::optional<TimePoint> ShardOwner::next_look() const {
  std::optional<TimePoint> earliest;
  for (const PartialShard& mine : shards_.all()) {
    if (mine.late.count() > 0 && (!earliest || mine.late_due < *earliest))
      earliest = mine.late_due;
    if (!mine.own || mine.own->is_closed || mine.own->is_due) continue;
    const auto look = mine.own->next_look();
    if (look && (!earliest || *look < *earliest)) earliest = look;
  }
  return earliest;
}

}  // namespace aikido::collectives

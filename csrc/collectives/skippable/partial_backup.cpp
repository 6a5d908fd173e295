// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
//
// Skippable allreduce with backups: their offers and contributions, and the questions
// of the owners.
//
// Note [a backup only offers]
// If the last members are backups (straggler/data_shard.h), a mask is of data shards.
// The contribution for a data shard comes from its primary or from a backup, which is
// then named beside the mask. To send every contribution twice would waste the links.
// So a backup that is called sends each owner only an offer, a contribution without
// bytes. It sends the bytes when the owner asks for them (kNeed), in the same view. A
// result with a stand-in never counts as full: in another view its owner might fold
// other bytes. So it needs an acknowledgement.

#include <cstring>
#include <utility>

#include "base/mutation.h"
#include "collectives/skippable/message_tokens.h"
#include "collectives/skippable/partial_allreduce.h"
#include "collectives/skippable/result_header.h"

namespace aikido::collectives {

using straggler::kAnyDataShard;
using transport::FrameHeader;
using transport::FrameKind;

void PartialAllreduce::commit(const PartialShard& mine, uint64_t charge) {
  straggler::History& history = group_policy_.history();
  if (!call_.policy.has_stand_ins())
    // A primary with a stand-in counts as late, although its data shard is in the
    // result.
    return history.on_committed(seq_, mine.mask, charge);
  RankSet in_time = mine.mask;
  RankSet covered(host_->size());
  for (const straggler::StandIn& stand_in : mine.stand_ins) {
    in_time.erase(stand_in.data_shard);
    covered.insert(stand_in.data_shard);
    view_host_->note_stand_in(stand_in);
  }
  history.on_committed(seq_, in_time, covered, Rank(shards_.num_data_shards()), charge);
}

std::vector<Hole> PartialAllreduce::holes() const {
  if (!call_.policy.has_stand_ins()) return {};
  return holes_of(call_, host_->size(), make_outcome());
}

// ---- the backup ----

// Without bytes, or if bytes are always wanted, an offer would only cost time.
bool PartialAllreduce::sends_unasked(int32_t s) const {
  return call_.policy.backup_mode == straggler::BackupMode::kReplicate ||
         call_.policy.verify_shadows || shards_.plan().num_bytes(s) == 0;
}

namespace {
using Extra = std::array<std::byte, sizeof(int32_t)>;
Extra extra_of(int32_t data_shard) {
  Extra bytes;
  std::memcpy(bytes.data(), &data_shard, bytes.size());
  return bytes;
}
}  // namespace

void PartialAllreduce::contribute_as_backup(int32_t s) {
  PartialShard& mine = shards_.at(s);
  // Posted before, in this view.
  if (!mine.contribution.empty()) return;
  mine.contributed_in = view_host_->view().number;
  view_host_->note_given(shards_.plan().num_bytes(s));
  contributions_.post_bytes(s, 0, shards_.plan().num_bytes(s), kContributionToken,
                            extra_of(local_.data_shard));
}

void PartialAllreduce::offer(int32_t s) {
  if (sends_unasked(s)) return contribute_as_backup(s);
  PartialShard& mine = shards_.at(s);
  if (std::exchange(mine.is_offered, true)) return;
  post(mine.owner, FrameKind::kContrib, s, nullptr, 0, 0, shards_.plan().num_bytes(s),
       true, 0, extra_of(local_.data_shard));
}

// The owner has asked for the contribution that this member offered.
void PartialAllreduce::give(int32_t s) {
  const PartialShard& mine = shards_.at(s);
  if (!shards_.is_backup(host_->self()) || !contributions_.may_contribute() ||
      is_over())
    return;
  if (!mine.is_received && mine.mask.count() == 0) contribute_as_backup(s);
}

// ---- the owner ----

void PartialAllreduce::start_policy(int32_t s) {
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

// The owner's own contribution is available.
void PartialAllreduce::have_own_input(int32_t s) {
  OwnedShard& own = *shards_.at(s).own;
  const Rank self = host_->self();
  const TimePoint now = host_->clock().now();
  if (!shards_.is_backup(self)) {
    own.policy->on_arrival(self, now);
  } else {
    own.backups->on_offer(self, local_.data_shard, now);
    if (sends_unasked(s)) own.backups->on_copy(self, now);
  }
  if (call_.policy.verify_shadows) compare_copies(s);
}

Status PartialAllreduce::read_offer(Rank from, std::span<const std::byte> rest) {
  int32_t data_shard = 0;
  if (rest.size() != sizeof data_shard)
    return {Code::kProtocol, concat("rank ", from.value, ", a backup, does not say ",
                                    "which data shard it contributes")};
  std::memcpy(&data_shard, rest.data(), sizeof data_shard);
  const bool is_any = call_.policy.backup_mode == straggler::BackupMode::kSubstitute;
  const bool is_one = is_any
                          ? data_shard == kAnyDataShard
                          : data_shard >= 0 && data_shard < shards_.num_data_shards();
  if (!is_one)
    return {Code::kProtocol, concat("rank ", from.value, " contributes data shard ",
                                    data_shard, " of ", shards_.num_data_shards(),
                                    " with ", straggler::to_string(call_.policy))};
  said(from) = data_shard;
  return Status::ok();
}

// The contribution of a backup begins. An offer without bytes counts only in its own
// view, because it is repeated in a later view.
void PartialAllreduce::note_offer(Rank from, const FrameHeader& header) {
  const auto s = static_cast<int32_t>(header.shard);
  if (header.kind != FrameKind::kContrib || !shards_.is_live(header.shard)) return;
  OwnedShard* own = shards_.at(s).own.get();
  if (own == nullptr || !said(from) || is_stale(from, header)) return;
  if (own->is_closed)
    return group_policy_.history().on_late_arrival(seq_, from, host_->clock().now());
  const bool is_now =
      header.view == view_host_->view().number && !view_host_->is_promised();
  const bool has_bytes = header.payload_bytes > 0 || header.total_bytes == 0;
  if (has_bytes ? own->backups->has_offered(from) : !is_now) return;
  own->backups->on_offer(from, *said(from), host_->clock().now());
  if (has_bytes) return;
  close_if_due(s);
  expose_if_done();
}

// The contribution of a member is complete.
void PartialAllreduce::note_whole(int32_t s, Rank from) {
  OwnedShard& own = *shards_.at(s).own;
  const TimePoint now = host_->clock().now();
  if (!shards_.is_backup(from)) {
    own.policy->on_arrival(from, now);
  } else {
    if (!own.backups->has_offered(from)) own.backups->on_offer(from, *said(from), now);
    own.backups->on_copy(from, now);
  }
  if (call_.policy.verify_shadows) compare_copies(s);
}

void PartialAllreduce::ask_backups(int32_t s) {
  OwnedShard& own = *shards_.at(s).own;
  for (const Rank rank : own.backups->ask(host_->clock().now())) {
    if (rank == host_->self()) {
      own.backups->on_copy(rank, host_->clock().now());
    } else {
      post(rank, FrameKind::kNeed, s, nullptr, 0, 0, 0, false);
    }
  }
}

// With verify_shadows: both copies of a data shard must have the same bits.
void PartialAllreduce::compare_copies(int32_t s) {
  const OwnedShard& own = *shards_.at(s).own;
  const auto bytes_of = [&](Rank r) -> const std::byte* {
    if (r == host_->self())
      return is_started() && contributions_.has_input()
                 ? local_.input + shards_.plan().first_byte(s)
                 : nullptr;
    return own.has(r) ? own.bytes_of(r) : nullptr;
  };
  for (int32_t r = shards_.num_data_shards(); r < host_->size(); ++r) {
    const int32_t offered = said(Rank(r)).value_or(kAnyDataShard);
    if (offered < 0) continue;
    const std::byte* const shadow = bytes_of(Rank(r));
    const std::byte* const primary = bytes_of(Rank(offered));
    if (shadow == nullptr || primary == nullptr) continue;
    if (std::memcmp(shadow, primary, shards_.plan().num_bytes(s)) == 0) continue;
    return host_->fail_everywhere(
        seq_,
        {Code::kInvalidArgument,
         concat(describe(call_), ", collective ", seq_.value,
                " of its group: what backup rank ", r, " has computed for data shard ",
                offered, " is not bit-equal to what its primary, rank ", offered,
                ", has: the user's code is not deterministic; let its random numbers ",
                "follow the data shard and the step, and use ",
                "torch.use_deterministic_algorithms(True)")});
  }
}

}  // namespace aikido::collectives

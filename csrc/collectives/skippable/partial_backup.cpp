// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "collectives/skippable/partial_backup.h"

#include <array>
#include <cstring>
#include <utility>

#include "collectives/skippable/message_tokens.h"

namespace aikido::collectives {

using straggler::kAnyDataShard;
using transport::FrameHeader;
using transport::FrameKind;

void BackupOffers::on_start() {
  if (shards_.is_backup(host_->self())) said(host_->self()) = local_.data_shard;
}

// ---- the backup ----

// Without bytes, or if bytes are always wanted, an offer would only cost time.
bool BackupOffers::sends_unasked(int32_t s) const {
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

void BackupOffers::contribute(int32_t s) {
  PartialShard& mine = shards_.at(s);
  // Posted before, in this view.
  if (!mine.contribution.empty()) return;
  mine.contributed_in = view_host_->view().number;
  view_host_->note_given(shards_.plan().num_bytes(s));
  contributions_.post_bytes(s, 0, shards_.plan().num_bytes(s), kContributionToken,
                            extra_of(local_.data_shard));
}

void BackupOffers::offer(int32_t s) {
  if (sends_unasked(s)) return contribute(s);
  PartialShard& mine = shards_.at(s);
  if (std::exchange(mine.is_offered, true)) return;
  post(mine.owner, FrameKind::kContrib, s, nullptr, 0, 0, shards_.plan().num_bytes(s),
       true, 0, extra_of(local_.data_shard));
}

void BackupOffers::give(int32_t s) {
  const PartialShard& mine = shards_.at(s);
  if (!shards_.is_backup(host_->self()) || !contributions_.may_contribute() ||
      is_over())
    return;
  if (!mine.is_received && mine.mask.count() == 0) contribute(s);
}

// ---- the owner ----

void BackupOffers::have_own_input(int32_t s) {
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

Status BackupOffers::read(Rank from, std::span<const std::byte> rest) {
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

bool BackupOffers::note_offer(Rank from, const FrameHeader& header) {
  const auto s = static_cast<int32_t>(header.shard);
  if (header.kind != FrameKind::kContrib || !shards_.is_live(header.shard))
    return false;
  OwnedShard* own = shards_.at(s).own.get();
  const membership::View& view = view_host_->view();
  if (own == nullptr || !said(from) || is_stale(shards_, view, from, header.view))
    return false;
  const TimePoint now = host_->clock().now();
  if (own->is_closed) {
    group_policy_.history().on_late_arrival(seq_, from, now);
    return false;
  }
  const bool is_now = header.view == view.number && !view_host_->is_promised();
  const bool has_bytes = header.payload_bytes > 0 || header.total_bytes == 0;
  if (has_bytes ? own->backups->has_offered(from) : !is_now) return false;
  own->backups->on_offer(from, *said(from), now);
  return !has_bytes;
}

void BackupOffers::note_whole(int32_t s, Rank from) {
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

void BackupOffers::ask(int32_t s) {
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
void BackupOffers::compare_copies(int32_t s) {
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

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Offers of backups in a skippable allreduce, on the side of the backup and on the side
// of the owner. Without backups nothing here is used. Progress thread.
//
// Note [a backup only offers]
// If the last members are backups (straggler/data_shard.h), a mask is of data shards.
// The contribution for a data shard comes from its primary or from a backup, which is
// then named beside the mask. To send every contribution twice would waste the links.
// So a backup that is called sends each owner only an offer, a contribution without
// bytes. It sends the bytes when the owner asks for them (kNeed), in the same view. A
// result with a stand-in never counts as full: in another view its owner might fold
// other bytes. So it needs an acknowledgement.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "collectives/skippable/contributions.h"
#include "collectives/skippable/partial_shards.h"
#include "collectives/skippable/skippable_part.h"
#include "straggler/group_policy.h"

namespace aikido::collectives {

class BackupOffers final : public SkippablePart {
 public:
  // The policy and the other parts must outlive this object.
  BackupOffers(SkippableOperation& operation, straggler::GroupPolicy& policy,
               PartialShards& shards, Contributions& contributions)
      : SkippablePart(operation),
        group_policy_(policy),
        shards_(shards),
        contributions_(contributions),
        said_(static_cast<size_t>(host_->size() - shards.num_data_shards())) {}

  // Data shards that the backups have computed, as far as they have said so.
  straggler::SaidDataShards said() const { return said_; }
  // The local member has called. If it is a backup, its data shard is known now.
  void on_start();

  // --- The backup.

  // Offers the contribution to the owner of shard `s`, or sends it, if the owner always
  // needs it. Once in each view. Requires: this backup may contribute.
  void offer(int32_t s);
  // The owner of shard `s` has asked for the contribution that this member offered.
  void give(int32_t s);

  // --- The owner of shard `s`.

  // The owner's own contribution is available.
  void have_own_input(int32_t s);
  // Reads the data shard of a beginning contribution. kProtocol if it is invalid.
  Status read(Rank from, std::span<const std::byte> rest);
  // A frame of the contribution of `from`, a backup, has arrived. Returns true if it is
  // an offer without bytes that counts: the shard may close now. An offer counts only
  // in its own view, because it is repeated in a later view.
  bool note_offer(Rank from, const transport::FrameHeader& header);
  // The contribution of a member, or of a backup, is complete.
  void note_whole(int32_t s, Rank from);
  // Asks the backups for contributions that are needed now. Requires: with backups.
  void ask(int32_t s);

 private:
  bool sends_unasked(int32_t s) const;
  void contribute(int32_t s);
  void compare_copies(int32_t s);
  std::optional<int32_t>& said(Rank backup) {
    return said_[static_cast<size_t>(backup.value - shards_.num_data_shards())];
  }

  straggler::GroupPolicy& group_policy_;
  PartialShards& shards_;
  Contributions& contributions_;
  std::vector<std::optional<int32_t>> said_;  // by backup
};

}  // namespace aikido::collectives

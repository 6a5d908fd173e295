// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "collectives/skippable/partial_shards.h"

#include <algorithm>

#include "collectives/shard_plan.h"

namespace aikido::collectives {

namespace {
// If a member owns nothing, its late contribution arrives while the result is sent, so
// pieces are small: 1/kPieces of a shard. A frame costs as much as a few kilobytes, so
// pieces are not below kLeastPiece.
constexpr size_t kPieces = 128;
constexpr size_t kLeastPiece = 8 << 10;
}  // namespace

void PartialShard::take(ResultHeader header) {
  mask = std::move(header.mask);
  stand_ins = std::move(header.stand_ins);
  out = std::move(header.out);
  close = {header.reason, header.deadline, header.weight};
}

PartialShards::PartialShards(Rank self, int32_t size, Seq seq, const Call& call)
    : self_(self),
      size_(size),
      seq_(seq),
      call_(call),
      num_data_shards_(straggler::num_data_shards(call.policy, size)),
      moved_(size) {}

// ---- positions and results ----

void PartialShards::forget_results() {
  for (const int32_t s : live_) {
    PartialShard& shard = at(s);
    shard.is_received = false;
    shard.bytes = 0;
    shard.given_up.reset();
    shard.open_again();
  }
  num_left_ = static_cast<int32_t>(live_.size());
}

std::optional<int32_t> PartialShards::only_missing() const {
  std::optional<int32_t> missing;
  for (const int32_t s : live_) {
    if (at(s).is_received || at(s).own) continue;
    if (missing) return std::nullopt;
    missing = s;
  }
  return missing;
}

bool PartialShards::has_one_owner() const {
  return std::all_of(live_.begin(), live_.end(),
                     [&](int32_t s) { return at(s).owner == at(live_.front()).owner; });
}

uint64_t PartialShards::fingerprint(int32_t s) const {
  uint64_t hash = 0xcbf29ce484222325 ^ static_cast<uint64_t>(plan_.num_shards());
  for (const uint64_t word : at(s).mask.words()) hash = (hash ^ word) * 0x100000001b3;
  for (const auto& [data_shard, backup] : at(s).stand_ins) {
    const int32_t pair = (data_shard.value + 1) * size_ + backup.value;
    hash = (hash ^ static_cast<uint64_t>(pair)) * 0x100000001b3;
  }
  return hash;
}

std::vector<int32_t> PartialShards::divided() const {
  std::vector<int32_t> divided;
  for (const auto& parts : plan_.divided())
    if (!at(parts.shard).is_live) divided.push_back(plan_.number(parts.shard));
  std::sort(divided.begin(), divided.end());
  return divided;
}

std::vector<OwnedResultHeader> PartialShards::results() const {
  std::vector<OwnedResultHeader> known;
  for (const int32_t s : live_)
    known.push_back(
        {at(s).owner, at(s).header(), plan_.first_element(s), plan_.num_elements(s)});
  // Parts follow the shards in the table, but callers expect them by position.
  std::stable_sort(known.begin(), known.end(), [](const auto& a, const auto& b) {
    return std::pair(a.first_element, a.num_elements) <
           std::pair(b.first_element, b.num_elements);
  });
  return known;
}

size_t PartialShards::piece_bytes(const membership::View& view,
                                  size_t chunk_bytes) const {
  const size_t element = size_of(call_.dtype);
  const size_t chunk = chunk_bytes / element * element;
  const auto& owners = view.cut_of(seq_).owners;
  if (!call_.policy.rebalance || std::ssize(owners) == size_) return chunk;
  const size_t piece = std::max(plan_.num_bytes(0) / kPieces, kLeastPiece);
  return std::min(chunk, piece / element * element);
}

// ---- members ----

void PartialShards::set_participants(const membership::View& view) {
  participants_ = view.participants(seq_);
  if (call_.policy.has_stand_ins())
    wanted_ = straggler::wanted(call_.policy, participants_);
}

bool PartialShards::is_in_time(const PartialShard& shard, Rank rank) const {
  if (is_backup(rank)) return true;
  return shard.mask.contains(rank) &&
         std::none_of(shard.stand_ins.begin(), shard.stand_ins.end(),
                      [rank](const auto& one) { return one.data_shard == rank; });
}

bool PartialShards::is_late(Rank rank) const {
  return std::any_of(shards_.begin(), shards_.end(), [&](const PartialShard& shard) {
    return shard.mask.world_size() > 0 && !is_in_time(shard, rank);
  });
}

RankSet PartialShards::late_elsewhere() const {
  RankSet late = moved_;
  for (const PartialShard& other : shards_)
    if (other.mask.count() > 0)
      for (int32_t r = 0; r < num_data_shards_; ++r)
        if (!is_in_time(other, Rank(r))) late.insert(Rank(r));
  return late;
}

// ---- views ----

// See Note [one mask for the bucket] in partial_allreduce.h, and Note [divided shard]
// in partial_views.cpp.
ShardTable PartialShards::plan_in(const membership::View& view, size_t least) const {
  const bool is_whole = call_.policy.masks == straggler::Masks::kBucket;
  const membership::Cut& cut = view.cut_of(seq_);
  const size_t num_owners = cut.owners.size();
  const size_t element = size_of(call_.dtype);
  const ShardPlan plan(call_.count, element,
                       is_whole ? 1 : static_cast<int32_t>(num_owners), least);
  ShardTable table(plan, is_whole ? static_cast<int32_t>(seq_.value % num_owners) : 0,
                   element);
  // Full sums and calls with backups need whole shards.
  if (!is_whole && !call_.policy.rebalance && !call_.policy.has_stand_ins())
    table.divide(cut, least);
  return table;
}

Rank PartialShards::owner_in(const membership::View& view, int32_t s) const {
  const int32_t number = plan_.number(s);
  const membership::Held* held = view.held_at(seq_, number);
  return held != nullptr ? held->holder : view.cut_of(seq_).owner(number);
}

void PartialShards::cut(const membership::View& view, size_t least) {
  plan_ = plan_in(view, least);
  set_participants(view);
  shards_ = std::vector<PartialShard>(static_cast<size_t>(plan_.num_shards()));
  num_left_ = plan_.num_shards();
  for (int32_t s = 0; s < plan_.num_shards(); ++s) begin(view, s);
}

void PartialShards::begin(const membership::View& view, int32_t s) {
  at(s).is_live = true;
  at(s).owner = owner_in(view, s);
}

void PartialShards::replace(const membership::View& view,
                            const ShardTable::DividedShard& parts) {
  PartialShard& whole = at(parts.shard);
  if (!view.is_owner(whole.owner)) note_moved(whole.owner);
  whole = PartialShard{};
  for (int32_t part = parts.begin; part < parts.end; ++part) {
    at(part) = PartialShard{};
    begin(view, part);
  }
  num_left_ += parts.end - parts.begin - 1;
}

void PartialShards::on_view(bool is_anew) {
  if (!is_anew) ++num_views_;
  is_partial_ = false;
  for (const PartialShard& mine : shards_)
    if (mine.mask.count() > 0 && !is_full(mine)) is_partial_ = true;
}

void PartialShards::list_live() {
  live_.clear();
  for (int32_t s = 0; s < plan_.size(); ++s) {
    if (at(s).is_live) live_.push_back(s);
    // A shard that is not live is not missing.
    at(s).is_received |= !at(s).is_live;
  }
}

}  // namespace aikido::collectives

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "collectives/skippable/result_header.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <map>

#include "base/text.h"
#include "collectives/weights.h"
#include "transport/frame.h"

namespace aikido::collectives {

namespace {

// Layout: reason u8, three zero bytes, deadline in microseconds u32, then the mask, bit
// r % 8 of byte r / 8 for rank r. No backup is in a mask. The bit of a backup says that
// it stood in. After the mask comes the data shard of each such backup as u16, and then
// each excluded member as u16. In a weighted call, which has no backups, the sum of the
// weights comes after the mask.
constexpr size_t kHeadBytes = 8;
constexpr auto kMaxReason = static_cast<uint8_t>(straggler::Reason::kWaitingPays);

template <typename T>
void sort_each_once(std::vector<T>& values) {
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
}

void set_bit(std::vector<std::byte>& out, size_t rank) {
  out[kHeadBytes + rank / 8] |= std::byte{1} << (rank % 8);
}

}  // namespace

Outcome outcome_of(const Call& call, Rank self, int32_t size,
                   std::span<const OwnedResultHeader> shards) {
  Outcome outcome;
  const int32_t num_data_shards = straggler::num_data_shards(call.policy, size);
  const bool is_counted = self.value < num_data_shards;
  RankSet in_all = straggler::data_shards(call.policy, size);
  for (const auto& [owner, header, first_element, num_elements] : shards) {
    ShardOutcome& shard = outcome.shards.emplace_back();
    shard.owner = owner;
    shard.first_element = first_element;
    shard.num_elements = num_elements;
    // The contributors of the whole result are those of every shard.
    header.mask.for_each([&](Rank r) { shard.contributors.push_back(r); });
    header.mask.for_each_missing([&](Rank r) { in_all.erase(r); });
    shard.scale = scale_of(call, header.mask.count(), size);
    shard.stand_ins = header.stand_ins;
    shard.weight = header.weight;
    const bool counts = call.kind == CallKind::kAllreduce || owner == self;
    const bool is_less = !outcome.weight || header.weight < outcome.weight;
    if (counts && header.weight && is_less) outcome.weight = header.weight;
    outcome.stand_ins.insert(outcome.stand_ins.end(), header.stand_ins.begin(),
                             header.stand_ins.end());
    outcome.out.insert(outcome.out.end(), header.out.begin(), header.out.end());
    if (is_counted && !header.mask.contains(self)) outcome.skipped_by.push_back(owner);
    // The longest deadline of a shard with a missing contribution explains the outcome.
    if (header.mask.count() < num_data_shards &&
        (outcome.reason.empty() || header.deadline > outcome.deadline)) {
      outcome.deadline = header.deadline;
      outcome.reason = straggler::name_of(header.reason);
    }
  }
  in_all.for_each([&](Rank r) { outcome.contributors.push_back(r); });
  in_all.for_each_missing([&](Rank r) {
    if (r.value < num_data_shards) outcome.skipped.push_back(r);
  });
  sort_each_once(outcome.stand_ins);
  sort_each_once(outcome.out);
  sort_each_once(outcome.skipped_by);
  outcome.kind =
      outcome.skipped.empty() ? OutcomeKind::kComplete : OutcomeKind::kPartial;
  if (outcome.reason.empty())
    outcome.reason = straggler::name_of(straggler::Reason::kComplete);
  return outcome;
}

std::vector<Hole> holes_of(const Call& call, int32_t size, const Outcome& outcome) {
  std::map<straggler::StandIn, uint64_t> bytes;
  for (const ShardOutcome& shard : outcome.shards) {
    const uint64_t of_shard = shard.num_elements * size_of(call.dtype);
    for (const auto& stand_in : shard.stand_ins) bytes[stand_in] += of_shard;
    RankSet missing = straggler::data_shards(call.policy, size);
    for (const Rank d : shard.contributors) missing.erase(d);
    missing.for_each([&](Rank d) { bytes[{d, kNoRank}] += of_shard; });
  }
  std::vector<Hole> holes;
  for (const auto& [hole, total] : bytes)
    holes.push_back({hole.data_shard, hole.backup, total});
  return holes;
}

Duration told_deadline(Duration chosen) {
  using std::chrono::microseconds;
  // Rounded down, as the wire has microseconds: all members must know the same value.
  const auto us = std::chrono::floor<microseconds>(chosen);
  return std::min(us, microseconds(std::numeric_limits<uint32_t>::max()));
}

std::vector<std::byte> encode_result_header(const ResultHeader& header) {
  const auto size = static_cast<size_t>(header.mask.world_size());
  std::vector<std::byte> out(kHeadBytes + (size + 7) / 8);
  out[0] = static_cast<std::byte>(header.reason);
  const auto us = static_cast<uint32_t>(header.deadline / std::chrono::microseconds(1));
  std::memcpy(out.data() + 4, &us, sizeof us);
  header.mask.for_each([&](Rank r) { set_bit(out, static_cast<size_t>(r.value)); });
  const auto add = [&out](Rank rank) {
    const auto value = static_cast<uint16_t>(rank.value);
    out.insert(out.end(), {std::byte(value & 0xff), std::byte(value >> 8)});
  };
  std::vector<straggler::StandIn> by_backup = header.stand_ins;
  std::sort(by_backup.begin(), by_backup.end(),
            [](const auto& a, const auto& b) { return a.backup < b.backup; });
  for (const auto& [data_shard, backup] : by_backup) {
    set_bit(out, static_cast<size_t>(backup.value));
    add(data_shard);
  }
  for (const Rank rank : header.out) add(rank);
  if (header.weight) {
    const auto weight = encode_weight(*header.weight);
    out.insert(out.end(), weight.begin(), weight.end());
  }
  return out;
}

size_t max_stand_ins(const Call& call, int32_t size) {
  const size_t used =
      encode(call).size + kHeadBytes + (static_cast<size_t>(size) + 7) / 8;
  return (transport::kMaxExtensionBytes - used) / sizeof(uint16_t);
}

Result<ResultHeader> decode_result_header(std::span<const std::byte> bytes,
                                          int32_t size, int32_t num_data_shards,
                                          bool is_weighted) {
  const auto n = static_cast<size_t>(size);
  const auto bad_length = [&] {
    return Status(Code::kProtocol,
                  concat("a result with ", bytes.size(), " bytes of header"));
  };
  const size_t mask_end = kHeadBytes + (n + 7) / 8;
  if (bytes.size() < mask_end) return bad_length();
  ResultHeader header;
  uint32_t us = 0;
  std::memcpy(&us, bytes.data() + 4, sizeof us);
  header.reason = static_cast<straggler::Reason>(bytes[0]);
  header.deadline = std::chrono::microseconds(us);
  header.mask = RankSet(size);
  for (size_t r = 0; r < n; ++r) {
    const auto bits = static_cast<unsigned>(bytes[kHeadBytes + r / 8]);
    if ((bits >> (r % 8) & 1u) == 0) continue;
    const Rank rank(static_cast<int32_t>(r));
    if (rank.value < num_data_shards)
      header.mask.insert(rank);
    else
      header.stand_ins.push_back({kNoRank, rank});
  }
  auto rest = bytes.subspan(mask_end);
  if (is_weighted) {
    auto weight = decode_total_weight(rest);
    if (!weight) return weight.status();
    header.weight = *weight;
    rest = {};
  }
  const size_t num_stand_ins = header.stand_ins.size();
  // Excluded members are listed only if there are backups.
  const bool may_say_more = num_data_shards < size && rest.size() % 2 == 0;
  if (rest.size() < 2 * num_stand_ins ||
      (rest.size() > 2 * num_stand_ins && !may_say_more))
    return bad_length();
  const auto value_at = [&rest](size_t i) {
    uint16_t value = 0;
    std::memcpy(&value, rest.data() + 2 * i, sizeof value);
    return value;
  };
  // A data shard has one contribution, so it is covered by at most one backup.
  RankSet covered(size);
  for (size_t i = 0; i < num_stand_ins; ++i) {
    const uint16_t d = value_at(i);
    const bool is_one =
        d < num_data_shards && header.mask.contains(Rank(d)) && covered.insert(Rank(d));
    if (!is_one)
      return Status(Code::kProtocol, concat("rank ", header.stand_ins[i].backup.value,
                                            " stands in for data shard ", d,
                                            ", which is not in the result, or twice"));
    header.stand_ins[i].data_shard = Rank(d);
  }
  for (size_t i = num_stand_ins; i < rest.size() / 2; ++i) {
    const Rank rank(value_at(i));
    if (rank.value >= size || (!header.out.empty() && rank <= header.out.back()))
      return Status(Code::kProtocol, concat("a result without rank ", rank.value,
                                            " of ", size, " members, or not in order"));
    header.out.push_back(rank);
  }
  std::sort(header.stand_ins.begin(), header.stand_ins.end());
  if (header.mask.count() == 0 || bytes[0] > std::byte{kMaxReason}) {
    return Status(Code::kProtocol, concat("a result of ", header.mask.count(),
                                          " contributions for reason ", int(bytes[0])));
  }
  return header;
}

}  // namespace aikido::collectives

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "collectives/verdict.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "base/text.h"

namespace aikido::collectives {

namespace {

// Reason u8, three zero bytes, deadline in microseconds u32; then the mask, bit r % 8
// of byte r / 8 for rank r.
constexpr size_t kHeadBytes = 8;
constexpr auto kMaxReason = static_cast<uint8_t>(straggler::Reason::kLogFull);

}  // namespace

Outcome outcome_of(const Call& call, Rank self, int32_t size,
                   std::span<const OwnedVerdict> shards) {
  Outcome outcome;
  RankSet in_all = RankSet::full(size);
  for (const auto& [owner, verdict, first_element, num_elements] : shards) {
    ShardOutcome& shard = outcome.shards.emplace_back();
    shard.owner = owner;
    shard.first_element = first_element;
    shard.num_elements = num_elements;
    verdict.mask.for_each([&](Rank r) { shard.contributors.push_back(r); });
    verdict.mask.for_each_missing([&](Rank r) { in_all.erase(r); });
    shard.scale = scale_of(call, verdict.mask.count(), size);
    if (!verdict.mask.contains(self)) outcome.skipped_by.push_back(owner);
    if (!verdict.mask.is_full() &&
        (outcome.reason.empty() || verdict.deadline > outcome.deadline)) {
      outcome.deadline = verdict.deadline;
      outcome.reason = straggler::name_of(verdict.reason);
    }
  }
  in_all.for_each([&](Rank r) { outcome.contributors.push_back(r); });
  in_all.for_each_missing([&](Rank r) { outcome.skipped.push_back(r); });
  std::sort(outcome.skipped_by.begin(), outcome.skipped_by.end());
  outcome.skipped_by.erase(
      std::unique(outcome.skipped_by.begin(), outcome.skipped_by.end()),
      outcome.skipped_by.end());
  outcome.kind =
      outcome.skipped.empty() ? OutcomeKind::kComplete : OutcomeKind::kPartial;
  if (outcome.reason.empty())
    outcome.reason = straggler::name_of(straggler::Reason::kComplete);
  return outcome;
}

std::vector<std::byte> encode_verdict(const Verdict& verdict) {
  const auto size = static_cast<size_t>(verdict.mask.world_size());
  std::vector<std::byte> out(kHeadBytes + (size + 7) / 8);
  out[0] = static_cast<std::byte>(verdict.reason);
  const auto us = static_cast<uint32_t>(std::min<int64_t>(
      verdict.deadline.count() / 1000, std::numeric_limits<uint32_t>::max()));
  std::memcpy(out.data() + 4, &us, sizeof us);
  verdict.mask.for_each([&](Rank r) {
    const auto i = static_cast<size_t>(r.value);
    out[kHeadBytes + i / 8] |= std::byte{1} << (i % 8);
  });
  return out;
}

Result<Verdict> decode_verdict(std::span<const std::byte> bytes, int32_t size) {
  const auto n = static_cast<size_t>(size);
  if (bytes.size() != kHeadBytes + (n + 7) / 8) {
    return Status(Code::kProtocol,
                  concat("a result with ", bytes.size(), " bytes of verdict"));
  }
  Verdict verdict;
  uint32_t us = 0;
  std::memcpy(&us, bytes.data() + 4, sizeof us);
  verdict.reason = static_cast<straggler::Reason>(bytes[0]);
  verdict.deadline = std::chrono::microseconds(us);
  verdict.mask = RankSet(size);
  for (size_t r = 0; r < n; ++r) {
    const auto bits = static_cast<unsigned>(bytes[kHeadBytes + r / 8]);
    if ((bits >> (r % 8) & 1u) != 0) verdict.mask.insert(Rank(static_cast<int32_t>(r)));
  }
  if (verdict.mask.count() == 0 || bytes[0] > std::byte{kMaxReason}) {
    return Status(Code::kProtocol, concat("a result of ", verdict.mask.count(),
                                          " contributions for reason ", int(bytes[0])));
  }
  return verdict;
}

}  // namespace aikido::collectives

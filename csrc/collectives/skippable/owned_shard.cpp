// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "collectives/skippable/owned_shard.h"

#include <algorithm>
#include <array>

#include "base/mutation.h"

namespace aikido::collectives {

namespace {
bool counts_twice() {
  return mutated(Mutation::kCountTwice) || mutated(Mutation::kShardTwice);
}
}  // namespace

bool OwnedShard::is_next(Rank from, uint64_t offset) {
  StagedInput& s = source(from);
  if (s.is_whole) {
    s.is_twice = mutated(Mutation::kCountTwice);
    return false;
  }
  if (offset == 0) {
    s.bytes = 0;
    s.kept.clear();
  }
  if (offset != s.bytes) return false;
  s.is_begun = true;
  return true;
}

std::byte* OwnedShard::stage(StagedInput& s, BufferPool& pool) {
  if (!s.staged) s.staged = pool.take(std::max<size_t>(1, bytes_));
  return s.staged.data();
}

std::span<const std::byte> OwnedShard::StagedInput::from(size_t begin,
                                                         size_t end) const {
  for (const Kept& piece : kept) {
    if (piece.begin > begin) {
      end = std::min(end, piece.begin);
      break;
    }
    const size_t at = begin - piece.begin, size = piece.bytes.size();
    if (at < size) return {piece.data() + at, std::min(end - begin, size - at)};
  }
  return {staged.data() + begin, end - begin};
}

bool OwnedShard::arrived(Rank from, size_t bytes) {
  StagedInput& s = source(from);
  if (!s.is_begun || s.is_whole) return false;
  s.bytes += bytes;
  s.is_whole = s.bytes == bytes_;
  return s.is_whole;
}

size_t OwnedShard::ready(const RankSet& members, const std::byte* own) const {
  size_t ready = bytes_;
  members.for_each([&](Rank r) {
    const size_t here = r != self_ ? source(r).bytes : own != nullptr ? bytes_ : 0;
    ready = std::min(ready, here);
  });
  return ready;
}

// The weighted mean of `counted`; null if the call is not weighted. A mask and the
// weights of its members do not change often, so the mean is made once for many folds.
const WeightedMean* OwnedShard::mean_of(const Counted& counted) {
  if (counted.own_weight == nullptr) return nullptr;
  if (!mean_ || !(mean_->mask == counted.mask)) {
    std::vector<double> weights;
    counted.mask.for_each([&](Rank r) {
      weights.push_back(r == self_ ? *counted.own_weight : source(r).weight);
    });
    mean_ =
        std::make_unique<MeanOfMask>(MeanOfMask{counted.mask, WeightedMean(weights)});
  }
  return &mean_->mean;
}

std::optional<double> OwnedShard::total_weight(const Counted& counted) {
  const WeightedMean* const mean = mean_of(counted);
  if (mean == nullptr) return std::nullopt;
  return mean->total();
}

void OwnedShard::fold(std::byte* out, kernels::ReduceFn reduce, const Counted& counted,
                      const std::byte* own, size_t begin, size_t end, DType dtype,
                      double scale) {
  const WeightedMean* const mean = mean_of(counted);
  std::array<const void*, 64> few;
  std::vector<const void*> many;
  const void** inputs = few.data();
  const auto n = static_cast<size_t>(counted.mask.count()) * (counts_twice() ? 2 : 1);
  if (n > few.size()) {
    many.resize(n);
    inputs = many.data();
  }
  while (begin < end) {
    // Up to the first byte that is not contiguous in one of the contributions.
    size_t next = end, i = 0;
    const auto take = [&](Rank r) {
      const auto bytes =
          r == self_ ? std::span(own + begin, end - begin) : source(r).from(begin, end);
      next = std::min(next, begin + bytes.size());
      inputs[i++] = bytes.data();
    };
    auto stand_in = counted.stand_ins.begin();
    counted.mask.for_each([&](Rank data_shard) {
      Rank r = data_shard;
      if (stand_in != counted.stand_ins.end() && stand_in->data_shard == r)
        r = (stand_in++)->backup;
      take(r);
      if (r != data_shard && mutated(Mutation::kShardTwice) &&
          source(data_shard).is_whole)
        take(data_shard);
      if (source(r).is_twice && mean == nullptr) {
        inputs[i] = inputs[i - 1];
        ++i;
      }
    });
    const size_t count = (next - begin) / size_of(dtype);
    if (mean != nullptr)
      mean->fold(out + begin, inputs, reduce, dtype, count);
    else
      reduce(out + begin, inputs, i, count, scale);
    begin = next;
  }
}

}  // namespace aikido::collectives

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "collectives/owned_shard.h"

#include <algorithm>
#include <array>

#include "base/mutation.h"

namespace aikido::collectives {

namespace {
bool counts_twice() {
  return mutated(Mutation::kCountTwice) || mutated(Mutation::kShardTwice);
}
}  // namespace

std::byte* OwnedShard::place(Rank from, uint64_t offset, BufferPool& pool) {
  Source& s = source(from);
  if (s.is_whole) {
    s.is_twice = mutated(Mutation::kCountTwice);
    return nullptr;
  }
  if (offset == 0) s.bytes = 0;
  if (offset != s.bytes) return nullptr;
  if (!s.staged) s.staged = pool.take(std::max<size_t>(1, bytes_));
  s.is_begun = true;
  return s.staged.data() + offset;
}

bool OwnedShard::arrived(Rank from, size_t bytes) {
  Source& s = source(from);
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

void OwnedShard::fold(std::byte* out, kernels::ReduceFn reduce, const Counted& counted,
                      const std::byte* own, size_t begin, size_t end, size_t element,
                      double scale) const {
  if (end == begin) return;
  std::array<const void*, 64> few;
  std::vector<const void*> many;
  const void** inputs = few.data();
  const auto n = static_cast<size_t>(counted.mask.count()) * (counts_twice() ? 2 : 1);
  if (n > few.size()) {
    many.resize(n);
    inputs = many.data();
  }
  size_t i = 0;
  auto stand_in = counted.stand_ins.begin();
  counted.mask.for_each([&](Rank data_shard) {
    Rank r = data_shard;
    if (stand_in != counted.stand_ins.end() && stand_in->data_shard == r)
      r = (stand_in++)->backup;
    inputs[i++] = (r == self_ ? own : source(r).staged.data()) + begin;
    if (r != data_shard && mutated(Mutation::kShardTwice) &&
        source(data_shard).is_whole)
      inputs[i++] = source(data_shard).staged.data() + begin;
    if (source(r).is_twice) {
      inputs[i] = inputs[i - 1];
      ++i;
    }
  });
  reduce(out + begin, inputs, i, (end - begin) / element, scale);
}

}  // namespace aikido::collectives

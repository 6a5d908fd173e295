// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Set of ranks of one group, as a bitmap: for example the ranks that have arrived, or
// the contributors of a result (the mask). A plain value: one thread at a time.

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/check.h"
#include "base/types.h"

namespace aikido {

class RankSet {
 public:
  RankSet() = default;
  // The empty set over ranks 0 .. world_size-1. Requires: world_size >= 0.
  explicit RankSet(int32_t world_size)
      : world_size_(world_size), words_((static_cast<size_t>(world_size) + 63) / 64) {}

  static RankSet full(int32_t world_size) {
    RankSet set(world_size);
    for (int32_t r = 0; r < world_size; ++r) set.insert(Rank(r));
    return set;
  }

  int32_t world_size() const { return world_size_; }
  int32_t count() const { return count_; }
  bool is_full() const { return count_ == world_size_; }

  // These three require a rank inside the world.
  bool contains(Rank rank) const { return (words_[word_of(rank)] & bit_of(rank)) != 0; }
  // True if it was not in before.
  bool insert(Rank rank) {
    uint64_t& word = words_[word_of(rank)];
    if ((word & bit_of(rank)) != 0) return false;
    word |= bit_of(rank);
    ++count_;
    return true;
  }
  // True if it was in before.
  bool erase(Rank rank) {
    uint64_t& word = words_[word_of(rank)];
    if ((word & bit_of(rank)) == 0) return false;
    word &= ~bit_of(rank);
    --count_;
    return true;
  }

  // Calls visit(Rank) for every rank that is in (not in), ascending.
  template <class Visit>
  void for_each(Visit&& visit) const {
    for (size_t i = 0; i < words_.size(); ++i) visit_bits(words_[i], i, visit);
  }
  template <class Visit>
  void for_each_missing(Visit&& visit) const {
    for (size_t i = 0; i < words_.size(); ++i)
      visit_bits(~words_[i] & valid_bits(i), i, visit);
  }

  // All of `other`, which has the same world, are in here.
  bool covers(const RankSet& other) const {
    for (size_t i = 0; i < words_.size(); ++i)
      if ((other.words_[i] & ~words_[i]) != 0) return false;
    return true;
  }

  // Bit r % 64 of word r / 64 is rank r; bits past the world are 0.
  const std::vector<uint64_t>& words() const { return words_; }

  friend bool operator==(const RankSet&, const RankSet&) = default;

 private:
  size_t word_of(Rank rank) const {
    AIKIDO_CHECK(rank.value >= 0 && rank.value < world_size_, "rank ", rank.value,
                 " of a world of ", world_size_);
    return static_cast<size_t>(rank.value) / 64;
  }
  static uint64_t bit_of(Rank rank) { return uint64_t{1} << (rank.value % 64); }
  uint64_t valid_bits(size_t word) const {
    const size_t left = static_cast<size_t>(world_size_) - word * 64;
    return left >= 64 ? ~uint64_t{0} : (uint64_t{1} << left) - 1;
  }
  template <class Visit>
  static void visit_bits(uint64_t bits, size_t word, Visit& visit) {
    for (; bits != 0; bits &= bits - 1)
      visit(Rank(static_cast<int32_t>(word * 64) + std::countr_zero(bits)));
  }

  int32_t world_size_ = 0;
  int32_t count_ = 0;
  std::vector<uint64_t> words_;
};

}  // namespace aikido

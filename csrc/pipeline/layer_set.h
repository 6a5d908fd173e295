// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Set of layers of one profile, as a bitmap. Sets in one operation must have the same
// number of layers. A plain value: one thread at a time.

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace aikido::pipeline {

class LayerSet {
 public:
  LayerSet() = default;
  // The empty set over layers 0 .. count-1.
  explicit LayerSet(size_t count) : words_((count + 63) / 64) {}

  void insert(size_t layer) { words_[layer / 64] |= uint64_t{1} << (layer % 64); }
  bool contains(size_t layer) const {
    return (words_[layer / 64] >> (layer % 64) & 1) != 0;
  }
  // True if all of `other` are in this set.
  bool contains(const LayerSet& other) const {
    for (size_t i = 0; i < words_.size(); ++i)
      if ((other.words_[i] & ~words_[i]) != 0) return false;
    return true;
  }
  void add(const LayerSet& other) {
    for (size_t i = 0; i < words_.size(); ++i) words_[i] |= other.words_[i];
  }
  void remove(const LayerSet& other) {
    for (size_t i = 0; i < words_.size(); ++i) words_[i] &= ~other.words_[i];
  }
  size_t count() const {
    size_t count = 0;
    for (const uint64_t word : words_)
      count += static_cast<size_t>(std::popcount(word));
    return count;
  }
  // In ascending order.
  template <class Visit>
  void for_each(Visit visit) const {
    for (size_t i = 0; i < words_.size(); ++i)
      for (uint64_t left = words_[i]; left != 0; left &= left - 1)
        visit(i * 64 + static_cast<size_t>(std::countr_zero(left)));
  }
  size_t hash() const {
    uint64_t mixed = 0;
    for (const uint64_t word : words_) {
      mixed = (mixed ^ word) * 0x9E37'79B9'7F4A'7C15;
      mixed ^= mixed >> 29;
    }
    return static_cast<size_t>(mixed);
  }

  friend bool operator==(const LayerSet&, const LayerSet&) = default;
  // Order in which a subset comes before its supersets.
  friend bool operator<(const LayerSet& a, const LayerSet& b) {
    return a.words_ < b.words_;
  }

 private:
  std::vector<uint64_t> words_;
};

struct LayerSetHash {
  size_t operator()(const LayerSet& set) const { return set.hash(); }
};

}  // namespace aikido::pipeline

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Earliest of many changing times, such as the next work of each link of a network.
// Tournament tree: a change costs its height. Among equal times the lower number comes
// first. One thread.

#include <cstddef>
#include <vector>

#include "base/clock.h"

namespace aikido::transport {

class Wakeups {
 public:
  static constexpr TimePoint kNever = TimePoint::max();

  // Adds an entry without a time and returns its number.
  size_t add() {
    if (size_ == room_) grow();
    return size_++;
  }
  void set(size_t i, TimePoint at) {
    if (times_[i] == at) return;
    times_[i] = at;
    for (size_t at_level = (room_ + i) / 2; at_level > 0; at_level /= 2) {
      const size_t left = first_[2 * at_level], right = first_[2 * at_level + 1];
      first_[at_level] = times_[right] < times_[left] ? right : left;
    }
  }
  // Requires: an entry exists.
  size_t earliest() const { return first_[1]; }
  TimePoint earliest_time() const { return size_ == 0 ? kNever : times_[earliest()]; }
  // Lowest number, from `from` on, with a time that is not after `now`; size() if none.
  size_t due(size_t from, TimePoint now) const {
    if (from >= size_) return size_;
    const auto is_due = [&](size_t place) { return times_[first_[place]] <= now; };
    size_t place = room_ + from;
    if (is_due(place)) return from;
    // Goes up to a place whose right neighbour is due, then down to its first due
    // entry.
    while (place % 2 == 1 || !is_due(place + 1)) {
      place /= 2;
      if (place <= 1) return size_;
    }
    for (++place; place < room_;) place = 2 * place + (is_due(2 * place) ? 0 : 1);
    return place - room_;
  }
  size_t size() const { return size_; }

 private:
  void grow() {
    room_ = room_ == 0 ? 2 : 2 * room_;
    times_.resize(room_, kNever);
    first_.resize(2 * room_);
    for (size_t i = 0; i < room_; ++i) first_[room_ + i] = i;
    for (size_t i = room_ - 1; i > 0; --i) {
      const size_t left = first_[2 * i], right = first_[2 * i + 1];
      first_[i] = times_[right] < times_[left] ? right : left;
    }
  }

  size_t size_ = 0;
  size_t room_ = 0;               // a power of two
  std::vector<TimePoint> times_;  // by number
  std::vector<size_t> first_;     // by place in the tree: earliest entry below
};

}  // namespace aikido::transport

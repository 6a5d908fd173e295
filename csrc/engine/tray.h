// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Things that go from callers to the progress thread beside its queue of work. The work
// has the ticket of its thing, and is small enough for a std::function that asks the
// heap for nothing; the memory of things is used again. Any thread.

#include <cstddef>
#include <mutex>
#include <utility>

#include "base/recycler.h"

namespace aikido::engine {

template <class T>
class Tray {
 public:
  using Ticket = typename RecycledList<T>::iterator;

  // `enter` gets the ticket, and sees that it is used. Where it throws the thing goes.
  template <class Enter>
  void put(T thing, Enter&& enter) {
    const Ticket ticket = keep(std::move(thing));
    try {
      enter(ticket);
    } catch (...) {
      take(ticket);
      throw;
    }
  }
  // Once for each ticket. What is never taken goes with the tray.
  T take(Ticket ticket) {
    const std::lock_guard lock(mutex_);
    T thing = std::move(*ticket);
    things_.erase(ticket);
    return thing;
  }

 private:
  static constexpr size_t kMaxIdleBytes = 16 << 10;

  Ticket keep(T thing) {
    const std::lock_guard lock(mutex_);
    return things_.insert(things_.end(), std::move(thing));
  }

  std::mutex mutex_;
  // Guarded by mutex_.
  Recycler recycler_{kMaxIdleBytes};
  RecycledList<T> things_{recycler_};
};

}  // namespace aikido::engine

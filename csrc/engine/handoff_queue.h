// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Hand-off queue from callers to the progress thread, beside its queue of work. Each
// item has a ticket. The work holds only the ticket, so its std::function needs no heap
// memory. The memory of items is used again. Any thread.

#include <cstddef>
#include <mutex>
#include <utility>

#include "base/recycler.h"

namespace aikido::engine {

template <class T>
class HandoffQueue {
 public:
  using Ticket = typename RecycledList<T>::iterator;

  // `enter` gets the ticket, and must ensure that take() is called. If `enter` throws,
  // the item is dropped.
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
  // Once for each ticket. Items that are never taken are destroyed with the queue.
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

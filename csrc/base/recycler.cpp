// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "base/recycler.h"

#include <new>

namespace aikido {

// As large as any block of its place, which it may be given out as later.
void* Recycler::Shelf::fresh(size_t bytes) {
  const size_t place = place_of(bytes);
  return ::operator new(bytes <= kLargest ? size_of(place) : bytes);
}

// One of each other size in turn. False: none is idle, or there is not so much room.
bool Recycler::Shelf::make_room(size_t place) {
  for (size_t num_empty = 0; !fits(place); ++num_empty) {
    if (num_empty == idle_.size() || size_of(place) > max_idle_bytes_) return false;
    last_dropped_ = (last_dropped_ + 1) % idle_.size();
    Idle*& idle = idle_[last_dropped_];
    if (idle == nullptr || last_dropped_ == place) continue;
    ::operator delete(std::exchange(idle, idle->next));
    idle_bytes_ -= size_of(last_dropped_);
    num_empty = 0;
  }
  return true;
}

void Recycler::Shelf::close() {
  for (Idle*& idle : idle_) {
    while (idle != nullptr) ::operator delete(std::exchange(idle, idle->next));
  }
  idle_bytes_ = max_idle_bytes_ = 0;
  is_closed_ = true;
  if (num_out_ == 0) delete this;
}

}  // namespace aikido

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

void Recycler::Shelf::close() {
  for (Idle*& idle : idle_) {
    while (idle != nullptr) ::operator delete(std::exchange(idle, idle->next));
  }
  idle_bytes_ = max_idle_bytes_ = 0;
  is_closed_ = true;
  if (num_out_ == 0) delete this;
}

}  // namespace aikido

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "engine/held_calls.h"

namespace aikido::engine {

void HeldCalls::enter(const std::shared_ptr<collectives::Hold>& hold,
                      std::function<void()> work) {
  if (!hold && held_.empty()) return enqueue_(std::move(work));
  held_.push_back({hold, std::move(work)});
  size_ = held_.size();
}

bool HeldCalls::release(collectives::Hold& hold, const Status& failure) {
  if (hold.is_released) return false;
  hold.is_released = true;
  hold.failure = failure;
  enter_released();
  return true;
}

void HeldCalls::give_up(const Status& why) {
  for (const Held& held : held_) {
    if (!held.hold || held.hold->is_released) continue;
    held.hold->is_released = true;
    held.hold->failure = why;
  }
  enter_released();
}

void HeldCalls::enter_released() {
  while (!held_.empty()) {
    Held& first = held_.front();
    if (first.hold && !first.hold->is_released) break;
    enqueue_(std::move(first.enter));
    held_.pop_front();
  }
  size_ = held_.size();
}

}  // namespace aikido::engine

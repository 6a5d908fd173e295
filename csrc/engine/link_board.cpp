// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "engine/link_board.h"

#include <algorithm>

namespace aikido::engine {
namespace {

// Interval at which a waiting thread checks if the group has failed.
constexpr Duration kGlance = std::chrono::milliseconds(50);

}  // namespace

LinkBoard::LinkBoard(Rank self, int32_t size) : is_linked_(static_cast<size_t>(size)) {
  is_linked_[static_cast<size_t>(self.value)] = true;
}

void LinkBoard::note_linked(Rank rank) {
  const std::lock_guard lock(mutex_);
  is_linked_[static_cast<size_t>(rank.value)] = true;
  changed_.notify_all();
}

bool LinkBoard::is_linked(Rank rank) const {
  const std::lock_guard lock(mutex_);
  return is_linked_[static_cast<size_t>(rank.value)];
}

std::vector<Rank> LinkBoard::missing() const {
  const std::lock_guard lock(mutex_);
  std::vector<Rank> missing;
  for (size_t r = 0; r < is_linked_.size(); ++r)
    if (!is_linked_[r]) missing.emplace_back(static_cast<int32_t>(r));
  return missing;
}

void LinkBoard::refuse(const Status& why) {
  const std::lock_guard lock(mutex_);
  if (refusal_) return;
  refusal_ = why;
  changed_.notify_all();
}

std::optional<Status> LinkBoard::refusal() const {
  const std::lock_guard lock(mutex_);
  return refusal_;
}

void LinkBoard::note_turned_away(const std::string& why) {
  const std::lock_guard lock(mutex_);
  turned_away_ = why;
}

std::string LinkBoard::turned_away() const {
  const std::lock_guard lock(mutex_);
  return turned_away_;
}

void LinkBoard::note_sharing_failure(const std::string& why) {
  const std::lock_guard lock(mutex_);
  sharing_failure_ = why;
}

std::string LinkBoard::sharing_failure() const {
  const std::lock_guard lock(mutex_);
  return sharing_failure_;
}

void LinkBoard::await_change(Duration longest) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, longest);
}

Status LinkBoard::await_all(const Clock& clock, TimePoint deadline,
                            const std::function<Status()>& check) {
  std::unique_lock lock(mutex_);
  const auto is_over = [this] { return refusal_ || are_all_linked(); };
  while (!changed_.wait_for(lock, std::min(deadline - clock.now(), kGlance), is_over) &&
         clock.now() < deadline) {
    lock.unlock();
    AIKIDO_TRY(check());
    lock.lock();
  }
  return refusal_.value_or(Status::ok());
}

bool LinkBoard::are_all_linked() const {
  return std::all_of(is_linked_.begin(), is_linked_.end(), [](bool b) { return b; });
}

}  // namespace aikido::engine

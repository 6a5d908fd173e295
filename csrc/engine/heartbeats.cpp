// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "engine/heartbeats.h"

#include <algorithm>
#include <utility>

namespace aikido::engine {

Heartbeats::Heartbeats(const HeartbeatOptions& options, int32_t size)
    : options_(options), members_(static_cast<size_t>(size)) {}

void Heartbeats::add(Rank rank, TimePoint now) {
  if (num_there_++ == 0) last_look_ = now;
  member(rank) = {true, false, ran_};
}

void Heartbeats::remove(Rank rank) {
  if (std::exchange(member(rank).is_there, false)) --num_there_;
}

std::vector<Rank> Heartbeats::on_time(TimePoint now) {
  std::vector<Rank> untold;
  const auto due = next_look();
  if (!due || now < *due) return untold;
  // At most one interval counts, so that a pause of this process is no silence of
  // others.
  ran_ += std::min(now - last_look_, options_.interval);
  last_look_ = now;
  for (size_t r = 0; r < members_.size(); ++r) {
    LastSign& m = members_[r];
    if (!m.is_there) continue;
    if (!std::exchange(m.is_told, false)) {
      untold.emplace_back(static_cast<int32_t>(r));
    }
  }
  return untold;
}

std::optional<Duration> Heartbeats::silence(Rank rank) const {
  if (!is_silent(rank)) return std::nullopt;
  return ran_ - members_[static_cast<size_t>(rank.value)].heard;
}

std::vector<Rank> Heartbeats::silent() const {
  std::vector<Rank> ranks;
  for (size_t r = 0; r < members_.size(); ++r) {
    const Rank rank(static_cast<int32_t>(r));
    if (is_silent(rank)) ranks.push_back(rank);
  }
  return ranks;
}

bool Heartbeats::is_anybody_silent() const {
  return std::any_of(members_.begin(), members_.end(),
                     [this](const LastSign& m) { return is_silent(m); });
}

}  // namespace aikido::engine

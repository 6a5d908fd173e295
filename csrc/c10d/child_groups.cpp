// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "c10d/child_groups.h"

#include "c10d/aikido_backend.h"

namespace aikido::adapter {

int ChildGroups::next_number(const std::string& name) {
  const std::lock_guard lock(mutex_);
  return num_by_name_[name]++;
}

void ChildGroups::add(const BackendPtr& child) {
  const std::lock_guard lock(mutex_);
  std::erase_if(children_, [](const auto& c) { return c.expired(); });
  children_.emplace_back(child);
}

std::vector<ChildGroups::BackendPtr> ChildGroups::all() {
  const std::lock_guard lock(mutex_);
  std::vector<BackendPtr> found;
  for (auto& child : children_) {
    if (BackendPtr alive = child.lock()) found.push_back(std::move(alive));
  }
  return found;
}

}  // namespace aikido::adapter

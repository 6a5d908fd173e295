// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Groups that were made from one group, which do not keep them alive. Any thread.

#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "c10d/common/compat.h"

namespace aikido::adapter {

class AikidoBackend;

class ChildGroups {
 public:
  using BackendPtr = c10::intrusive_ptr<AikidoBackend>;

  // Number of the next child with that name, from 0 on.
  int next_number(const std::string& name);
  void add(const BackendPtr& child);
  // The groups that still exist, in the order of add().
  std::vector<BackendPtr> all();

 private:
  std::mutex mutex_;
  // Guarded by mutex_.
  std::map<std::string, int> num_by_name_;
  std::vector<c10::weak_intrusive_ptr<AikidoBackend>> children_;
};

}  // namespace aikido::adapter

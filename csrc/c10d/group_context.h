// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Objects of one group that its calls use and that a change of its members replaces.
// Owned by AikidoBackend. Any thread.

#include <atomic>
#include <memory>
#include <mutex>
#include <string>

#include "base/settings.h"
#include "c10d/active_communicator.h"
#include "c10d/common/compat.h"
#include "c10d/device/device_routes.h"
#include "c10d/work.h"
#include "engine/engine.h"

namespace aikido::adapter {

struct GroupContext {
  using StorePtr = c10::intrusive_ptr<::c10d::Store>;

  const std::shared_ptr<engine::Engine> engine;
  const std::shared_ptr<AikidoWork::Services> services;
  const ResolvedSettings settings;
  const std::string name;
  ActiveCommunicator communicator;
  DeviceRoutes routes;
  std::atomic<Milliseconds> timeout;  // of calls without a time-out of their own

  mutable std::mutex mutex;
  StorePtr store;  // rendezvous store; null once members have changed; guarded by mutex

  StorePtr present_store() const {
    const std::lock_guard lock(mutex);
    return store;
  }
};

}  // namespace aikido::adapter

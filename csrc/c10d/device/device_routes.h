// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Routes of the data on devices for the present members of a group: the inner backend
// and the memory that all ranks share. New members begin with new routes, because the
// answers of the former members do not hold for them. Any thread.

#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "c10d/common/callback_thread.h"
#include "c10d/device/ipc.h"
#include "c10d/device/nccl_route.h"

namespace aikido::adapter {

class DeviceRoutes {
 public:
  // `nccl`, `ipc`: devices.nccl and devices.ipc.
  DeviceRoutes(std::string nccl, std::string ipc,
               std::shared_ptr<CallbackThread> callback_thread)
      : nccl_setting_(std::move(nccl)),
        ipc_setting_(std::move(ipc)),
        callback_thread_(std::move(callback_thread)) {
    renew();
  }

  // A call keeps the routes that it began with.
  std::shared_ptr<NcclRoute> nccl() const {
    const std::lock_guard lock(mutex_);
    return nccl_;
  }
  std::shared_ptr<Ipc> ipc() const {
    const std::lock_guard lock(mutex_);
    return ipc_;
  }
  // Begins new routes, for new members. Returns the former inner backend, which the
  // caller ends; null at first.
  std::shared_ptr<NcclRoute> renew() {
    auto nccl = std::make_shared<NcclRoute>(nccl_setting_, callback_thread_);
    auto ipc = std::make_shared<Ipc>(ipc_setting_);
    const std::lock_guard lock(mutex_);
    ipc_.swap(ipc);
    return std::exchange(nccl_, std::move(nccl));
  }

 private:
  const std::string nccl_setting_, ipc_setting_;
  const std::shared_ptr<CallbackThread> callback_thread_;
  mutable std::mutex mutex_;
  // Guarded by mutex_.
  std::shared_ptr<NcclRoute> nccl_;
  std::shared_ptr<Ipc> ipc_;
};

}  // namespace aikido::adapter

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// All differences between the supported torch versions (2.11 to 2.15). No other file
// depends on the version.

#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <torch/version.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "c10d/common/device_memory.h"

#define AIKIDO_TORCH_SINCE(minor) \
  (TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= (minor))

// Virtual functions that older versions lack are plain functions there.
#if AIKIDO_TORCH_SINCE(15)
#define AIKIDO_OVERRIDE_SINCE_2_15 override
#else
#define AIKIDO_OVERRIDE_SINCE_2_15
#endif

namespace aikido::adapter {

using Milliseconds = std::chrono::milliseconds;

// Returns true if `stream` records a graph. Older versions of torch have no such query.
// With them the module asks CUDA, if it was built with the toolkit. Otherwise the
// device refuses the operations on such a stream.
template <class Guard = c10::impl::VirtualGuardImpl>
bool is_capturing(const c10::Stream& stream) {
  const Guard guard(stream.device_type());
  if constexpr (requires { guard.isStreamCapturing(stream); }) {
    return guard.isStreamCapturing(stream);
  } else {
    const auto memory = DeviceMemory::of(stream.device_type());
    return memory && memory->is_capturing(stream);
  }
}

// Limits a time-out so that it can be added to a time. Some callers give centuries for
// "never", which overflow as nanoseconds.
inline Milliseconds bounded(Milliseconds timeout) {
  constexpr Milliseconds kTenYears = std::chrono::hours(24 * 3653);
  return std::clamp(timeout, -kTenYears, kTenYears);
}

// Time-out of one call. A negative value in the options means "unset".
inline Milliseconds timeout_or(Milliseconds of_call, Milliseconds of_group) {
  return of_call.count() > 0 ? bounded(of_call) : of_group;
}

// Members of a group from now on.
struct Reconfiguration {
  int64_t uuid = 0;
  std::vector<std::string> handles;
  bool is_ordered = true;  // the first handle is rank 0; else any order is allowed
  std::optional<Milliseconds> timeout;
};

// Backend with changing members and abort hooks. Torch has calls for changing members
// since 2.14. In older versions the rank and size of a Backend are constant, and
// changes are visible only through this class and its subclass.
class ChangingBackend : public ::c10d::Backend {
 public:
  using AbortHook = std::function<void()>;

  // Text with which the other members find this member.
  virtual std::string handle() const = 0;
  // Blocks until the group is connected to its new members.
  virtual c10::intrusive_ptr<::c10d::Work> change_members(
      const Reconfiguration& wanted) = 0;
  virtual void add_abort_hook(int64_t id, AbortHook hook) = 0;
  virtual void remove_abort_hook(int64_t id) = 0;

#ifdef C10D_BACKEND_HAS_RECONFIGURE
  bool supportsReconfigure() const final {
    return true;
  }
  ::c10d::ReconfigureHandle get_reconfigure_handle() const final {
    return handle();
  }
  // Ignores the hints, which are for other backends.
  c10::intrusive_ptr<::c10d::Work> reconfigure(
      const ::c10d::ReconfigureOptions& options) final {
    return std::visit(
        [&](const auto& handles) {
          using Handles = std::decay_t<decltype(handles)>;
          return change_members({options.uuid,
                                 {handles.begin(), handles.end()},
                                 std::is_same_v<Handles, std::vector<std::string>>,
                                 options.timeout});
        },
        options.handles);
  }

 protected:
  using ::c10d::Backend::Backend;
  void set_place(int rank, int size) {
    rank_ = rank;
    size_ = size;
  }
#else
  int getRank() const {
    return rank_now_;
  }
  int getSize() const {
    return size_now_;
  }

 protected:
  ChangingBackend(int rank, int size)
      : ::c10d::Backend(rank, size), rank_now_(rank), size_now_(size) {}
  void set_place(int rank, int size) {
    rank_now_ = rank;
    size_now_ = size;
  }

 private:
  int rank_now_;
  int size_now_;
#endif

#ifdef C10D_BACKEND_HAS_HOOKS
 public:
  void registerAbortHook(int64_t id, ::c10d::AbortHook hook) final {
    add_abort_hook(id, std::move(hook));
  }
  void unregisterAbortHook(int64_t id) final {
    remove_abort_hook(id);
  }
#endif
#if AIKIDO_TORCH_SINCE(15)
  bool supportsAbortHooks() const final {
    return true;
  }
#endif
};

}  // namespace aikido::adapter

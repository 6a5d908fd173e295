// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "c10d/device/nccl_route.h"

#include "c10d/common/error.h"
#include "c10d/common/overlap.h"
#include "c10d/device/staging.h"

namespace aikido::adapter {
namespace {

using collectives::CallKind;

// Extra time of the inner backend's time-out. The call here ends first and names the
// missing ranks; NCCL's own watchdog would end the process.
constexpr Milliseconds kGrace{30'000};

// Never destroyed, because the destruction of a Python object takes Python's lock.
NcclRoute::Finder& finder() {
  static auto* finder = new NcclRoute::Finder;
  return *finder;
}

}  // namespace

void NcclRoute::set_finder(Finder next) {
  finder() = std::move(next);
}

NcclRoute::BackendPtr NcclRoute::find(const BackendPtr& outer, c10::Device device,
                                      const StorePtr& store, Milliseconds limit,
                                      Milliseconds timeout) {
  const std::lock_guard finding(finding_);
  {
    const std::lock_guard lock(mutex_);
    if (is_found_) return backend_;
  }
  BackendPtr found = finder()(outer, setting_, device, store, limit);
  if (found) found->setTimeout(timeout + kGrace);
  const std::lock_guard lock(mutex_);
  is_found_ = true;
  backend_ = std::move(found);
  device_ = device;
  return backend_;
}

c10::Device NcclRoute::device() const {
  const std::lock_guard lock(mutex_);
  return device_;
}

void NcclRoute::set_timeout(Milliseconds timeout) {
  const std::lock_guard lock(mutex_);
  if (backend_) backend_->setTimeout(timeout + kGrace);
}

Status NcclRoute::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

void NcclRoute::run(const CopySite& site, const std::function<void()>& part) {
  try {
    try {
      part();
    } catch (...) {
      rethrow(site);
    }
  } catch (const c10::Error& error) {
    abort({Code::kAborted, error.what_without_backtrace()});
    throw;
  }
}

// True the first time, if there is a backend to end.
bool NcclRoute::give_up(const Status& why) {
  const std::lock_guard lock(mutex_);
  if (!backend_ || failure_.has_failed()) return false;
  failure_ = why;
  return true;
}

void NcclRoute::fail(std::shared_ptr<NcclRoute> self, const Status& why) {
  if (!self) return;
  const auto callback_thread = self->callback_thread_;
  const bool is_due = self->give_up(why);
  callback_thread->run([self = std::move(self), is_due] {
    if (is_due) self->backend_->abort();
  });
}

void NcclRoute::abort(const Status& why) {
  if (give_up(why)) backend_->abort();
}

void NcclRoute::shutdown() {
  BackendPtr backend;
  {
    const std::lock_guard lock(mutex_);
    if (!failure_.has_failed()) backend = backend_;
  }
  if (backend) backend->shutdown();
}

// The dtypes and ops of NCCL, except bool, because NCCL defines its sums differently.
bool nccl_takes(const collectives::Call& call, at::ScalarType dtype) {
  if (call.is_weighted) return false;  // NCCL knows no weights
  switch (call.kind) {
    case CallKind::kBarrier:
    case CallKind::kMonitoredBarrier:
    case CallKind::kSparseAllreduce:
      return false;
    default:
      break;
  }
  switch (dtype) {
    case at::kByte:
    case at::kChar:
    case at::kInt:
    case at::kLong:
    case at::kHalf:
    case at::kBFloat16:
    case at::kFloat:
    case at::kDouble:
      break;
    default:
      return false;
  }
  const bool has_op = !collectives::is_reduction(call.kind) ||
                      (call.op != ReduceOp::kBand && call.op != ReduceOp::kBor &&
                       call.op != ReduceOp::kBxor);
  return has_op && !call.is_partial();
}

at::Tensor NcclTensors::in(const at::Tensor& tensor) {
  return all_.emplace_back(plain(tensor));
}

at::Tensor NcclTensors::in(const at::Tensor& tensor,
                           const std::vector<at::Tensor>& outputs, size_t own) {
  return all_.emplace_back(apart(plain(tensor), outputs, own));
}

at::Tensor NcclTensors::out(const at::Tensor& tensor) {
  if (is_plain(tensor)) return all_.emplace_back(tensor.detach());
  const at::Tensor own = at::empty(tensor.sizes(), tensor.options());
  copies_.emplace_back(own, tensor.detach());
  return all_.emplace_back(own);
}

at::Tensor NcclTensors::in_out(const at::Tensor& tensor) {
  if (is_plain(tensor)) return all_.emplace_back(tensor.detach());
  copies_.emplace_back(plain(tensor), tensor.detach());
  return all_.emplace_back(copies_.back().first);
}

at::Tensor NcclTensors::copy_of(const at::Tensor& tensor) {
  if (!is_plain(tensor)) copies_.pop_back();
  const at::Tensor own = at::empty(tensor.sizes(), tensor.options());
  own.copy_(tensor.detach(), /*non_blocking=*/true);
  copies_.emplace_back(own, tensor.detach());
  return all_.back() = own;
}

void NcclTensors::write_back() const {
  for (const at::Tensor& tensor : all_) stay_with_current_stream(tensor);
  for (const auto& [from, to] : copies_) {
    to.copy_(from, /*non_blocking=*/true);
    stay_with_current_stream(to);
  }
}

}  // namespace aikido::adapter

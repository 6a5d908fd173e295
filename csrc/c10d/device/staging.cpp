// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "c10d/device/staging.h"

#include <ATen/Context.h>
#include <ATen/EmptyTensor.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/StreamGuard.h>

#include <algorithm>
#include <cstring>
#include <functional>

#include "base/copy.h"
#include "c10d/common/call_of.h"
#include "c10d/common/error.h"
#include "c10d/common/overlap.h"

namespace aikido::adapter {
namespace {

// Size of a part over all shards. Smaller parts cost more to queue than to copy; larger
// parts begin later.
constexpr size_t kPartBytes = size_t{4} << 20;
// Size of a copy within one shard. A smaller copy takes as long.
constexpr size_t kCopyBytes = size_t{256} << 10;
// Bytes of the result, at any place, that are collected before copies are queued.
constexpr size_t kFlushBytes = size_t{1} << 20;

const at::Tensor& unshared(const at::Tensor& tensor) {
  tensor.mutable_data_ptr();
  return tensor;
}

at::Tensor elements(const at::Tensor& tensor, size_t begin, size_t end) {
  const auto size = static_cast<size_t>(tensor.element_size());
  return tensor.view(-1).narrow(0, static_cast<int64_t>(begin / size),
                                static_cast<int64_t>((end - begin) / size));
}

}  // namespace

bool is_plain(const at::Tensor& tensor) {
  return tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg();
}

bool stands_for_itself(const at::Tensor& tensor) {
  return tensor.device().is_cpu() && is_plain(tensor);
}

at::Tensor plain(const at::Tensor& tensor) {
  return tensor.detach().resolve_conj().resolve_neg().contiguous();
}

void check_not_capturing(const CallSite& site, c10::Device device) {
  if (!is_capturing(current_stream(device))) return;
  const Status why(
      Code::kUnsupported,
      concat(
          site.call, " on rank ", site.rank, ": the current stream of ", device.str(),
          " captures a graph, and no call of aikido can be part of one, since it goes "
          "through the host; make it before or after the capture"),
      Rank(site.rank));
  raise_refusal(site, why);
}

CopySite Staging::copy_site(const at::Tensor& tensor, const char* what) const {
  return {concat(site_.call, " on rank ", site_.rank, ": ", what), tensor.device(),
          tensor.nbytes()};
}

at::Tensor Staging::host_for(const at::Tensor& tensor) {
  const auto options = tensor.options().device(at::kCPU);
  if (tensor.device().is_cpu()) return at::empty(tensor.sizes(), options);
  check_not_capturing(site_, tensor.device());
  try {
    // Not at::empty, which uses the memory of another device if there are two.
    const auto& device =
        at::globalContext().getAcceleratorHooksInterface(tensor.device().type());
    return at::detail::empty_generic(tensor.sizes(), device.getPinnedMemoryAllocator(),
                                     c10::DispatchKeySet(c10::DispatchKey::CPU),
                                     tensor.scalar_type(), std::nullopt);
  } catch (...) {
    rethrow(copy_site(tensor, "pinned memory of the host for a copy"));
  }
}

// `to` is complete once the next mark is passed.
void Staging::copy_down(const at::Tensor& from, const at::Tensor& to) {
  const c10::Device device = from.device();
  try {
    const c10::Stream stream = transfers_->down(device);
    if (std::find(devices_.begin(), devices_.end(), device) == devices_.end()) {
      Mark::of(current_stream(device)).hold_up(stream);
      devices_.push_back(device);
    }
    const c10::StreamGuard guard(stream);
    to.copy_(plain(from), /*non_blocking=*/true);
    stay_with_current_stream(from);  // the caller may drop it before the copy is done
  } catch (...) {
    rethrow(copy_site(from, "the copy to the host"));
  }
  bytes_down_ += from.nbytes();
}

void Staging::mark(size_t ready) {
  CopySite site{concat(site_.call, " on rank ", site_.rank, ": the copy to the host"),
                devices_.front(), std::exchange(bytes_down_, 0)};
  std::vector<Mark> marks;
  for (const c10::Device device : devices_)
    marks.push_back(Mark::of(transfers_->down(device)));
  staged_.downs.push_back({std::move(marks), std::move(site), ready});
}

at::Tensor Staging::in(const at::Tensor& tensor) {
  if (stands_for_itself(tensor)) return tensor;
  if (tensor.device().is_cpu()) return plain(tensor);
  at::Tensor host = host_for(tensor);
  copy_down(tensor, host);
  staged_.sources.push_back(tensor);
  return host;
}

at::Tensor Staging::out(const at::Tensor& tensor) {
  if (stands_for_itself(tensor)) return unshared(tensor);
  Copy copy{tensor, host_for(tensor), nullptr, nullptr};
  if (!tensor.device().is_cpu())
    copy.pending =
        std::make_shared<const Mark>(Mark::of(current_stream(tensor.device())));
  return staged_.copies.emplace_back(std::move(copy)).host;
}

// The copy down follows all pending work, and the copy up follows the copy down.
at::Tensor Staging::in_out(const at::Tensor& tensor) {
  if (stands_for_itself(tensor)) return unshared(tensor);
  at::Tensor host = tensor.device().is_cpu() ? plain(tensor) : host_for(tensor);
  if (!tensor.device().is_cpu()) copy_down(tensor, host);
  return staged_.copies.emplace_back(Copy{tensor, host, nullptr, nullptr}).host;
}

// An equal amount from each shard, so that all owners receive and send all the time.
at::Tensor Staging::in_out(const at::Tensor& tensor, const collectives::ShardPlan& plan,
                           const std::shared_ptr<CallbackThread>& callback_thread) {
  if (tensor.device().is_cpu() || !is_plain(tensor) || tensor.nbytes() < 2 * kPartBytes)
    return in_out(tensor);
  const at::Tensor source = tensor.detach();
  const at::Tensor host = host_for(source);
  const auto num_shards = static_cast<size_t>(plan.num_shards());
  const size_t step = std::max(kCopyBytes, kPartBytes / num_shards / 64 * 64);
  for (size_t begin = 0; begin < plan.num_bytes(0); begin += step) {
    for (int32_t s = 0; s < plan.num_shards(); ++s) {
      const size_t first = plan.first_byte(s);
      const size_t end = std::min(begin + step, plan.num_bytes(s));
      if (end > begin)
        copy_down(elements(source, first + begin, first + end),
                  elements(host, first + begin, first + end));
    }
    mark(begin + step);
  }
  auto parts = std::make_shared<ResultParts>(
      host, source, copy_site(tensor, "the copy of a part of the result from the host"),
      transfers_, callback_thread);
  // Weak, because the last reference must not end on the progress thread.
  staged_.on_result = [weak = std::weak_ptr(parts)](size_t begin, size_t end) {
    if (const auto alive = weak.lock()) alive->add(begin, end);
  };
  return staged_.copies.emplace_back(Copy{tensor, host, nullptr, std::move(parts)})
      .host;
}

Staged Staging::take() {
  if (bytes_down_ > 0) mark(0);
  return std::move(staged_);
}

void copy_block(const OutBlock& from, const InBlock& to) {
  if (from.data == to.data || from.bytes == 0) return;
  if (overlap(from.data, from.bytes, to.data, from.bytes))
    std::memmove(to.data, from.data, from.bytes);
  else
    copy(to.data, from.data, from.bytes, caching_of(from.bytes));
}

void copy_own(Staged& staged, const OutBlock& from, const InBlock& to,
              const std::vector<at::Tensor>& held) {
  if (staged.downs.empty()) return copy_block(from, to);
  staged.own_copies.push_back({from, to, held});
}

// ---- results in parts ----

ResultParts::ResultParts(at::Tensor host, at::Tensor tensor, CopySite site,
                         std::shared_ptr<Transfers> transfers,
                         std::shared_ptr<CallbackThread> callback_thread)
    : host_(std::move(host)),
      tensor_(std::move(tensor)),
      site_(std::move(site)),
      transfers_(std::move(transfers)),
      callback_thread_(std::move(callback_thread)) {}

void ResultParts::add(size_t begin, size_t end) {
  if (begin == end) return;
  {
    const std::lock_guard lock(mutex_);
    if (!ranges_.empty() && ranges_.back().second == begin) {
      ranges_.back().second = end;
    } else {
      ranges_.emplace_back(begin, end);
    }
    num_bytes_ += end - begin;
    if (num_bytes_ < kFlushBytes || std::exchange(is_flush_due_, true)) return;
  }
  callback_thread_->run([weak = weak_from_this()] {
    const auto self = weak.lock();
    if (!self) return;
    try {
      self->flush();
    } catch (...) {  // the last flush() throws it again
    }
  });
}

void ResultParts::flush() {
  const std::lock_guard turn(flushing_);
  Ranges ranges;
  if (error_) std::rethrow_exception(error_);
  if (is_dropped_) return;
  {
    const std::lock_guard lock(mutex_);
    is_flush_due_ = false;
    num_bytes_ = 0;
    ranges.swap(ranges_);
  }
  const at::AutoDispatchBelowADInplaceOrView below;
  std::sort(ranges.begin(), ranges.end());
  try {
    for (auto range = ranges.begin(); range != ranges.end();) {
      auto [begin, end] = *range;
      for (++range; range != ranges.end() && range->first == end; ++range)
        end = range->second;
      CopySite site = site_;
      site.bytes = end - begin;
      transfers_->copy_up(elements(host_, begin, end), elements(tensor_, begin, end),
                          site);
    }
  } catch (...) {
    error_ = std::current_exception();
    throw;
  }
}

void ResultParts::drop() {
  const std::lock_guard turn(flushing_);
  is_dropped_ = true;
}

}  // namespace aikido::adapter

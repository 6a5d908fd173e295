// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Contiguous host tensors that stand in for tensors on a device, for those whose
// elements do not lie one behind another, and for conjugate and negative views, whose
// memory holds other values than they show. Plain for now: the copy down blocks the
// caller, the copy up runs when the call completes. Other contiguous CPU tensors stand
// for themselves; one that shares memory until it is written gets its own here, so that
// pointers to read from and to write to agree, taken in any order.

#include "c10d/work.h"

namespace aikido::adapter {

inline bool stands_for_itself(const at::Tensor& tensor) {
  return tensor.device().is_cpu() && tensor.is_contiguous() && !tensor.is_conj() &&
         !tensor.is_neg();
}

// Of the data alone: no gradient goes through it.
inline at::Tensor stand_in(const at::Tensor& tensor) {
  return tensor.detach().resolve_conj().resolve_neg().to(at::kCPU).contiguous();
}

// To be read.
inline at::Tensor stage_in(const at::Tensor& tensor) {
  return stands_for_itself(tensor) ? tensor : stand_in(tensor);
}

inline const at::Tensor& unshared(const at::Tensor& tensor) {
  tensor.mutable_data_ptr();
  return tensor;
}

// What the caller's stream has still to do on the device of `tensor`: null for a CPU.
inline std::shared_ptr<c10::Event> pending_on_stream(const at::Tensor& tensor) {
  if (tensor.device().is_cpu()) return nullptr;
  const c10::impl::VirtualGuardImpl device(tensor.device().type());
  const auto event = std::make_shared<c10::Event>(tensor.device().type());
  event->record(device.getStream(tensor.device()));
  return event;
}

// To be written: notes what to copy back, after what is pending now.
inline at::Tensor stage_out(const at::Tensor& tensor, AikidoWork::Copies& copies) {
  if (stands_for_itself(tensor)) return unshared(tensor);
  copies.push_back({tensor,
                    at::empty(tensor.sizes(), tensor.options().device(at::kCPU)),
                    pending_on_stream(tensor)});
  return copies.back().host;
}

// Both. The copy down has waited for the stream.
inline at::Tensor stage_in_out(const at::Tensor& tensor, AikidoWork::Copies& copies) {
  if (stands_for_itself(tensor)) return unshared(tensor);
  copies.push_back({tensor, stand_in(tensor), nullptr});
  return copies.back().host;
}

}  // namespace aikido::adapter

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Conversion of tensors to the input of the core: the Call that all members compare,
// and bytes. Pure; any thread.

#include "c10d/common/error.h"
#include "c10d/common/tensor_check.h"
#include "collectives/call.h"

namespace aikido::adapter {

inline const std::byte* bytes_of(const at::Tensor& t) {
  return static_cast<const std::byte*>(t.const_data_ptr());
}
inline std::byte* mutable_bytes_of(const at::Tensor& t) {
  return static_cast<std::byte*>(t.mutable_data_ptr());
}

// Call that copies tensors like `t`. Members compare dtype and number of elements. They
// do not compare shapes, because torch does not require equal shapes for copies. A
// dtype that the core does not know travels as bytes.
inline collectives::Call call_of(collectives::CallKind kind, const at::Tensor& t) {
  collectives::Call call;
  call.kind = kind;
  call.dtype = dtype_for_copy(t);
  call.count = t.nbytes() / size_of(call.dtype);
  return call;
}

// Call that reduces tensors like `t`. Throws if aikido cannot. Members compare shapes
// too, because otherwise unrelated elements would be added up.
inline collectives::Call call_of(collectives::CallKind kind, const CallSite& site,
                                 const at::Tensor& t, const ::c10d::ReduceOp& op) {
  collectives::Call call;
  call.kind = kind;
  call.dtype = dtype_for_reduction(site, t);
  call.op = reduce_op(site, op, call.dtype);
  call.count = static_cast<uint64_t>(t.numel());
  call.shape = collectives::Shape::of({t.sizes().data(), t.sizes().size()});
  return call;
}

// Throws if no group of `size` ranks can make the call. Before that, the other ranks of
// the call receive the reason.
inline void check_call(const CallSite& site, const collectives::Call& call, int size) {
  const Status valid = collectives::validate(call, size);
  if (valid.is_ok()) return;
  const Status why(valid.code(), valid.message(), Rank(site.rank));
  raise(why, {}, site.on_refused ? site.on_refused(why) : 0);
}

}  // namespace aikido::adapter

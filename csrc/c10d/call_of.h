// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// From tensors to what the core takes: the Call that all members compare, and bytes.
// Pure; any thread.

#include "c10d/error.h"
#include "c10d/tensor_check.h"
#include "collectives/call.h"

namespace aikido::adapter {

inline const std::byte* bytes_of(const at::Tensor& t) {
  return static_cast<const std::byte*>(t.const_data_ptr());
}
inline std::byte* mutable_bytes_of(const at::Tensor& t) {
  return static_cast<std::byte*>(t.mutable_data_ptr());
}

// A call that copies tensors like `t`. Members compare dtype and number of elements:
// bytes that are only copied have no shape, and torch asks for none. A dtype that only
// we do not know travels as bytes.
inline collectives::Call call_of(collectives::CallKind kind, const at::Tensor& t) {
  collectives::Call call;
  call.kind = kind;
  call.dtype = dtype_for_copy(t);
  call.count = t.nbytes() / size_of(call.dtype);
  return call;
}

// A call that reduces tensors like `t`; throws when aikido cannot. Members compare
// shapes too: elements of different places would be added up.
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

// Throws where no group of `size` ranks can make it; the others are told first.
inline void check_call(const CallSite& site, const collectives::Call& call, int size) {
  const Status valid = collectives::validate(call, size);
  if (valid) return;
  const Status why(valid.code(), valid.message(), Rank(site.rank));
  raise(why, {}, site.on_refused ? site.on_refused(why) : 0);
}

}  // namespace aikido::adapter

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Works and futures that a communication hook gives to DistributedDataParallel.

#include <pybind11/pybind11.h>

#include <memory>

#include "bind/named_types.h"
#include "c10d/work.h"
#include "collectives/operation.h"

namespace aikido::bind {

namespace names {

inline constexpr char kRescue[] = "collections.abc.Callable[[BaseException], bool]";

}  // namespace names

// Decides about the error of a failed work: True if the work then counts as successful.
using Rescue = Named<pybind11::function, names::kRescue>;

// An object of Python that may be released without Python's lock.
std::shared_ptr<pybind11::object> shared(pybind11::object object);

// A future for a hook in C++. Once `work` is over, it has the tensor in `slot`, or
// `value` if the slot is empty. If `work` has failed, `rescue` is called with its error:
// the future has `value` if it returns True, else the error. The thread of a backward
// that is about to sleep for `work` helps it (AikidoWork::help_here). Without Python's
// lock.
c10::intrusive_ptr<c10::ivalue::Future> hook_future(
    const c10::intrusive_ptr<adapter::AikidoWork>& work, const at::Tensor& value,
    std::shared_ptr<collectives::ResultSlot> slot,
    std::shared_ptr<pybind11::object> rescue);

}  // namespace aikido::bind

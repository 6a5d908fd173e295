// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Works that a communication hook gives to DistributedDataParallel. Under Python's
// lock.

#include <pybind11/pybind11.h>

#include <memory>

#include "bind/named_types.h"
#include "c10d/work.h"

namespace aikido::bind {

namespace names {

inline constexpr char kRescue[] = "collections.abc.Callable[[BaseException], bool]";

}  // namespace names

// Decides about the error of a failed work: True if the work then counts as successful.
using Rescue = Named<pybind11::function, names::kRescue>;

// An object of Python that may be released without Python's lock.
std::shared_ptr<pybind11::object> shared(pybind11::object object);

// A work whose future has `value` in the form that torch takes from a hook in Python,
// once `work` is over. If `work` has failed, `rescue` is called with its error: the
// future has `value` if it returns True, else the error. The thread of a backward that
// is about to sleep for `work` helps it (AikidoWork::help_here).
c10::intrusive_ptr<::c10d::Work> hook_work(
    const c10::intrusive_ptr<adapter::AikidoWork>& work, const at::Tensor& value,
    std::shared_ptr<pybind11::object> rescue);

}  // namespace aikido::bind

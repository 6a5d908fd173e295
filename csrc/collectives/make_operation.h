// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Factory of operations: chooses the class of a call, equally on all members. Progress
// thread.

#include <memory>

#include "collectives/operation.h"
#include "collectives/view_host.h"

namespace aikido::collectives {

// Requires: validate(call) is ok. The arguments are those of the operation.
std::shared_ptr<Operation> make_operation(ViewHost* host, Seq seq, const Call& call,
                                          Rank first_caller);

}  // namespace aikido::collectives

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Which operation does a call: the same on all members. Progress thread.

#include <memory>

#include "collectives/operation.h"

namespace aikido::collectives {

// Requires: validate(call) is ok. The arguments are those of the operation.
std::shared_ptr<Operation> make_operation(OperationHost* host, Seq seq,
                                          const Call& call, Rank first_caller);

}  // namespace aikido::collectives

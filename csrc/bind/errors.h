// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Failures that reach Python in another way than from a bound function.

#include <exception>

namespace aikido::bind {

// Converts a failure of the engine to a Python exception of its class in
// aikido_torch.errors, in the form that torch raises unchanged from a backward. Any
// other error is returned as it is. Takes Python's lock.
std::exception_ptr as_python_error(const std::exception_ptr& error);

}  // namespace aikido::bind

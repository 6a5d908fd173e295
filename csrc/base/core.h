// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// The cores on which threads run. Any thread.

namespace aikido {

// The calling thread goes on on another of the cores that it may run on, and may run on
// all of them as before. It takes some tenths of a millisecond where the other core has
// to be woken up. False, and nothing was done: there is no other, or the system
// refuses.
bool move_to_another_core();

}  // namespace aikido

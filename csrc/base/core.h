// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// The cores on which threads run. Any thread.

namespace aikido {

// The calling thread goes on on another of the cores that it may run on, the system
// says which, and may run on all of them as before. It takes some tenths of a
// millisecond where the other core has to be woken up. For the system the thread has
// chosen these cores from then on: it gets none of those that its cpuset is given
// later. False: there is no other core, or the system refuses.
bool move_to_another_core();

}  // namespace aikido

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Remembers the process that it was made in. A child of fork() has a copy of the
// memory, but none of the threads. Any thread.

#include <cstdint>

namespace aikido {

class OwnProcess {
 public:
  OwnProcess();

  // Not a child that was forked since, by fork() and not by clone(). No system call:
  // operations ask several times.
  bool is_here() const;

 private:
  uint64_t generation_;
};

}  // namespace aikido

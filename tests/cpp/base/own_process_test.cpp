// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "base/own_process.h"

#include <sys/wait.h>
#include <unistd.h>

#include "harness/catch.h"

using aikido::OwnProcess;

TEST_CASE(
    "an object of the parent is not in a forked child, and an object of the child is",
    "[unit]") {
  const OwnProcess parents;
  CHECK(parents.is_here());
  const pid_t child = ::fork();
  if (child == 0) {
    const OwnProcess own;
    ::_exit(!parents.is_here() && own.is_here() ? 0 : 1);
  }
  REQUIRE(child > 0);
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
  CHECK(parents.is_here());
  CHECK(OwnProcess().is_here());
}

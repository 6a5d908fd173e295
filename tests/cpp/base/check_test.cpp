// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "base/check.h"

#include <cerrno>
#include <string>

#include "harness/catch.h"

namespace aikido {
namespace {

std::string message_of_failed_check() {
  try {
    AIKIDO_CHECK(1 > 2, "left ", 1, " right ", 2);
  } catch (const InternalError& error) {
    return error.what();
  }
  return "";
}

TEST_CASE("a failing check names its place, its condition and the values", "[base]") {
  const std::string message = message_of_failed_check();
  CHECK(message.find("check_test.cpp:") != std::string::npos);
  CHECK(message.find("1 > 2 does not hold, left 1 right 2.") != std::string::npos);
}

TEST_CASE("a check that holds does not evaluate its values", "[base]") {
  int looked = 0;
  AIKIDO_CHECK(true, ++looked);
  CHECK(looked == 0);
}

TEST_CASE("a check without values ends its sentence after the condition", "[base]") {
  CHECK_THROWS_WITH(
      throw_internal("a.cpp", 7, "x", ""),
      "aikido defect at a.cpp:7: x does not hold. Please report it with the log of "
      "this rank.");
}

TEST_CASE("an error number is described by name and by text", "[base]") {
  CHECK(describe_errno(EPIPE) == "EPIPE (Broken pipe)");
  CHECK(describe_errno(99999) == "errno (99999)");
  CHECK(describe_errno(EMFILE) ==
        "EMFILE (Too many open files); raise the limit of open files (ulimit -n)");
}

}  // namespace
}  // namespace aikido

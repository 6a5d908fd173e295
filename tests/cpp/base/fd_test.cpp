// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "base/fd.h"

#include <fcntl.h>

#include <array>
#include <utility>

#include "harness/catch.h"

namespace aikido {
namespace {

bool is_open(int fd) {
  return ::fcntl(fd, F_GETFD) != -1;
}

// Both ends of a new pipe, as bare numbers.
std::array<int, 2> open_pipe() {
  std::array<int, 2> ends{};
  REQUIRE(::pipe(ends.data()) == 0);
  return ends;
}

TEST_CASE("a descriptor is closed when its owner goes", "[base]") {
  const auto ends = open_pipe();
  const Fd reader(ends[0]);
  {
    const Fd writer(ends[1]);
    CHECK(is_open(ends[1]));
  }
  CHECK_FALSE(is_open(ends[1]));
  CHECK(is_open(ends[0]));
}

TEST_CASE("moving hands the descriptor over and closes the one replaced", "[base]") {
  const auto ends = open_pipe();
  Fd reader(ends[0]);
  Fd writer(ends[1]);
  writer = std::move(reader);
  CHECK_FALSE(is_open(ends[1]));
  CHECK(writer.get() == ends[0]);
  const Fd last(std::move(writer));
  CHECK(last.is_open());
  CHECK(is_open(ends[0]));
}

TEST_CASE("an empty owner holds nothing and may be reset", "[base]") {
  Fd fd;
  CHECK_FALSE(fd.is_open());
  fd.reset();
  CHECK(fd.get() == -1);
}

}  // namespace
}  // namespace aikido

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "base/fd.h"

#include <fcntl.h>
#include <sys/wait.h>

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

TEST_CASE("a move hands the descriptor over and closes the replaced one", "[base]") {
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

// Runs `body` in a forked child and returns its result, which must be below 256.
template <class Body>
int in_child(Body body) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(body());
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 255;
}

TEST_CASE("a forked child closes the private descriptors and no others", "[base]") {
  const auto ends = open_pipe();
  Fd shared(ends[0]);
  Fd secret(ends[1]);
  secret.close_in_children();
  const Fd moved(std::move(secret));
  CHECK(in_child([&] {
          return (is_open(ends[0]) ? 1 : 0) + (is_open(ends[1]) ? 2 : 0);
        }) == 1);
  CHECK(is_open(ends[1]));  // the parent still has its descriptor
  CHECK(in_child([&] { return is_open(ends[1]) ? 2 : 0; }) ==
        0);  // each further child closes it again
}

TEST_CASE(
    "a new descriptor with the number of a closed private one stays open in a child",
    "[base]") {
  const auto ends = open_pipe();
  {
    Fd secret(ends[1]);
    secret.close_in_children();
  }
  CHECK_FALSE(is_open(ends[1]));
  const Fd reader(ends[0]);
  const Fd again(::dup(ends[0]));
  REQUIRE(again.get() == ends[1]);  // a new descriptor with the same number
  CHECK(in_child([&] { return is_open(ends[1]) ? 1 : 0; }) == 1);
}

TEST_CASE("a child's copy of an owner does not close a descriptor of the same number",
          "[base]") {
  const auto ends = open_pipe();
  const Fd reader(ends[0]);
  Fd secret(ends[1]);
  secret.close_in_children();
  CHECK(in_child([&] {
          if (::dup(ends[0]) != ends[1]) return 2;  // reuses the number
          secret.reset();
          return is_open(ends[1]) ? 1 : 0;
        }) == 1);
}

TEST_CASE("an empty owner has no descriptor and may be reset", "[base]") {
  Fd fd;
  CHECK_FALSE(fd.is_open());
  fd.reset();
  CHECK(fd.get() == -1);
}

}  // namespace
}  // namespace aikido

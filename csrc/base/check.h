// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Invariants of our own. A failing check throws InternalError with the place and the
// values; the edge of the progress thread catches it and fails the group. Never
// reachable from what a user passed or what came over the wire: those are Status
// values.

#include <cstdint>
#include <sstream>
#include <stdexcept>
#include <string>

namespace aikido {

class InternalError : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

// Text of all arguments, one after another, as operator<< prints them. Cold, as what
// is for failures is, for which most texts are: compilers then keep what leads there
// out of the way of the rest.
template <class... Args>
[[gnu::cold]] std::string concat(const Args&... args) {
  std::ostringstream out;
  (out << ... << args);
  return out.str();
}

[[noreturn, gnu::cold]] void throw_internal(const char* file, int line,
                                            const char* condition,
                                            const std::string& values);

// "EPIPE (Broken pipe)" for a value of errno, and what to do where that is clear.
std::string describe_errno(int error);

}  // namespace aikido

#define AIKIDO_CHECK(condition, ...)                           \
  do {                                                         \
    if (!(condition)) [[unlikely]]                             \
      ::aikido::throw_internal(__FILE__, __LINE__, #condition, \
                               ::aikido::concat(__VA_ARGS__)); \
  } while (false)

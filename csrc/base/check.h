// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Checks of internal invariants. A failing check throws InternalError with the place
// and the values. The edge of the progress thread catches it and fails the group.
// Arguments of users and bytes from the wire never reach a check: they are Status
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

// Text of all arguments, one after another, as operator<< prints them. Cold, because
// most texts are about failures: compilers then keep such code away from the hot code.
template <class... Args>
[[gnu::cold]] std::string concat(const Args&... args) {
  std::ostringstream out;
  (out << ... << args);
  return out.str();
}

[[noreturn, gnu::cold]] void throw_internal(const char* file, int line,
                                            const char* condition,
                                            const std::string& values);

// "EPIPE (Broken pipe)" for a value of errno, and a remedy if there is a clear one.
std::string describe_errno(int error);

}  // namespace aikido

#define AIKIDO_CHECK(condition, ...)                           \
  do {                                                         \
    if (!(condition)) [[unlikely]]                             \
      ::aikido::throw_internal(__FILE__, __LINE__, #condition, \
                               ::aikido::concat(__VA_ARGS__)); \
  } while (false)

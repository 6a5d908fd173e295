// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Functions that are fuzzed. A target accepts any bytes. It throws if the code under
// test breaks a guarantee; the sanitizers find other errors. The same functions are run
// by libFuzzer (fuzzer.cpp) and, on seeds and on random bytes, by the tests
// (replay.cpp).

#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace aikido::fuzz {

using Bytes = std::vector<uint8_t>;

struct Target {
  const char* name;
  void (*run)(std::span<const uint8_t> input);
  // Seed inputs that reach deep code; a fuzzer starts from them.
  std::vector<Bytes> (*seeds)();
};

extern const Target kGreeting;  // HELLO and WELCOME
extern const Target kFrame;     // frame header, call and policy
extern const Target kHandle;    // text of a member's handle
extern const Target kView;      // view messages, as a member handles them
extern const Target kStream;    // a group with active calls, and hostile members

inline void require(bool condition, const std::string& promise) {
  if (!condition) throw std::logic_error("broken promise: " + promise);
}

}  // namespace aikido::fuzz

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// What is fuzzed. A target eats any bytes; it throws when the code under test breaks
// one of its promises, and the sanitizers find the rest. The same functions are run by
// libFuzzer (fuzzer.cpp) and, on seeds and on random bytes, by the tests (replay.cpp).

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
  // Inputs that reach deep: what a fuzzer starts from.
  std::vector<Bytes> (*seeds)();
};

extern const Target kGreeting;  // HELLO and WELCOME
extern const Target kFrame;     // frame header, call and policy
extern const Target kHandle;    // text that stands for a member
extern const Target kView;      // what a member makes of messages about the view
extern const Target kStream;    // a group with calls under way, and hostile members

inline void require(bool condition, const std::string& promise) {
  if (!condition) throw std::logic_error("broken promise: " + promise);
}

}  // namespace aikido::fuzz

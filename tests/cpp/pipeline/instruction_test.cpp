// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "pipeline/instruction.h"

#include <set>

#include "harness/catch.h"

namespace aikido::pipeline {
namespace {

const std::vector<std::pair<Instruction, std::string>>& examples() {
  static const std::vector<std::pair<Instruction, std::string>> all = {
      {{Opcode::kForward, 1, 3, 2, -1}, "F1.3@2"},
      {{Opcode::kRecompute, 1, 3, 2, -1}, "C1.3@2"},
      {{Opcode::kBackward, 10, 0, 0, -1}, "B10.0@0"},
      {{Opcode::kInputGradient, 1, 13, 2, -1}, "I1.13@2"},
      {{Opcode::kWeightGradient, 1, 3, 12, -1}, "W1.3@12"},
      {{Opcode::kSendActivation, 1, 3, -1, 0}, "A1.3>0"},
      {{Opcode::kReceiveActivation, 1, 3, -1, 10}, "A1.3<10"},
      {{Opcode::kSendGradient, 1, 3, -1, 0}, "G1.3>0"},
      {{Opcode::kReceiveGradient, 1, 3, -1, 2}, "G1.3<2"},
      {{Opcode::kReduce, 1, -1, 3, -1}, "reduce1@3"},
      {{Opcode::kStep, 1, -1, 3, -1}, "step1@3"},
      {{Opcode::kPush, 1, -1, 2, -1}, "push1@2"},
      {{Opcode::kPop, 1, -1, 2, -1}, "pop1@2"},
  };
  return all;
}

TEST_CASE("an instruction is a word, and reading the word gives it back") {
  CHECK(examples().size() == kNumKinds);
  for (const auto& [instruction, text] : examples()) {
    CHECK(to_text(instruction) == text);
    CHECK(parse_instruction(text) == instruction);
  }
}

TEST_CASE("text that is no instruction is refused") {
  for (const char* text : {"",          "F",         "F1",        "F1.3",
                           "F1.3@",     "F1.3>0",    "F1.3@2x",   "F1.3@-1",
                           "F-1.3@2",   "F1.-0@2",   "F01.3@2",   "F1.3@02",
                           "f1.3@2",    "X1.3@2",    "A1.3",      "A1.3@2",
                           "A1.3=2",    "A1.3>",     "A1>0",      "G1.3>0@1",
                           "reduce1",   "reduce1.2", "step1.0@3", "step@3",
                           "pushed1@2", "pop1@2 ",   " pop1@2",   "F1.3@99999999999",
                           "F1,3@2"}) {
    CAPTURE(text);
    CHECK_FALSE(parse_instruction(text).has_value());
  }
}

TEST_CASE("each kind of instruction has its own name and properties") {
  std::set<std::string_view> names;
  int num_compute = 0, num_messages = 0, num_sends = 0;
  for (const auto& [instruction, text] : examples()) {
    names.insert(name_of(instruction.kind));
    num_compute += is_compute(instruction.kind) ? 1 : 0;
    num_messages += is_message(instruction.kind) ? 1 : 0;
    num_sends += is_send(instruction.kind) ? 1 : 0;
    CHECK(is_send(instruction.kind) == (text.find('>') != std::string::npos));
  }
  CHECK(names.size() == kNumKinds);
  CHECK(num_compute == 5);
  CHECK(num_messages == 4);
  CHECK(num_sends == 2);
  CHECK(name_of(Opcode::kWeightGradient) == "weight_gradient");
}

}  // namespace
}  // namespace aikido::pipeline

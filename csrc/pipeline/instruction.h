// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Instruction of a rank of a pipeline. As text, with stage 1, micro-batch 3, weights of
// version 2 and rank 0 as the other side:
//
//   F1.3@2       forward                      A1.3<0    receive the input
//   C1.3@2       forward again (recompute)    A1.3>0    send the output
//   B1.3@2       backward, all of it          G1.3<0    receive its gradient
//   I1.3@2       gradient of the input        G1.3>0    send the input's gradient
//   W1.3@2       gradient of the weights      reduce1@3 add gradients of the replicas
//   push1@2      keep version 2               step1@3   make version 3 of them
//   pop1@2       version 2 is needed no more
//
// The stage is always a stage of the executing rank. schedule.h defines which
// instruction waits for which. Plain values; any thread.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace aikido::pipeline {

enum class Opcode : uint8_t {
  kForward,
  kRecompute,       // outputs of layers, from the stage's input, for the backward
  kBackward,        // of input and weights
  kInputGradient,   // first half of a backward
  kWeightGradient,  // second half; only the step waits for it
  kSendActivation,
  kReceiveActivation,
  kSendGradient,
  kReceiveGradient,
  kReduce,  // gradients that this rank has collected since the last reduce
  kStep,
  kPush,
  kPop,
};
inline constexpr int kNumKinds = 13;

struct Instruction {
  Opcode kind = Opcode::kForward;
  int stage = 0;
  int micro_batch = -1;  // computing and messages
  int version = -1;      // version of the weights that is read, made or kept
  int peer = -1;         // messages: rank at the other side
  friend bool operator==(const Instruction&, const Instruction&) = default;
};

// True for instructions that occupy the device: F, C, B, I and W.
bool is_compute(Opcode kind);
bool is_message(Opcode kind);
bool is_send(Opcode kind);
// Name in Python, such as "send_activation".
std::string_view name_of(Opcode kind);

std::string to_text(const Instruction& instruction);
// Empty if the text is no instruction.
std::optional<Instruction> parse_instruction(std::string_view text);

}  // namespace aikido::pipeline

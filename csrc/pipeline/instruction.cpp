// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "pipeline/instruction.h"

#include <array>
#include <charconv>

#include "base/check.h"

namespace aikido::pipeline {
namespace {

struct Form {
  Opcode kind;
  std::string_view word;  // before the number of the stage
  char arrow;             // before the peer of a message
  std::string_view name;
};

constexpr std::array<Form, kNumKinds> kForms = {{
    {Opcode::kForward, "F", '\0', "forward"},
    {Opcode::kRecompute, "C", '\0', "recompute"},
    {Opcode::kBackward, "B", '\0', "backward"},
    {Opcode::kInputGradient, "I", '\0', "input_gradient"},
    {Opcode::kWeightGradient, "W", '\0', "weight_gradient"},
    {Opcode::kSendActivation, "A", '>', "send_activation"},
    {Opcode::kReceiveActivation, "A", '<', "receive_activation"},
    {Opcode::kSendGradient, "G", '>', "send_gradient"},
    {Opcode::kReceiveGradient, "G", '<', "receive_gradient"},
    {Opcode::kReduce, "reduce", '\0', "reduce"},
    {Opcode::kStep, "step", '\0', "step"},
    {Opcode::kPush, "push", '\0', "push"},
    {Opcode::kPop, "pop", '\0', "pop"},
}};

const Form& form_of(Opcode kind) {
  return kForms[static_cast<size_t>(kind)];
}

// Takes a number from the front of the text. Empty: there is none, or it has leading
// zeros, which would be lost in the text form.
std::optional<int> take_number(std::string_view& text) {
  int value = 0;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), value);
  const auto length = static_cast<size_t>(end - text.data());
  if (error != std::errc{} || text[0] == '-' || (text[0] == '0' && length > 1))
    return std::nullopt;
  text.remove_prefix(length);
  return value;
}

// Takes a sign and a number from the front.
bool take(std::string_view& text, char sign, int& number) {
  if (text.empty() || text[0] != sign) return false;
  text.remove_prefix(1);
  const auto value = take_number(text);
  if (value) number = *value;
  return value.has_value();
}

std::optional<Instruction> parse_as(const Form& form, std::string_view text) {
  if (!text.starts_with(form.word)) return std::nullopt;
  text.remove_prefix(form.word.size());
  const auto stage = take_number(text);
  if (!stage) return std::nullopt;
  Instruction read{form.kind, *stage, -1, -1, -1};
  const bool has_batch = is_compute(form.kind) || is_message(form.kind);
  if (has_batch && !take(text, '.', read.micro_batch)) return std::nullopt;
  const bool is_whole = is_message(form.kind) ? take(text, form.arrow, read.peer)
                                              : take(text, '@', read.version);
  if (!is_whole || !text.empty()) return std::nullopt;
  return read;
}

}  // namespace

bool is_compute(Opcode kind) {
  return kind <= Opcode::kWeightGradient;
}

bool is_message(Opcode kind) {
  return form_of(kind).arrow != '\0';
}

bool is_send(Opcode kind) {
  return form_of(kind).arrow == '>';
}

std::string_view name_of(Opcode kind) {
  return form_of(kind).name;
}

std::string to_text(const Instruction& instruction) {
  const Form& form = form_of(instruction.kind);
  std::string text = concat(form.word, instruction.stage);
  if (is_compute(form.kind) || is_message(form.kind))
    text += concat('.', instruction.micro_batch);
  return text + (is_message(form.kind) ? concat(form.arrow, instruction.peer)
                                       : concat('@', instruction.version));
}

std::optional<Instruction> parse_instruction(std::string_view text) {
  for (const Form& form : kForms)
    if (const auto read = parse_as(form, text)) return read;
  return std::nullopt;
}

}  // namespace aikido::pipeline

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "pipeline/layout.h"

#include "harness/catch.h"
#include "pipeline/validate.h"

namespace aikido::pipeline {
namespace {

Result<Schedule> laid_out(const std::vector<int>& replicas,
                          const std::vector<int>& warmups, int micro_batches,
                          WeightPolicy weights, const std::vector<int>& per_step,
                          bool overlap_sums = false) {
  Schedule schedule{"test", micro_batches, weights, stages_in_a_row(replicas), {}};
  const auto programs = one_f_one_b_order(schedule.stages, even_turns(schedule.stages),
                                          warmups, micro_batches);
  return lay_out(schedule, programs, {per_step, overlap_sums});
}

std::string text_of(const Program& program) {
  std::string text;
  for (const Instruction& it : program) text += (text.empty() ? "" : " ") + to_text(it);
  return text;
}

TEST_CASE("messages are at both ends, and a step follows the last gradient") {
  auto schedule = laid_out({1, 1}, {1, 0}, 2, WeightPolicy::kFlush, {2, 2});
  REQUIRE(schedule.is_ok());
  CHECK(text_of(schedule->ranks[0]) ==
        "F0.0@0 A0.0>1 F0.1@0 A0.1>1 G0.0<1 B0.0@0 G0.1<1 B0.1@0 step0@1");
  CHECK(text_of(schedule->ranks[1]) ==
        "A1.0<0 F1.0@0 A1.1<0 B1.0@0 G1.0>0 F1.1@0 B1.1@0 G1.1>0 step1@1");
}

TEST_CASE("a version that is needed after the next step is kept until then") {
  auto schedule = laid_out({1, 1}, {1, 0}, 3, WeightPolicy::kStash, {1, 1});
  REQUIRE(schedule.is_ok());
  CHECK(
      text_of(schedule->ranks[0]) ==
      "F0.0@0 A0.0>1 F0.1@0 A0.1>1 G0.0<1 B0.0@0 push0@0 step0@1 F0.2@1 A0.2>1 G0.1<1 "
      "B0.1@0 pop0@0 push0@1 step0@2 G0.2<1 B0.2@1 pop0@1 step0@3");
  CHECK(
      text_of(schedule->ranks[1]) ==
      "A1.0<0 F1.0@0 A1.1<0 B1.0@0 G1.0>0 step1@1 F1.1@1 B1.1@1 A1.2<0 G1.1>0 step1@2 "
      "F1.2@2 B1.2@2 G1.2>0 step1@3");
}

TEST_CASE("replicas add up their gradients, also those that have none") {
  auto schedule = laid_out({1, 2}, {2, 0}, 3, WeightPolicy::kVerticalSync, {1, 1});
  REQUIRE(schedule.is_ok());
  CHECK(validate(*schedule, {}).is_ok());
  CHECK(text_of(schedule->ranks[1]) ==
        "A1.0<0 F1.0@0 A1.2<0 B1.0@0 G1.0>0 reduce1@1 push1@0 step1@1 reduce1@2 F1.2@0 "
        "step1@2 B1.2@0 pop1@0 G1.2>0 reduce1@3 step1@3");
}

TEST_CASE("a replica that is ahead adds to no update that is not its turn") {
  std::vector<Program> programs(2);
  for (int b = 0; b < 12; b += 2) {
    programs[0].push_back({Opcode::kForward, 0, b, -1, -1});
    programs[0].push_back({Opcode::kBackward, 0, b, -1, -1});
    programs[1].push_back({Opcode::kForward, 0, b + 1, -1, -1});
  }
  for (int b = 1; b < 12; b += 2)
    programs[1].push_back({Opcode::kBackward, 0, b, -1, -1});
  auto schedule =
      lay_out({"test", 12, WeightPolicy::kStash, {{0, 1}}, {}}, programs, {{2}, false});
  REQUIRE(schedule.is_ok());
  CHECK(validate(*schedule, {}).is_ok());
  std::string gradients;
  for (const Instruction& it : schedule->ranks[0])
    if (it.kind == Opcode::kBackward || it.kind == Opcode::kReduce)
      gradients += it.kind == Opcode::kReduce ? concat(" reduce", it.version)
                                              : concat(" B", it.micro_batch);
  CHECK(gradients ==
        " B0 reduce1 B2 reduce2 B4 reduce3 B6 reduce4 B8 reduce5 B10 reduce6");
}

TEST_CASE("a step that is put off comes before the next reduce of its rank") {
  auto schedule = laid_out({2}, {0}, 6, WeightPolicy::kStash, {2}, true);
  REQUIRE(schedule.is_ok());
  CHECK(validate(*schedule, {}).is_ok());
  CHECK(text_of(schedule->ranks[0]) ==
        "F0.0@0 B0.0@0 reduce0@1 F0.2@0 B0.2@0 step0@1 reduce0@2 F0.4@1 B0.4@1 step0@2 "
        "reduce0@3 step0@3");
  auto alone = laid_out({1, 1}, {1, 0}, 3, WeightPolicy::kStash, {1, 1}, true);
  REQUIRE(alone.is_ok());
  CHECK(*alone == *laid_out({1, 1}, {1, 0}, 3, WeightPolicy::kStash, {1, 1}));
}

TEST_CASE("an order in which ranks wait for each other is refused") {
  auto few = laid_out({1, 2}, {0, 1}, 4, WeightPolicy::kFlush, {4, 4});
  REQUIRE_FALSE(few.is_ok());
  CHECK(few.status().message() ==
        "the ranks wait for each other: rank 0 for what B0.0@0 needs, rank 1 for what "
        "F1.2@0 needs, rank 2 for what F1.1@0 needs; with weights flush this order "
        "cannot be carried out");
  auto two = laid_out({1, 1, 1}, {2, 1, 0}, 4, WeightPolicy::kTwoVersions, {1, 1, 1});
  REQUIRE_FALSE(two.is_ok());
  CHECK(two.status().message().find("rank 0 for what F0.") != std::string::npos);
}

}  // namespace
}  // namespace aikido::pipeline

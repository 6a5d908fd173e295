// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "pipeline/schedule.h"

#include <random>

#include "harness/catch.h"
#include "pipeline/random_schedule.h"

namespace aikido::pipeline {
namespace {

constexpr const char* kText = R"(schedule mine
micro_batches 2
weights flush
stage 0: 0
stage 1: 1 2
rank 0: F0.0@0 A0.0>1 F0.1@0 A0.1>2
    G0.0<1 B0.0@0 G0.1<2 B0.1@0 step0@1
rank 1: A1.0<0 F1.0@0 B1.0@0 G1.0>0 reduce1@1 step1@1
rank 2: A1.1<0 F1.1@0 B1.1@0 G1.1>0 reduce1@1 step1@1
)";

TEST_CASE("a schedule is read from text") {
  auto read = parse_schedule(kText);
  REQUIRE(read.is_ok());
  CHECK(read->name == "mine");
  CHECK(read->num_micro_batches == 2);
  CHECK(read->weights == WeightPolicy::kFlush);
  CHECK(read->stages == std::vector<std::vector<int>>{{0}, {1, 2}});
  REQUIRE(read->num_ranks() == 3);
  CHECK(read->ranks[0].size() == 9);
  CHECK(read->ranks[0][4] == Instruction{Opcode::kReceiveGradient, 0, 0, -1, 1});
  CHECK(place_of(*read, 2, 3) == "rank 2, instruction 3 (G1.1>0)");
}

TEST_CASE("comments, empty lines and other spaces do not count") {
  const auto read = parse_schedule(kText);
  std::string text = "# a comment\r\n\n" + std::string(kText);
  text.replace(text.find("A0.1>2"), 6, "  A0.1>2\t# to the second replica\n\t# B9.9@9");
  auto other = parse_schedule(text);
  REQUIRE(other.is_ok());
  CHECK(*other == *Result<Schedule>(read));
}

TEST_CASE("text that is written is read as the same schedule") {
  std::mt19937 dice(11);
  for (int i = 0; i < 300; ++i) {
    const Schedule schedule = testing::RandomSchedule(dice).make();
    const std::string text = to_text(schedule);
    for (size_t at = 0; at < text.size();) {
      const size_t end = text.find('\n', at);
      REQUIRE(end - at <= 88);
      at = end + 1;
    }
    auto read = parse_schedule(text);
    REQUIRE(read.is_ok());
    REQUIRE(*read == schedule);
  }
}

// Replaces one part of the text, and checks the error.
void check_refused(const std::string& part, const std::string& by,
                   const std::string& sentence) {
  std::string text = kText;
  text.replace(text.find(part), part.size(), by);
  CAPTURE(text);
  auto read = parse_schedule(text);
  REQUIRE_FALSE(read.is_ok());
  CHECK(read.status().code() == Code::kInvalidArgument);
  CHECK(read.status().message() == sentence);
}

TEST_CASE("unreadable text is refused with its line and word") {
  check_refused("B0.0@0", "B0.0",
                "line 7: \"B0.0\" is no instruction; some are F0.3@1, B0.3@1, A0.3>1, "
                "G0.3<1, reduce0@1, step0@1, push0@1, pop0@1");
  check_refused("micro_batches 2", "micro_batches two", "line 2: \"two\" is no number");
  check_refused("micro_batches 2", "micro_batches -2", "line 2: \"-2\" is no number");
  check_refused("weights flush", "weights new",
                "line 3: \"new\" is no policy for weights; there are flush, stash, "
                "vertical_sync and 2bw");
  check_refused("stage 1: 1 2", "stage 1: 1 b", "line 5: \"b\" is no rank");
  check_refused(
      "stage 1:", "stage 2:", "line 5: \"2:\" after stage, where 1: is the next");
  check_refused("rank 1:", "rank 1",
                "line 8: \"1\" after rank; a line is rank <rank>: <instruction> ...");
  check_refused("rank 0:", "rank",
                "line 6: \"F0.0@0\" after rank; a line is rank <rank>: <instruction> "
                "...");
  check_refused("rank 2:", "ranks 2:",
                "line 9: \"ranks\" begins no line; a line begins with schedule, "
                "micro_batches, weights, stage, rank or a space");
  check_refused("stage 0:", " stage 0:",
                "line 4: \"stage\" goes on with nothing; only the instructions of a "
                "rank may go on in a line that begins with a space");
  check_refused("schedule mine", "schedule",
                "line 1: \"schedule\" takes one word, and there is none");
  check_refused("schedule mine", "schedule my own",
                "line 1: \"schedule\" takes one word, and \"own\" is more");
  check_refused(
      "stage 0:", "weights stash\nstage 0:", "line 4: \"weights\" is there twice");
  check_refused("stage 0:", "micro_batches 2\nstage 0:",
                "line 4: \"micro_batches\" is there twice");
  check_refused("schedule mine", "", "there is no line schedule <name>");
  check_refused("micro_batches 2", "", "there is no line micro_batches <number>");
  check_refused("weights flush", "", "there is no line weights <policy>");
}

TEST_CASE("nonsense is refused in a short and printable sentence") {
  auto read = parse_schedule("schedule x\n" + std::string(10'000, '\x01'));
  REQUIRE_FALSE(read.is_ok());
  CHECK(read.status().message().find("line 2: \"????") == 0);
  CHECK(read.status().message().size() < 200);
  CHECK_FALSE(parse_schedule("").is_ok());
}

TEST_CASE("policies are known by their names") {
  for (const auto policy : {WeightPolicy::kFlush, WeightPolicy::kStash,
                            WeightPolicy::kVerticalSync, WeightPolicy::kTwoVersions})
    CHECK(*weight_policy_named(name_of(policy)) == policy);
  CHECK(name_of(WeightPolicy::kTwoVersions) == "2bw");
}

}  // namespace
}  // namespace aikido::pipeline

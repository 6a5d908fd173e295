// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "pipeline/validate.h"

#include "harness/catch.h"

namespace aikido::pipeline {
namespace {

constexpr const char* kFlush = R"(schedule flush
micro_batches 2
weights flush
stage 0: 0
stage 1: 1
rank 0: F0.0@0 A0.0>1 F0.1@0 A0.1>1 G0.0<1 B0.0@0 G0.1<1 B0.1@0 step0@1
rank 1: A1.0<0 F1.0@0 A1.1<0 B1.0@0 G1.0>0 F1.1@0 I1.1@0 G1.1>0 W1.1@0 step1@1
)";

constexpr const char* kStash = R"(schedule stash
micro_batches 3
weights stash
stage 0: 0
stage 1: 1
rank 0: F0.0@0 A0.0>1 F0.1@0 A0.1>1 G0.0<1 B0.0@0 push0@0 step0@1 F0.2@1 A0.2>1 G0.1<1
    B0.1@0 pop0@0 push0@1 step0@2 G0.2<1 B0.2@1 pop0@1 step0@3
rank 1: A1.0<0 F1.0@0 A1.1<0 B1.0@0 G1.0>0 step1@1 F1.1@1 B1.1@1 A1.2<0 G1.1>0 step1@2
    F1.2@2 B1.2@2 G1.2>0 step1@3
)";

constexpr const char* kReplicas = R"(schedule replicas
micro_batches 2
weights flush
stage 0: 0 1
rank 0: F0.0@0 C0.0@0 B0.0@0 reduce0@1 step0@1
rank 1: F0.1@0 B0.1@0 reduce0@1 step0@1
)";

Result<Validation> validated(std::string text, const std::string& part = "",
                             const std::string& by = "",
                             const ValidateOptions& options = {}) {
  if (!part.empty()) text.replace(text.find(part), part.size(), by);
  auto schedule = parse_schedule(text);
  if (!schedule) FAIL(schedule.status().message());
  return validate(*schedule, options);
}

void check_refused(const char* text, const std::string& part, const std::string& by,
                   const std::string& sentence) {
  auto validation = validated(text, part, by);
  CAPTURE(text, part, by);
  REQUIRE_FALSE(validation.is_ok());
  CHECK(validation.status().code() == Code::kInvalidArgument);
  CHECK(validation.status().message() == sentence);
  if (sentence.find("rank ") == 0)
    CHECK(validation.status().culprit() == Rank{std::stoi(sentence.substr(5))});
}

TEST_CASE("the needs of a valid schedule are counted") {
  auto flush = validated(kFlush);
  REQUIRE(flush.is_ok());
  CHECK(flush->ranks[0].activations == 2);
  CHECK(flush->ranks[1].activations == 1);
  CHECK(flush->ranks[1].versions == 1);
  CHECK(flush->lags == std::vector<std::vector<int>>{{0}, {0}});
  auto stash = validated(kStash);
  REQUIRE(stash.is_ok());
  CHECK(stash->ranks[0].versions == 2);
  CHECK(stash->ranks[1].versions == 1);
  CHECK(stash->lags == std::vector<std::vector<int>>{{0, 1, 1}, {0, 0, 0}});
  auto replicas = validated(kReplicas);
  REQUIRE(replicas.is_ok());
  CHECK(replicas->ranks[0].activations == 1);
  CHECK(replicas->ranks[0].inputs == 1);
  CHECK(replicas->ranks[1].inputs == 0);
}

TEST_CASE("memory has a limit if one is set") {
  ValidateOptions options;
  options.max_activations = 2;
  CHECK(validated(kFlush, "", "", options).is_ok());
  options.max_activations = 1;
  CHECK(validated(kFlush, "", "", options).status().message() ==
        "rank 0, instruction 2 (F0.1@0): the rank holds activations of 2 micro-batches "
        "here; the limit is 1");
  options.max_activations = 0;
  CHECK(validated(kReplicas, "", "", options).status().message() ==
        "rank 0, instruction 1 (C0.0@0): the rank holds activations of 1 micro-batches "
        "here; the limit is 0");
}

TEST_CASE("lines of stages that make no sense are refused") {
  check_refused(kFlush, "micro_batches 2", "micro_batches 0",
                "the schedule has 0 micro-batches; it needs 1 or more");
  check_refused(kReplicas, "stage 0: 0 1\n", "",
                "the schedule has no stages; it needs 1 or more");
  check_refused(kFlush, "stage 1: 1", "stage 1:", "no rank has stage 1");
  check_refused(kFlush, "stage 1: 1", "stage 1: 2",
                "stage 1 is on rank 2, and there are 2 ranks, from 0 on");
  check_refused(kFlush, "stage 1: 1", "stage 1: 1 0 1", "stage 1 is on rank 1 twice");
  check_refused(
      kFlush, "micro_batches 2", "micro_batches 2000000000",
      "2000000000 micro-batches on 2 stages need 4000000000 forwards, and the "
      "ranks have 4");
  check_refused(kReplicas, "micro_batches 2", "micro_batches 3",
                "no rank of stage 0 does micro-batch 2");
}

TEST_CASE("numbers out of range are refused") {
  check_refused(
      kFlush, "step0@1", "step2@1",
      "rank 0, instruction 8 (step2@1): there is no stage 2; there are 2, from "
      "0 on");
  check_refused(kFlush, "step0@1", "step1@1",
                "rank 0, instruction 8 (step1@1): the rank does not have stage 1");
  check_refused(
      kFlush, "F0.1@0", "F0.2@0",
      "rank 0, instruction 2 (F0.2@0): there is no micro-batch 2; there are 2, "
      "from 0 on");
  check_refused(
      kFlush, "A0.1>1", "A0.1>2",
      "rank 0, instruction 3 (A0.1>2): there is no rank 2; there are 2, from 0 "
      "on");
  check_refused(kFlush, "A0.1>1", "A0.1>0",
                "rank 0, instruction 3 (A0.1>0): a rank needs no message to itself");
}

TEST_CASE("use of a value before it exists is refused") {
  check_refused(kFlush, "F0.0@0 A0.0>1", "A0.0>1 F0.0@0",
                "rank 0, instruction 0 (A0.0>1): it is sent before it is computed");
  check_refused(kFlush, "A1.0<0 F1.0@0", "F1.0@0 A1.0<0",
                "rank 1, instruction 0 (F1.0@0): its input is neither received nor "
                "computed before");
  check_refused(kFlush, "G0.0<1 B0.0@0", "B0.0@0 G0.0<1",
                "rank 0, instruction 4 (B0.0@0): the gradient of its output is neither "
                "received nor computed before");
  check_refused(
      kFlush, "F1.1@0 I1.1@0", "I1.1@0 F1.1@0",
      "rank 1, instruction 5 (I1.1@0): no forward of it on this rank is before "
      "it");
  check_refused(kFlush, "I1.1@0 G1.1>0 W1.1@0", "W1.1@0 I1.1@0 G1.1>0",
                "rank 1, instruction 6 (W1.1@0): no input gradient of it is before it");
  check_refused(kReplicas, "C0.0@0 B0.0@0", "B0.0@0 C0.0@0",
                "rank 0, instruction 1 (B0.0@0): it is recomputed only after its "
                "backward");
}

TEST_CASE("duplicate and missing instructions are refused") {
  check_refused(kFlush, "F1.0@0", "F1.0@0 F1.0@0",
                "rank 1, instruction 2 (F1.0@0): rank 1 does this forward, too");
  check_refused(kFlush, "B1.0@0", "B1.0@0 I1.0@0",
                "rank 1, instruction 4 (I1.0@0): its backward was before");
  check_refused(kFlush, "A0.0>1", "A0.0>1 A0.0>1",
                "rank 0, instruction 2 (A0.0>1): it was sent before");
  check_refused(kFlush, "G0.0<1", "G0.0<1 G0.0<1",
                "rank 0, instruction 5 (G0.0<1): it was received before");
  check_refused(kReplicas, "C0.0@0", "C0.0@0 C0.0@0",
                "rank 0, instruction 2 (C0.0@0): it was recomputed before");
  check_refused(
      kFlush, "F1.0@0", "",
      "rank 1, instruction 0 (A1.0<0): no rank does the forward of micro-batch "
      "0 of stage 1");
  check_refused(kFlush, "B0.0@0", "",
                "rank 0, instruction 4 (G0.0<1): no backward of stage 0, micro-batch 0 "
                "follows");
  check_refused(kFlush, "W1.1@0", "",
                "rank 1, instruction 7 (G1.1>0): no weight gradient of stage 1, "
                "micro-batch 1 follows");
  check_refused(
      kFlush, "G1.0>0", "",
      "rank 0, instruction 4 (G0.0<1): rank 1 has no send for it after what it "
      "has done by then");
}

TEST_CASE("messages go to the rank that does the other stage") {
  check_refused(kFlush, "A0.0>1", "G0.0>1",
                "rank 0, instruction 1 (G0.0>1): there is no stage before stage 0");
  check_refused(kFlush, "G1.0>0", "A1.0>0",
                "rank 1, instruction 4 (A1.0>0): there is no stage after stage 1");
  const std::string text =
      "schedule x\nmicro_batches 2\nweights flush\nstage 0: 0\nstage 1: 1 2\n"
      "rank 0: F0.0@0 A0.0>2\nrank 1: A1.0<0 F1.0@0\nrank 2: A1.1<0 F1.1@0 A1.0<0\n";
  CHECK(
      validated(text, "F0.0@0", "F0.0@0 F0.1@0").status().message() ==
      "rank 0, instruction 2 (A0.0>2): rank 1 does micro-batch 0 of stage 1, not rank "
      "2");
  const std::string rest =
      "F0.0@0 F0.1@0 A0.0>1 A0.1>2 G0.0<1 G0.1<2 B0.0@0 B0.1@0 step0@1\n"
      "rank 1: A1.0<0 F1.0@0 B1.0@0 G1.0>0 reduce1@1 step1@1\n"
      "rank 2: A1.1<0 A1.0<0 F1.1@0\n";
  CHECK(
      validated(text.substr(0, text.find("F0.0@0")) + rest).status().message() ==
      "rank 2, instruction 1 (A1.0<0): the rank does not do micro-batch 0 of stage 1");
}

TEST_CASE("versions that do not exist or break the policy are refused") {
  check_refused(
      kStash, "push0@0 ", "",
      "rank 0, instruction 10 (B0.1@0): version 0 is gone; the newest is 1 and "
      "no push has kept the other");
  check_refused(kStash, "pop0@1 ", "",
                "rank 0, instruction 13 (push0@1): no pop of this version follows");
  check_refused(kStash, "F0.2@1", "F0.2@2",
                "rank 0, instruction 8 (F0.2@2): version 2 is not made yet; the newest "
                "is 1");
  check_refused(
      kStash, "F0.2@1", "F0.2@0",
      "rank 0, instruction 8 (F0.2@0): with weights stash it takes version 1");
  check_refused(kStash, "B0.1@0", "B0.1@1",
                "rank 0, instruction 11 (B0.1@1): its forward took version 0");
  check_refused(kStash, "push0@0", "push0@0 push0@0",
                "rank 0, instruction 7 (push0@0): this version is kept already");
  check_refused(
      kStash, "push0@1", "push0@0",
      "rank 0, instruction 13 (push0@0): only the newest version can be kept, "
      "which is 1");
  check_refused(kStash, "pop0@0", "pop0@1",
                "rank 0, instruction 12 (pop0@1): this version is not kept");
  check_refused(
      kStash, "weights stash", "weights flush",
      "rank 0, instruction 2 (F0.1@0): with weights flush it takes version 1");
  check_refused(
      kFlush, "step0@1", "push0@0 step0@1",
      "rank 0, instruction 8 (push0@0): with weights flush no version is kept");
  check_refused(kStash, "weights stash", "weights vertical_sync",
                "rank 1, instruction 6 (F1.1@1): with weights vertical_sync it takes "
                "version 0");
  check_refused(kStash, "weights stash", "weights 2bw",
                "rank 1, instruction 6 (F1.1@1): with weights 2bw it takes version 0");
}

TEST_CASE("updates that miss or mix gradients are refused") {
  check_refused(kFlush, "step0@1", "step0@2",
                "rank 0, instruction 8 (step0@2): the newest version is 0, so it makes "
                "1");
  check_refused(kFlush, "step0@1", "",
                "rank 0, instruction 7 (B0.1@0): its gradient is in no update: no step "
                "of stage 0 follows");
  check_refused(kFlush, "step0@1", "step0@1 step0@2",
                "rank 0, instruction 9 (step0@2): no micro-batch is in this update");
  check_refused(
      kFlush, "step0@1", "reduce0@1 step0@1",
      "rank 0, instruction 8 (reduce0@1): stage 0 is on one rank, so there is "
      "nothing to add up");
  check_refused(
      kFlush, "B1.0@0 G1.0>0 F1.1@0 I1.1@0 G1.1>0 W1.1@0 step1@1",
      "B1.0@0 G1.0>0 step1@1 F1.1@1 B1.1@1 G1.1>0 step1@2",
      "rank 1, instruction 7 (B1.1@1): its gradient is in update 2 here and in "
      "update 1 on stage 0; with weights flush they are the same");
  check_refused(kReplicas, "reduce0@1", "",
                "rank 0, instruction 3 (step0@1): no reduce for this version is before "
                "it");
  check_refused(
      kReplicas, "reduce0@1", "reduce0@2",
      "rank 0, instruction 3 (reduce0@2): the newest version is 0, so it makes "
      "1");
  check_refused(kReplicas, "reduce0@1", "reduce0@1 reduce0@1",
                "rank 0, instruction 4 (reduce0@1): the newest version is 0 and "
                "gradients for the next are reduced already");
  check_refused(kReplicas, "reduce0@1 step0@1", "reduce0@1",
                "rank 0, instruction 3 (reduce0@1): no step follows");
  check_refused(
      kReplicas, "reduce0@1 step0@1", "",
      "rank 0, instruction 2 (B0.0@0): its gradient is in no update: no reduce "
      "of stage 0 follows");
}

}  // namespace
}  // namespace aikido::pipeline

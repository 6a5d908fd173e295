// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "pipeline/rendezvous.h"

#include "harness/catch.h"

namespace aikido::pipeline {
namespace {

Status checked(const std::string& stages, const std::string& ranks) {
  auto schedule = parse_schedule("schedule x\nmicro_batches 9\nweights flush\n" +
                                 stages + "\n" + ranks);
  REQUIRE(schedule.is_ok());
  return check_rendezvous(*schedule);
}

TEST_CASE("ends that meet in turn finish") {
  CHECK(checked("stage 0: 0\nstage 1: 1",
                "rank 0: F0.0@0 A0.0>1 A0.1>1 G0.0<1\nrank 1: A1.0<0 A1.1<0 G1.0>0")
            .is_ok());
}

TEST_CASE("two ranks that both send first wait for each other") {
  const auto status =
      checked("stage 0: 0\nstage 1: 1",
              "rank 0: F0.0@0 A0.1>1 G0.0<1\nrank 1: F1.0@0 G1.0>0 A1.1<0");
  CHECK(status.message() ==
        "rank 0, instruction 1 (A0.1>1): it waits for rank 1, which at instruction 1 "
        "(G1.0>0) waits for rank 0: where sends wait, nobody goes on");
  CHECK(status.culprit() == Rank{0});
}

TEST_CASE("the error names the ring of waiting ranks, not ranks that wait for it") {
  const auto status =
      checked("stage 0: 0\nstage 1: 1\nstage 2: 2\nstage 3: 3",
              "rank 0: A0.0>1\nrank 1: A1.0>2 A1.0<0\nrank 2: A2.0>3 A2.0<1 G2.0<3\n"
              "rank 3: G3.0>2 A3.0<2");
  CHECK(status.message() ==
        "rank 2, instruction 0 (A2.0>3): it waits for rank 3, which at instruction 0 "
        "(G3.0>2) waits for rank 2: where sends wait, nobody goes on");
}

TEST_CASE("an end that never comes is reported") {
  CHECK(
      checked("stage 0: 0\nstage 1: 1", "rank 0: A0.0>1\nrank 1: F1.0@0").message() ==
      "rank 0, instruction 0 (A0.0>1): rank 1 has no receive for it after what it has "
      "done by then");
  CHECK(checked("stage 0: 0\nstage 1: 1", "rank 0:\nrank 1: A1.0<0").message() ==
        "rank 1, instruction 0 (A1.0<0): rank 0 has no send for it after what it has "
        "done by then");
}

TEST_CASE("a step waits for the reduce of all replicas, a reduce waits for no rank") {
  CHECK(checked("stage 0: 0 1\nstage 1: 1",
                "rank 0: reduce0@1 A0.0>1 step0@1\nrank 1: A1.0<0 reduce0@1 step0@1")
            .is_ok());
  CHECK(checked("stage 0: 0 1\nstage 1: 1",
                "rank 0: reduce0@1 step0@1 A0.0>1\nrank 1: A1.0<0 reduce0@1 step0@1")
            .message() ==
        "rank 0, instruction 1 (step0@1): it waits for rank 1, which at instruction 0 "
        "(A1.0<0) waits for rank 0: where sends wait, nobody goes on");
  CHECK(
      checked("stage 0: 0 1", "rank 0: reduce0@1 step0@1\nrank 1: F0.0@0").message() ==
      "rank 0, instruction 1 (step0@1): rank 1 has no reduce for it after what it has "
      "done by then");
}

}  // namespace
}  // namespace aikido::pipeline

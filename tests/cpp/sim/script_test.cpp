// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "sim/script.h"

#include "harness/catch.h"
#include "sim/random_script.h"

using namespace aikido;
using namespace aikido::sim;
using std::chrono::milliseconds;

namespace {

std::string error_of(const std::string& text) {
  auto script = parse(text);
  return script ? "none" : script.status().message();
}

}  // namespace

TEST_CASE("a random script survives writing and reading") {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    const std::string text = to_text(random_script(seed, 0));
    auto again = parse(text);
    INFO(text);
    REQUIRE(again.is_ok());
    REQUIRE(to_text(*again) == text);
  }
}

TEST_CASE("parsing reads each kind of line") {
  auto parsed = parse(
      "# a comment\n"
      "members 3\n"
      "op allreduce 100 avg skip min=2 floor=1ms world  # as here\n"
      "op barrier\n"
      "must-return 2\n"
      "op allreduce 10 sum skip bucket\n"
      "op allreduce 10 sum rebalance\n"
      "op reduce_scatter 10 avg weighted skip\n"
      "op allreduce 10 avg weighted\n"
      "hold 0->* RESULT op=1 shard=2 until 40ms\n"
      "hold 1->2 PREPARE\n"
      "at 2ms call 1 op=1 apart\n"
      "at 1ms stop 2 for 300ms\n"
      "at 3ms cut 0-1 heard 5ms\n"
      "at 0ms delay *->2 control 1500us\n");
  REQUIRE(parsed.is_ok());
  const Script& s = *parsed;
  CHECK(s.must_return == std::vector<int32_t>{2});
  CHECK(to_text(s).find("must-return 2\n") != std::string::npos);
  REQUIRE(s.ops.size() == 6);
  CHECK(s.ops[0].is_partial());
  CHECK(s.ops[0].policy.min_contributors == 2);
  CHECK(s.ops[0].policy.divisor == straggler::Divisor::kWorld);
  CHECK_FALSE(s.ops[1].is_partial());
  CHECK(s.ops[2].policy.masks == straggler::Masks::kBucket);
  CHECK(s.ops[3].policy.kind == straggler::Kind::kWaitAll);
  CHECK(s.ops[3].policy.rebalance);
  CHECK_FALSE(s.ops[3].is_weighted);
  CHECK(s.ops[4].is_weighted);
  CHECK(s.ops[4].is_partial());
  CHECK(s.ops[5].is_weighted);
  CHECK_FALSE(s.ops[5].is_partial());
  REQUIRE(s.holds.size() == 2);
  CHECK(s.holds[0].to == kEvery);
  CHECK(s.holds[0].shard == 2);
  CHECK(s.holds[0].until == milliseconds(40));
  CHECK(s.holds[1].until == kForEver);
  REQUIRE(s.events.size() == 4);  // sorted by time
  CHECK(s.events[0].duration == std::chrono::microseconds(1500));
  CHECK(s.events[0].lane == transport::Lane::kControl);
  CHECK(s.events[1].kind == EventKind::kStop);
  CHECK_FALSE(s.events[2].in_place);
  CHECK(s.events[3].duration == milliseconds(5));
}

TEST_CASE("an error of a script names its line") {
  CHECK(error_of("members 0") == "line 1: 1 to 1024 members");
  CHECK(error_of("members 3\nat 1ms stop 3 for 1s") == "line 2: rank 3 of 3 members");
  CHECK(error_of("\nat 1 kill 0") == "line 2: '1' is no time, as 12ms, 300us or 2s");
  CHECK(error_of("must-return *") == "line 1: one rank is expected");
  CHECK(error_of("at 1ms explode 0") == "line 1: nothing is called 'explode'");
  CHECK(error_of("at 1ms stop 0 300ms") == "line 1: 'for' is expected");
  CHECK(error_of("at 1ms kill 0 now") == "line 1: 'now' is not expected here");
  CHECK(error_of("hold 0->1 LETTER") == "line 1: no frame is called 'LETTER'");
  CHECK(error_of("hold 0-1 RESULT") ==
        "line 1: '0-1' is not two ranks with -> between");
  CHECK(error_of("op barrier\nat 1ms call 0 op=2") == "line 2: operation 2 of 1");
  CHECK(error_of("op barrier\nop barrier\nat 1ms call 0 op=2") ==
        "line 3: rank 0 calls operation 2 after 0");
  CHECK(error_of("op allreduce 5 sum weighted").find("needs op=AVG") !=
        std::string::npos);
  CHECK(error_of("op broadcast 5") == "line 1: ends where the root is expected");
}

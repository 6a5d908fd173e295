// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
// Tests of skippable operations that half of four members call, while the others are
// late (straggler/skip.h, Note [half of the members]).
#include <map>

#include "harness/late_member.h"

using namespace aikido;
using namespace aikido::testing;

namespace {

struct Half {
  Cluster cluster{{.size = 4}};
  Call call = skip_sum_call(kLarge);
  Bytes input = random_elements(call.dtype, call.count, 7);

  Half() {
    cluster.set_all_delays(milliseconds(1));
    cluster.set_all_rates(1'000'000);  // a shard in 100 ms
    for (int op = 0; op < 10; ++op) run({});
  }

  // Ranks 0 and 1 call, rank 2 after `lag`, and rank 3 after `last`. Returns the time
  // that the first two take.
  Duration run(Duration lag, Duration last = {}) {
    const TimePoint start = cluster.clock.now();
    answers.clear();
    for (const int32_t r : {0, 1}) answers.push_back(cluster.allreduce(r, call, input));
    cluster.run_for(lag);
    answers.push_back(cluster.allreduce(2, call, input));
    const std::vector<AnswerPtr> first{answers[0], answers[1]};
    Duration took{};
    if (last > lag) {
      cluster.run_until_done(first, last - lag);
      took = cluster.clock.now() - start;
      cluster.run_for(start + last - cluster.clock.now());
    }
    answers.push_back(cluster.allreduce(3, call, input));
    end_operation(cluster, answers);
    return took;
  }

  // Number of contributors in the shard of each owner.
  std::map<int32_t, size_t> num_contributors() const {
    std::map<int32_t, size_t> counts;
    for (const auto& shard : answers.front()->outcome.shards)
      counts[shard.owner.value] = shard.contributors.size();
    return counts;
  }

  std::vector<AnswerPtr> answers;
};

}  // namespace

TEST_CASE(
    "half of the members end an operation, and the third member is not suspected") {
  Half half;
  const uint32_t view = half.cluster.group(0).view().number;
  // The shard of rank 2 is closed when it has called, and gets no contribution of rank
  // 3. The result of rank 2 is a little late.
  TimePoint first_result = TimePoint::max();
  half.cluster.network.set_tap(
      [&](Rank from, Rank, const transport::FrameHeader& h, TimePoint arrives) {
        if (from.value != 2 || h.kind != transport::FrameKind::kResult) return arrives;
        first_result = std::min(first_result, arrives);
        return arrives + milliseconds(45);
      });
  const TimePoint start = half.cluster.clock.now();
  const Duration took = half.run(milliseconds(115), milliseconds(400));
  half.cluster.network.set_tap({});
  CHECK(to_ms(took) < 310);
  CHECK(half.num_contributors() ==
        std::map<int32_t, size_t>{{0, 2}, {1, 2}, {2, 3}, {3, 2}});
  CHECK(half.answers.front()->outcome.reason == "half");
  CHECK(to_ms(first_result - start) < 131);
  CHECK(half.cluster.group(0).view().number == view);
}

TEST_CASE("half of the members are not enough if they own all shards") {
  Half half;
  for (const int32_t late : {2, 3}) {
    for (int32_t r = 0; r < 4; ++r)
      half.cluster.group(r).advise(Rank(late), straggler::Advice::kLink);
    half.run({});
    REQUIRE_FALSE(half.cluster.group(0).view().is_owner(Rank(late)));
  }
  half.run(milliseconds(300), milliseconds(400));
  for (const auto& [owner, count] : half.num_contributors()) CHECK(count >= 3);
}

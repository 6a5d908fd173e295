// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
// Tests of the operation in which the uplink of one member turns bad, at any moment of
// it: what is the cost for the other members?
#include <algorithm>
#include <vector>

#include "harness/catch.h"
#include "harness/cluster.h"

using namespace aikido;
using namespace aikido::testing;
using std::chrono::microseconds;

namespace {

constexpr int32_t kSize = 4, kBad = 3;
constexpr uint64_t kRate = 8'000'000;  // bytes per second, for each pair and direction
constexpr int kHealthy = 30;           // operations before the uplink turns bad
constexpr Duration kCompute = milliseconds(2);

class Loop {
 public:
  Loop()
      : cluster_({.size = kSize,
                  .chunk_bytes = 8192,
                  .eager_bytes = 65536,
                  .min_shard_bytes = 16384}) {
    cluster_.set_all_delays(microseconds(150));
    cluster_.set_all_rates(kRate);
    call_ = allreduce_call(DType::kFloat32, 87'040, ReduceOp::kAvg);
    call_.policy.kind = straggler::Kind::kSkip;
    input_ = random_elements(call_.dtype, call_.count, 7);
    for (Member& m : members_) m.due = cluster_.clock.now();
  }

  // Each member computes and calls again at its own pace, until all but kBad have ended
  // `ops` operations.
  void run(int ops) {
    for (;; cluster_.run_for(microseconds(100))) {
      int least = ops;
      for (int32_t r = 0; r < kSize; ++r) {
        turn(r);
        if (r != kBad) least = std::min(least, static_cast<int>(at(r).ends.size()));
      }
      if (least == ops) return;
    }
  }
  void run_for(Duration d) {
    const TimePoint until = cluster_.clock.now() + d;
    for (; cluster_.clock.now() < until; cluster_.run_for(microseconds(100)))
      for (int32_t r = 0; r < kSize; ++r) turn(r);
  }
  void turn_bad() {
    for (int32_t r = 0; r < kSize; ++r)
      if (r != kBad) cluster_.network.set_rate(Rank(kBad), Rank(r), kRate / 20);
  }
  // Time from the end of the previous operation to the end of this one. Both ends are
  // those of the last member other than kBad.
  Duration took(int op) const {
    TimePoint begin{}, end{};
    for (int32_t r = 0; r < kSize; ++r) {
      if (r == kBad) continue;
      begin = std::max(begin, at(r).ends[static_cast<size_t>(op - 1)]);
      end = std::max(end, at(r).ends[static_cast<size_t>(op)]);
    }
    return end - begin;
  }

 private:
  struct Member {
    AnswerPtr answer;
    TimePoint due{};
    std::vector<TimePoint> ends;
  };
  Member& at(int32_t r) { return members_[static_cast<size_t>(r)]; }
  const Member& at(int32_t r) const { return members_[static_cast<size_t>(r)]; }
  void turn(int32_t r) {
    Member& m = at(r);
    if (m.answer && m.answer->is_done()) {
      REQUIRE(m.answer->is_ok());
      m.ends.push_back(m.answer->at);
      m.due = m.answer->at + kCompute;
      m.answer = nullptr;
    }
    if (!m.answer && m.due <= cluster_.clock.now())
      m.answer = cluster_.allreduce(r, call_, input_);
  }

  Cluster cluster_;
  Call call_;
  Bytes input_;
  std::vector<Member> members_{kSize};
};

}  // namespace

TEST_CASE("a link that turns bad costs the others less than 1.4 more operations") {
  const auto phase = milliseconds(GENERATE(range(0, 26, 2)));
  CAPTURE(phase.count());
  Loop loop;
  loop.run(kHealthy);
  const Duration healthy = loop.took(kHealthy - 1);
  REQUIRE(healthy < milliseconds(26));
  loop.run_for(phase);
  loop.turn_bad();
  loop.run(kHealthy + 8);
  for (int op = kHealthy; op < kHealthy + 8; ++op) {
    CAPTURE(op);
    CHECK(5 * loop.took(op) < 12 * healthy);
  }
}

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
// Random groups by seed. Each member has its own program: it computes, calls, fetches
// results that were decided without it from the log, and lets others wait. So a late
// member falls behind and catches up as in a real job. Several operations may be open.
#include <map>
#include <optional>
#include <queue>
#include <string>

#include "harness/catch.h"
#include "straggler/play.h"

namespace aikido::straggler {
namespace {

using testing::Dice;
using testing::log_of;
using testing::ms;
using testing::skip_options;

struct Setting {
  int32_t n = 4;
  PolicyOptions options = skip_options();
  uint64_t log_limit = UINT64_MAX;
  double compute_ms = 50, jitter_ms = 2, late_ms = 100, late_share = 0.2;
  uint64_t depth = 1;     // operations that a member may have called without a result
  int32_t num_prone = 1;  // members 0 .. num_prone-1 are late at times
};

Setting draw(Dice& dice) {
  Setting s;
  s.n = 2 + static_cast<int32_t>(dice.below(7));
  s.options.min_contributors =
      static_cast<int32_t>(dice.below(static_cast<uint64_t>(s.n) + 1));
  s.options.max_consecutive_skips = 1 + static_cast<uint32_t>(dice.below(12));
  s.options.warmup_operations = 1 + static_cast<uint32_t>(dice.below(10));
  s.options.floor = ms(static_cast<double>(dice.below(30)));
  s.options.ceiling = s.options.floor + ms(dice.exponential(2000));
  s.options.slack = 1 + dice.uniform() * 2;
  if (dice.below(2) == 0) s.log_limit = 100 * (1 + dice.below(8));
  s.compute_ms = dice.exponential(100);
  s.jitter_ms = dice.exponential(4);
  s.late_ms = dice.exponential(300);
  s.late_share = dice.uniform();
  s.num_prone = static_cast<int32_t>(dice.below(static_cast<uint64_t>(s.n) + 1));
  return s;
}

constexpr uint64_t kNumOperations = 60;
constexpr uint64_t kBytes = 100;

// One owner, which sees every event of all members in the order of time.
class Run {
 public:
  Run(const Setting& setting, uint64_t seed)
      : s_(setting), dice_(seed), group_(s_.options, log_of(s_.n, s_.log_limit)) {
    for (int32_t r = 0; r < s_.n; ++r) schedule(Rank(r), 1, TimePoint{});
  }

  void go() {
    while (!calls_.empty() || !open_.empty()) {
      const auto look = earliest_look();
      if (!look && calls_.empty()) return fail("hangs");
      if (look && (calls_.empty() || look->first < calls_.top().at)) {
        close(look->second, look->first);
      } else {
        const Call call = calls_.top();
        calls_.pop();
        on_call(call);
      }
    }
    if (results_.size() != kNumOperations) fail("lost an operation");
  }

  const std::vector<std::string>& faults() const { return faults_; }
  const std::string& log() const { return log_; }

 private:
  struct Call {
    TimePoint at;
    Rank rank;
    uint64_t seq;
    bool operator<(const Call& o) const {
      return std::tie(at, rank, seq) > std::tie(o.at, o.rank, o.seq);
    }
  };

  void fail(const std::string& what) { faults_.push_back(what); }

  // `rank` calls `seq` next, once it has the results that it needs before.
  void schedule(Rank rank, uint64_t seq, TimePoint from) {
    if (seq > kNumOperations) return;
    if (seq > s_.depth && !results_.contains(seq - s_.depth)) {
      blocked_[seq].push_back(rank);
      return;
    }
    double delay = s_.compute_ms + dice_.exponential(s_.jitter_ms);
    if (rank.value < s_.num_prone && dice_.uniform() < s_.late_share)
      delay += s_.late_ms;
    calls_.push({from + ms(delay), rank, seq});
  }

  std::optional<std::pair<TimePoint, uint64_t>> earliest_look() const {
    std::optional<std::pair<TimePoint, uint64_t>> earliest;
    for (const auto& [seq, policy] : open_)
      if (const auto look = policy->next_look())
        if (!earliest || *look < earliest->first)
          earliest = {std::max(*look, now_), seq};
    return earliest;
  }

  void on_call(const Call& call) {
    now_ = call.at;
    const auto result = results_.find(call.seq);
    if (result !=
        results_.end()) {  // decided without this member: the call returns at once
      if (result->second.contains(call.rank)) fail("counted before it called");
      group_.history().on_late_arrival(Seq(call.seq), call.rank, now_);
      return schedule(call.rank, call.seq + 1, now_);
    }
    auto& policy = open_[call.seq];
    if (!policy) policy = group_.start(Seq(call.seq), kBytes);
    policy->on_arrival(call.rank, now_);
    policy->on_arrival(call.rank, now_);
    check_monotone(*policy);
    schedule(call.rank, call.seq + 1, now_);
    if (policy->decide(now_).closes()) close(call.seq, now_);
  }

  // Checks that the policy waits up to next_look(), and closes from then on.
  void check_monotone(const Policy& policy) {
    const auto look = policy.next_look();
    bool has_closed = false;
    for (double step : {0.0, 0.5, 1.0, 5.0, 20.0, 100.0, 1e3, 1e4, 1e5}) {
      const TimePoint at = now_ + ms(step);
      const bool closes = policy.decide(at).closes();
      if (has_closed && !closes) fail("a close was taken back");
      if (!policy.arrived().is_full() && closes != (look && at >= *look))
        fail("next_look differs from decide");
      if (policy.decide(at) != policy.decide(at)) fail("two answers");
      has_closed = closes;
    }
    if (look && *look > now_ && policy.decide(*look - Duration(1)).closes())
      fail("closes before next_look");
    if (look && !policy.decide(*look).closes()) fail("waits at next_look");
  }

  void close(uint64_t seq, TimePoint at) {
    now_ = std::max(at, now_);
    const auto policy = std::move(open_.extract(seq).mapped());
    const Decision d = policy->decide(now_);
    const RankSet mask = policy->arrived();
    policy->on_close({}, kBytes, now_);
    log_ += concat(seq, " ", now_.time_since_epoch().count(), " ", explain(d), "\n");
    if (!d.closes()) fail("does not close");
    if (mask.count() < fewest_of(s_.options, s_.n)) fail("below the quorum");
    if (d.num_arrived != mask.count()) fail("miscounted");
    if ((d.reason == Reason::kComplete) != mask.is_full()) fail("wrong reason");
    History& history = group_.history();
    history.on_committed(Seq(seq), mask, kBytes);
    for (int32_t r = 0; r < s_.n; ++r) {
      if (history.consecutive_skips(Rank(r)) > s_.options.max_consecutive_skips)
        fail("skipped too often in a row");
      if (history.log().outstanding_bytes(Rank(r)) > s_.log_limit)
        fail("log overflows");
    }
    results_.emplace(seq, mask);
    for (Rank r : blocked_[seq + s_.depth]) schedule(r, seq + s_.depth, now_);
  }

  Setting s_;
  Dice dice_;
  GroupPolicy group_;
  TimePoint now_{};
  std::priority_queue<Call> calls_;
  std::map<uint64_t, std::unique_ptr<Policy>> open_;
  std::map<uint64_t, RankSet> results_;
  std::map<uint64_t, std::vector<Rank>>
      blocked_;  // by the operation that the ranks call next
  std::vector<std::string> faults_;
  std::string log_;
};

TEST_CASE("the guarantees of the policy hold for any lateness") {
  Dice dice(20);
  const std::vector<std::string> reached = {"did not come", "has not called",
                                            "is late so often", "all have arrived"};
  std::map<std::string, int> num_reached;
  for (uint64_t seed = 1; seed <= 120; ++seed) {
    INFO("seed " << seed);
    const Setting setting = draw(dice);
    Run run(setting, seed);
    run.go();
    CHECK(run.faults() == std::vector<std::string>{});
    Run again(setting, seed);
    again.go();
    CHECK(run.log() == again.log());
    for (const std::string& text : reached)
      num_reached[text] += run.log().find(text) != std::string::npos;
  }
  for (const std::string& text : reached) {
    INFO(text);
    CHECK(num_reached[text] >
          12);  // the settings reach the cases that they are meant to test
  }
}

}  // namespace
}  // namespace aikido::straggler

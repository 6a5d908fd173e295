// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "engine/group_reports.h"

#include "harness/ended_operation.h"
#include "harness/group_parts.h"

using namespace aikido;
using engine::GroupReports;
using membership::Report;

namespace {

constexpr int32_t kSize = testing::GroupParts::kSize;

struct Case : testing::GroupParts {
  Case() {
    marks.called = marks.announced = 5;
    marks.acked = 5;
    options.log_bytes = 1000;
  }
  void keep(uint64_t seq, uint64_t mask, uint64_t bytes = 100) {
    keeper.keep(
        std::make_shared<testing::EndedOperation>(
            &idle, seq, std::vector<membership::ReceivedShard>{{Seq(seq), 0, mask}}),
        bytes);
  }
  // Answer to rank 3, which has acknowledged everything up to `acked`.
  std::optional<Status> compare(uint64_t acked,
                                std::vector<membership::ReceivedShard> received = {}) {
    return reports.compare(
        Rank(3), testing::report_of(kSize, acked, acked, std::move(received)));
  }

  GroupReports reports{facts()};
};

bool has(const std::optional<Status>& status, const std::string& text) {
  return status && status->message().find(text) != std::string::npos;
}

}  // namespace

TEST_CASE("a report has the kept results, the failures and the lost members") {
  Case c;
  c.keep(4, 7);
  c.keeper.note_failed(5, Status(Code::kTimedOut, "late"));
  c.peers->on_lost(Rank(2), Status(Code::kPeerLost, "reset"));
  const Report report = c.reports.report();
  CHECK(report.acked == Seq(5));
  CHECK(report.known == Seq(5));
  CHECK(report.kept == Seq(4));
  CHECK(report.failed == std::vector{Seq(5)});
  CHECK(report.lost == testing::set_of(kSize, {2}));
  CHECK(report.received.empty());  // a member of the view: from operation 5 on
}

TEST_CASE("an excluded member reports all its results") {
  Case c;
  c.keep(3, 7);
  c.keep(4, 7);
  c.install([](membership::View& view) { view.members.erase(Rank(0)); });
  CHECK(c.reports.report().received.size() == 2);
}

TEST_CASE("a report says which operations were skipped") {
  Case c;
  c.skipped.skip(5, 8, 6, [](uint64_t) { return false; });
  const Report report = c.reports.report();
  CHECK(report.skipped_from == Seq(6));
  CHECK(report.skipped_through == Seq(8));
  CHECK(report.kept == Seq(9));
}

TEST_CASE("a call that no member can know of is not reported") {
  Case c;
  collectives::Call call;
  call.kind = collectives::CallKind::kAllreduce;
  call.policy.kind = straggler::Kind::kSkip;
  const auto it = c.calls.add(Seq(6), call, Rank(0));
  CHECK(c.reports.report().known == Seq(6));
  CHECK(c.reports.report().open == Seq(6));
  it->second.held.emplace();  // held back, and not announced
  CHECK(c.reports.report().known == Seq(5));
  CHECK(c.reports.report().open == Seq());
}

TEST_CASE("a member can be done without while the log has room for its results") {
  Case c;
  c.keep(4, 7, 500);
  CHECK(c.reports.can_do_without(Rank(3)));
  c.keep(5, 7, 1);
  CHECK_FALSE(c.reports.can_do_without(Rank(3)));
}

TEST_CASE("a member cannot be done without if the next operation needs it") {
  Case c;
  straggler::PolicyOptions options;
  options.kind = straggler::Kind::kSkip;
  options.min_contributors = 3;
  c.policies.add(options);
  CHECK(c.reports.can_do_without(Rank(3)));
  c.install([](membership::View& view) { view.members.erase(Rank(2)); });
  CHECK_FALSE(c.reports.can_do_without(Rank(3)));
}

TEST_CASE("a member with the same results may return") {
  Case c;
  c.keep(4, 7);
  REQUIRE(c.compare(4, {{Seq(4), 0, 7}}));
  CHECK(c.compare(4, {{Seq(4), 0, 7}})->is_ok());
}

TEST_CASE("a member with another result is refused") {
  Case c;
  c.keep(4, 7);
  CHECK(
      has(c.compare(4, {{Seq(4), 0, 3}}), "it has seen another result of operation 4"));
}

TEST_CASE("the comparison waits for results that this member may still receive") {
  Case c;
  CHECK_FALSE(c.compare(5, {{Seq(6), 0, 7}}));
}

TEST_CASE("a result that failed here can never be compared") {
  Case c;
  c.keeper.note_failed(5, Status(Code::kTimedOut, "late"));
  const auto answer = c.compare(4, {{Seq(5), 0, 7}});
  REQUIRE(answer);
  CHECK(answer->code() == Code::kRetryLater);
  CHECK(answer->message().empty());
}

TEST_CASE("a member that lacks forgotten results is refused") {
  Case c;
  c.keep(4, 7);
  c.keeper.release({5, 0}, 0);  // only excluded members need it, and there is no room
  CHECK(has(c.compare(3), "the results from operation 4 to 4 are not kept any more"));
  REQUIRE(c.compare(4));
  CHECK(c.compare(4)->is_ok());
}

TEST_CASE("a refusal says how the member can come back") {
  Case c;
  CHECK(c.reports.way_back(false).find("catch_up") == std::string::npos);
  straggler::PolicyOptions leaves;
  leaves.kind = straggler::Kind::kSkip;
  leaves.log_full = straggler::LogFull::kLeave;
  c.policies.add(leaves);
  CHECK(c.reports.way_back(false).find("catch_up") != std::string::npos);
  CHECK(c.reports.way_back(true).find("catch_up") == std::string::npos);
}

TEST_CASE("with on_log_full=exclude a member must not lack more than half of the log") {
  Case c;
  straggler::PolicyOptions leaves;
  leaves.kind = straggler::Kind::kSkip;
  leaves.log_full = straggler::LogFull::kLeave;
  c.policies.add(leaves);
  c.keep(4, 7, 501);
  CHECK(has(c.compare(3), "the results that it lacks fill half of the log"));
  REQUIRE(c.compare(4));
  CHECK(c.compare(4)->is_ok());
}

TEST_CASE("all members have everything below what is kept, failed or under way") {
  Case c;
  CHECK(c.reports.received_by_all() == 5);
  c.keeper.note_failed(5, Status(Code::kTimedOut, "late"));
  CHECK(c.reports.received_by_all() == 4);
  c.keep(3, 7);
  CHECK(c.reports.received_by_all() == 2);
}

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "engine/call_outlook.h"

#include "harness/ended_operation.h"
#include "harness/group_parts.h"

using namespace aikido;
using engine::CallOutlook;

namespace {

constexpr int32_t kSize = testing::GroupParts::kSize;

collectives::Call skip_sum(uint32_t most_skips = 100, int32_t min_contributors = 0) {
  collectives::Call call;
  call.kind = collectives::CallKind::kAllreduce;
  call.dtype = DType::kFloat32;
  call.count = 4;
  call.policy.kind = straggler::Kind::kSkip;
  call.policy.max_consecutive_skips = most_skips;
  call.policy.min_contributors = min_contributors;
  return call;
}

struct Case : testing::GroupParts {
  const collectives::SkippableOperation& add(uint64_t seq,
                                             const collectives::Call& call) {
    return *calls.add(Seq(seq), call, Rank(1))->second.operation->skippable();
  }
  void exclude(int32_t rank) {
    install([&](membership::View& view) { view.members.erase(Rank(rank)); });
    absent.on_view(change.view(), 0, clock.now());
  }

  CallOutlook outlook{facts()};
};

bool has(const Status& status, const std::string& text) {
  return status.message().find(text) != std::string::npos;
}

}  // namespace

TEST_CASE("an operation is hopeless when too few members for its policy are left") {
  Case c;
  const auto& operation = c.add(1, skip_sum(100, 3));
  CHECK(c.outlook.hopeless(operation).is_ok());
  CHECK(c.outlook.can_spare(Rank(3)));
  c.peers->on_lost(Rank(2), Status(Code::kPeerLost, "reset"));
  CHECK(c.outlook.hopeless(operation).is_ok());
  CHECK_FALSE(c.outlook.can_spare(Rank(3)));
  c.peers->on_lost(Rank(3), Status(Code::kPeerLost, "reset"));
  CHECK(has(c.outlook.hopeless(operation),
            "only 2 of 4 members are left, fewer than min_contributors=3"));
}

TEST_CASE("a member without a vote waits as long as it reaches a voter") {
  Case c;
  c.change.set_roles(testing::set_of(kSize, {1, 2}));
  const auto& operation = c.add(1, skip_sum(100, 1));
  const auto lose = [&](int32_t rank) {
    c.peers->on_lost(Rank(rank), Status(Code::kPeerLost, "reset"));
    c.change.on_lost(Rank(rank), c.clock.now());
  };
  lose(1);
  CHECK_FALSE(c.change.has_majority());
  CHECK_FALSE(c.outlook.is_stranded());
  CHECK(c.outlook.hopeless(operation).is_ok());
  lose(2);
  CHECK(c.outlook.is_stranded());
  CHECK(has(c.outlook.hopeless(operation), "only 0 of the 2 reliable members are left"));
  c.exclude(0);  // rank 3 may still have the view
  CHECK_FALSE(c.outlook.is_stranded());
  CHECK(c.outlook.hopeless(operation).is_ok());
}

TEST_CASE("a voter does not wait for a majority that it cannot reach") {
  Case c;
  c.change.set_roles(testing::set_of(kSize, {0, 1}));
  const auto& operation = c.add(1, skip_sum());
  c.peers->on_lost(Rank(1), Status(Code::kPeerLost, "reset"));
  c.change.on_lost(Rank(1), c.clock.now());
  CHECK_FALSE(c.outlook.is_stranded());
  CHECK(has(c.outlook.hopeless(operation), "only 1 of the 2 reliable members are left"));
}

TEST_CASE("a call that nobody here waits for does not end with a refusal") {
  Case c;
  const auto& operation = c.add(1, skip_sum(100, 4));
  c.peers->on_lost(Rank(3), Status(Code::kPeerLost, "reset"));
  CHECK(c.outlook.hopeless(operation).has_failed());
  c.own_state.refuse(Status(Code::kPeerLost, "refused", Rank(0)));
  CHECK(c.outlook.hopeless(operation).is_ok());  // its caller has not called
}

TEST_CASE("calls are held back for an absent member that has missed enough") {
  Case c;
  const auto& operation = c.add(5, skip_sum(2));
  auto& policy = c.policies.add(skip_sum(2).policy);
  CHECK(c.outlook.held_back_for(operation) == kNoRank);
  c.exclude(3);
  CHECK(c.outlook.expected_back() == testing::set_of(kSize, {3}));
  CHECK(c.outlook.held_back_for(operation) == kNoRank);
  for (uint64_t seq = 1; seq <= 2; ++seq)
    policy.history().on_committed(Seq(seq), testing::set_of(kSize, {0, 1, 2}), 16);
  CHECK(c.outlook.held_back_for(operation) == Rank(3));
  c.life.end(Status(Code::kAborted, "over"));
  CHECK(c.outlook.held_back_for(operation) == kNoRank);
}

TEST_CASE("calls are held back for an absent member whose results fill the log") {
  Case c;
  const auto& operation = c.add(5, skip_sum());
  c.exclude(3);
  c.options.log_bytes = c.outlook.charge_of(operation);
  CHECK(c.outlook.held_back_for(operation) == kNoRank);
  c.keeper.keep(std::make_shared<testing::EndedOperation>(&c.idle, 4), 1);
  CHECK(c.outlook.held_back_for(operation) == Rank(3));
}

TEST_CASE("a member is waited for by a strict call, or once it has missed enough") {
  for (const bool is_strict : {true, false}) {
    CAPTURE(is_strict);
    Case c;
    collectives::Call call = skip_sum(2);
    if (is_strict) call.policy = {};
    c.add(1, skip_sum(2));
    CHECK_FALSE(c.outlook.is_waited_for());  // no member is known to have called
    c.own_state.publish_called_elsewhere(2);
    CHECK_FALSE(c.outlook.is_waited_for());
    c.calls.add(Seq(2), call, Rank(1));
    CHECK(c.outlook.is_waited_for() == is_strict);
    auto& policy = c.policies.add(skip_sum(2).policy);
    for (uint64_t seq = 1; seq <= 2; ++seq)
      policy.history().on_committed(Seq(seq), testing::set_of(kSize, {1, 2, 3}), 16);
    CHECK(c.outlook.is_waited_for());
  }
}

TEST_CASE("results count as acknowledged when all other members of the view say so") {
  Case c;
  c.marks.acked = 3;
  CHECK_FALSE(c.outlook.is_acked(Seq(3), Rank(3)));
  for (const int32_t r : {1, 2}) (*c.peers)[Rank(r)].note_acked(3);
  CHECK(c.outlook.is_acked(Seq(3), Rank(3)));
  CHECK_FALSE(c.outlook.is_acked(Seq(3), Rank(2)));
  CHECK_FALSE(c.outlook.is_acked(Seq(4), Rank(3)));
  c.exclude(0);
  CHECK_FALSE(c.outlook.is_acked(Seq(3), Rank(3)));
}

TEST_CASE("a member is cut off after 32 skips in a row") {
  Case c;
  auto& policy = c.policies.add(skip_sum().policy);
  for (uint64_t seq = 1; seq <= 32; ++seq) {
    CHECK_FALSE(c.outlook.is_cut_off());
    policy.history().on_committed(Seq(seq), testing::set_of(kSize, {1, 2, 3}), 16);
  }
  CHECK(c.outlook.is_cut_off());
}

TEST_CASE("a time-out says how long the call has lasted") {
  Case c;
  const auto& operation = c.add(1, skip_sum());
  const Status why = c.outlook.time_out(operation, std::chrono::seconds(2));
  CHECK(why.code() == Code::kTimedOut);
  CHECK(has(why, "2000 ms"));
}

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "engine/call_table.h"

#include "harness/catch.h"
#include "harness/idle_host.h"

using namespace aikido;
using collectives::CallKind;
using engine::CallTable;

namespace {

collectives::Call call_of(CallKind kind) {
  collectives::Call call;
  call.kind = kind;
  call.dtype = DType::kFloat32;
  call.count = kind == CallKind::kBarrier ? 0 : 4;
  return call;
}

collectives::Call skippable() {
  collectives::Call call = call_of(CallKind::kAllreduce);
  call.policy.kind = straggler::Kind::kSkip;
  return call;
}

struct Case {
  testing::IdleHost host{2};
  CallTable calls{&host, host.recycler()};
};

// Ends like a call that its host has aborted.
const Status kAborted(Code::kAborted, "aborted");

}  // namespace

TEST_CASE("calls are found by their numbers and listed in this order") {
  Case c;
  CHECK(c.calls.is_empty());
  c.calls.add(Seq(3), call_of(CallKind::kBarrier), Rank(0));
  c.calls.add(Seq(1), call_of(CallKind::kBarrier), Rank(1));
  REQUIRE(c.calls.operations().size() == 2);
  CHECK(c.calls.operations()[0]->seq() == Seq(1));
  CHECK(c.calls.find(3)->second.operation->first_caller() == Rank(0));
  CHECK(c.calls.contains(3));
  CHECK(c.calls.find(2) == c.calls.end());
  CHECK(c.calls.behind(1)->first == 3);
  CHECK(std::as_const(c.calls).from(1)->first == 1);
  c.calls.erase(1);
  CHECK_FALSE(c.calls.contains(1));
}

TEST_CASE("the first call with one result for all is found behind strict calls") {
  Case c;
  CHECK(c.calls.first_agreed() == Seq(UINT64_MAX));
  c.calls.add(Seq(1), call_of(CallKind::kBarrier), Rank(0));
  CHECK(c.calls.first_agreed() == Seq(UINT64_MAX));
  c.calls.add(Seq(2), skippable(), Rank(0));
  c.calls.add(Seq(3), skippable(), Rank(0));
  CHECK(c.calls.first_agreed() == Seq(2));
}

TEST_CASE("a call is open once it is held or started here") {
  Case c;
  const auto it = c.calls.add(Seq(1), call_of(CallKind::kBarrier), Rank(1));
  CHECK_FALSE(c.calls.has_open());
  it->second.held.emplace();
  CHECK(c.calls.has_open());
  it->second.held.reset();
  CHECK(it->second.operation->start({}).is_ok());
  CHECK(c.calls.has_open());
  it->second.operation->fail(kAborted);
  CHECK_FALSE(c.calls.has_open());
}

TEST_CASE("held barriers at the front start one after another") {
  Case c;
  for (uint64_t seq = 1; seq <= 3; ++seq)
    c.calls.add(Seq(seq), call_of(CallKind::kBarrier), Rank(0))->second.held.emplace();
  c.calls.add(Seq(4), skippable(), Rank(0))->second.held.emplace();
  std::vector<uint64_t> started;
  const auto start = [&](engine::ActiveCall& barrier) {
    const uint64_t seq = barrier.operation->seq().value;
    started.push_back(seq);
    c.calls.erase(seq);
    c.calls.start_barriers([](engine::ActiveCall&) { FAIL("inside of a start"); });
  };
  c.calls.start_barriers(start);
  CHECK(started == std::vector<uint64_t>{1, 2, 3});
  c.calls.start_barriers(start);
  CHECK(started.size() == 3);
}

TEST_CASE("a call that fails ahead keeps its reason for the local call") {
  Case c;
  c.calls.add(Seq(1), skippable(), Rank(1));
  c.calls.fail_ahead(Seq(1), kAborted);  // known here
  c.calls.fail_ahead(Seq(2), kAborted);  // not known yet
  CHECK(c.calls.num_failed_ahead() == 2);
  for (const auto& operation : c.calls.operations()) {
    CHECK(operation->has_failed());
    CHECK_FALSE(operation->is_over());
    CHECK(operation->call().kind == CallKind::kBarrier);
  }
  c.calls.on_failed_ahead_called();
  CHECK(c.calls.num_failed_ahead() == 1);
}

TEST_CASE("only calls that ended well are among the recent ones") {
  Case c;
  const auto failed = c.calls.add(Seq(1), call_of(CallKind::kBarrier), Rank(0));
  failed->second.operation->fail(kAborted);
  c.calls.retire(failed);
  CHECK(c.calls.recent().find(1) == nullptr);
  c.calls.retire(c.calls.add(Seq(2), skippable(), Rank(0)));
  REQUIRE(c.calls.recent().find(2) != nullptr);
  CHECK(*c.calls.recent().find(2) == skippable());
  CHECK(c.calls.is_empty());
  CHECK(c.calls.sending().empty());
}

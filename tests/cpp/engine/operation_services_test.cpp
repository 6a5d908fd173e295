// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "engine/operation_services.h"

#include "harness/group_parts.h"

using namespace aikido;
using engine::OperationServices;
using transport::FrameKind;

namespace {

struct Events final : engine::OperationEvents {
  void on_over(Seq seq) override { over.push_back(seq); }
  void fail_everywhere(Seq seq, const Status&) override { failed.push_back(seq); }
  void on_first_policy() override { ++num_first_policies; }

  std::vector<Seq> over, failed;
  int num_first_policies = 0;
};

struct Case : testing::GroupParts {
  Events events;
  OperationServices services{
      {&clock, &options, &*peers, &policies, &change, &*owners, &trace, &events}};
};

straggler::PolicyOptions skips(uint32_t most) {
  straggler::PolicyOptions options;
  options.kind = straggler::Kind::kSkip;
  options.max_consecutive_skips = most;
  return options;
}

}  // namespace

TEST_CASE("messages of operations go to the link of their member") {
  Case c;
  transport::OutMessage message;
  message.header.kind = FrameKind::kResult;
  message.header.seq = 3;
  c.services.send(Rank(2), std::move(message));
  REQUIRE(c.links[1]->sent.size() == 1);
  CHECK(c.links[1]->sent[0].header.seq == 3);
  CHECK(c.links[0]->sent.empty());
}

TEST_CASE("the number of the view is in place for frames of the group") {
  Case c;
  CHECK(c.services.epoch() == 1);
  c.services.set_epoch(Epoch(7));
  CHECK(c.services.epoch() == 7);
  CHECK(*c.services.place_of_epoch() == 7);
}

TEST_CASE(
    "a new policy learns of earlier calls and of the view, and the first counts") {
  Case c;
  c.marks.called = 4;
  (*c.peers)[Rank(2)].note_called(6);
  auto& first = c.services.policy(skips(10));
  CHECK(first.history().called(Rank(0)) == Seq(4));
  CHECK(first.history().called(Rank(2)) == Seq(6));
  CHECK(c.events.num_first_policies == 1);
  CHECK(&c.services.policy(skips(10)) == &first);
  CHECK(&c.services.policy(skips(20)) != &first);
  CHECK(c.events.num_first_policies == 1);
}

TEST_CASE("the end of an operation and its failure go to the group") {
  Case c;
  c.services.on_over(Seq(3));
  c.services.fail_everywhere(Seq(4), Status(Code::kInternal, "bad"));
  CHECK(c.events.over == std::vector{Seq(3)});
  CHECK(c.events.failed == std::vector{Seq(4)});
}

TEST_CASE("bytes given as a backup are counted") {
  Case c;
  c.services.note_given(100);
  c.services.note_given(20);
  CHECK(c.services.counters().given_bytes == 120);
}

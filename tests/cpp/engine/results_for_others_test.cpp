// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "engine/results_for_others.h"

#include "harness/ended_operation.h"
#include "harness/group_parts.h"

using namespace aikido;
using engine::ResultsForOthers;
using transport::FrameKind;

namespace {

struct Case : testing::GroupParts {
  Case() { marks.called = marks.announced = marks.acked = 9; }

  void keep(uint64_t seq) {
    CHECK(results.keep(std::make_shared<testing::EndedOperation>(&idle, seq)));
  }
  void acknowledge(std::initializer_list<int32_t> ranks, uint64_t seq) {
    for (const int32_t r : ranks) (*peers)[Rank(r)].note_acked(seq);
    results.trim();
  }
  std::vector<uint64_t> kept() const {
    std::vector<uint64_t> numbers;
    for (const auto& [seq, result] : results.keeper().results()) numbers.push_back(seq);
    return numbers;
  }
  // Numbers of the failures that `rank` has been told.
  std::vector<uint64_t> told(int32_t rank) const {
    std::vector<uint64_t> numbers;
    for (const auto& message : links[static_cast<size_t>(rank) - 1]->sent)
      if (message.header.kind == FrameKind::kAbort)
        numbers.push_back(message.header.seq);
    return numbers;
  }

  ResultsForOthers results{{&options, &marks, &*peers, &change, &own_state, &absent,
                            &life, &outlook, &skipped}};
  engine::CallOutlook outlook{facts()};
};
using Numbers = std::vector<uint64_t>;

}  // namespace

TEST_CASE("a result is kept until all members of the view have acknowledged it") {
  Case c;
  for (const uint64_t seq : {7, 8}) c.keep(seq);
  c.acknowledge({1, 2}, 8);
  CHECK(c.kept() == Numbers{7, 8});
  c.acknowledge({3}, 7);
  CHECK(c.kept() == Numbers{8});
}

TEST_CASE("a lost member needs no result") {
  Case c;
  c.keep(7);
  c.acknowledge({1, 2}, 7);
  c.peers->on_lost(Rank(3), Status(Code::kPeerLost, "reset"));
  c.results.trim();
  CHECK(c.kept().empty());
}

TEST_CASE("results for an excluded member are kept within the log") {
  for (const bool has_room : {true, false}) {
    CAPTURE(has_room);
    Case c;
    if (!has_room) c.options.log_bytes = 0;
    c.install([](membership::View& view) { view.members.erase(Rank(3)); });
    c.absent.on_view(c.change.view(), 6, c.clock.now());
    c.keep(7);
    c.acknowledge({1, 2}, 7);
    CHECK(c.kept().empty() == !has_room);
  }
}

TEST_CASE("an excluded member forgets nothing") {
  Case c;
  c.keep(7);
  c.install([](membership::View& view) { view.members.erase(Rank(0)); });
  c.acknowledge({1, 2, 3}, 7);
  CHECK(c.kept() == Numbers{7});
}

TEST_CASE("a failure is reported again to members that may still wait") {
  Case c;
  c.results.note_failed(7, Status(Code::kInvalidArgument, "different calls"));
  c.acknowledge({1}, 7);
  c.results.tell_failed();
  CHECK(c.told(1).empty());
  CHECK(c.told(2) == Numbers{7});
  CHECK(c.told(3) == Numbers{7});
  // For the receiver this is no sign of different calls.
  CHECK(c.links[1]->sent.back().header.shard == static_cast<uint16_t>(Code::kAborted));
}

TEST_CASE("a failure is not reported for a result that a holder can send") {
  Case c;
  c.results.note_failed(7, Status(Code::kTimedOut, "late"));
  c.install([](membership::View& view) {
    view.held.push_back({Seq(7), 0, Rank(1), RankSet(Case::kSize)});
  });
  c.results.tell_failed();
  CHECK(c.told(2).empty());
}

TEST_CASE("a member that reaches no voter reports no failure") {
  Case c;
  c.change.set_roles(testing::set_of(Case::kSize, {1}));
  c.results.note_failed(7, Status(Code::kPeerLost, "lost"));
  c.change.on_lost(Rank(1), c.clock.now());
  c.results.tell_failed();
  CHECK(c.told(2).empty());
}

TEST_CASE("failures for a refusal, or after the end of the group, are not kept") {
  Case c;
  c.own_state.refuse(Status(Code::kPeerLost, "refused", Rank(0)));
  c.results.note_failed(7, Status(Code::kPeerLost, "refused"));
  c.own_state.forgive();
  c.life.end(Status(Code::kAborted, "over"));
  c.results.note_failed(8, Status(Code::kAborted, "over"));
  CHECK(c.results.keeper().is_empty());
}

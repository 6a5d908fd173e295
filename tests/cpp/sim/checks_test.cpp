// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "sim/checks.h"

#include <optional>

#include "harness/catch.h"
#include "kernels/reduce.h"
#include "membership/view_message.h"

using namespace aikido;
using namespace aikido::sim;
using collectives::Outcome;
using collectives::OutcomeKind;
using std::chrono::milliseconds;

namespace {

constexpr const char* kScript =
    "members 3\nmin-shard 1048576\ntimeout 20s\n"
    "op allreduce 10 sum skip\nop allreduce 10 sum\n"
    "at 0ms call * op=1\nat 0ms call * op=2\n";

// Checks that have been told by hand of three members and their calls of both
// operations.
struct Told {
  explicit Told(const std::string& more = "", int32_t tolerated = 0,
                const std::string& lines = kScript)
      : script(*parse(more + lines)), checks(script, tolerated) {
    for (uint64_t op = 1; op <= 2; ++op)
      for (int32_t r = 0; r < 3; ++r) checks.on_call(r, op, start, r);
  }
  // Ends operation 1 with the correct result of these contributors.
  void answer(int32_t rank, const std::vector<int32_t>& mask,
              const std::vector<Rank>& out = {}) {
    end(rank, mask, fold(mask), 3.0 / static_cast<double>(mask.size()), start, out);
  }
  Bytes fold(const std::vector<int32_t>& mask) {
    std::vector<const void*> sources;
    for (const int32_t r : mask) sources.push_back(checks.input(r, 1).data());
    Bytes out(40);
    kernels::find_reduce(ReduceOp::kSum, DType::kFloat32)(
        out.data(), sources.data(), sources.size(), 10,
        3.0 / static_cast<double>(mask.size()));
    return out;
  }
  void end(int32_t rank, const std::vector<int32_t>& mask, const Bytes& output,
           double scale, TimePoint at = start, const std::vector<Rank>& out = {}) {
    Outcome outcome;
    outcome.out = out;
    outcome.kind = mask.size() < 3 ? OutcomeKind::kPartial : OutcomeKind::kComplete;
    auto& shard = outcome.shards.emplace_back();
    shard.owner = Rank(0);
    shard.scale = scale;
    for (const int32_t r : mask) shard.contributors.emplace_back(r);
    shard.num_elements = 10;
    checks.on_end(rank, 1, Status::ok(), outcome, output, at);
  }
  // Ends operation 1 with these numbers of elements in its shards.
  void end_in_shards(int32_t rank, const std::vector<uint64_t>& counts,
                     uint64_t gap = 0) {
    Outcome outcome;
    outcome.kind = OutcomeKind::kPartial;
    uint64_t next = 0;
    for (const uint64_t count : counts) {
      const collectives::ShardOutcome shard{Rank(0), {Rank(0), Rank(1)}, 1.5, {}, next,
                                            count};
      outcome.shards.push_back(shard);
      next += count + gap;
    }
    checks.on_end(rank, 1, Status::ok(), outcome, fold({0, 1}), start);
  }
  void fail(int32_t rank, uint64_t op, const char* why) {
    checks.on_end(rank, op, Status(Code::kPeerLost, why), {}, Bytes(40), start);
  }
  std::string promise() const { return checks.violation().substr(0, 2); }

  static constexpr TimePoint start{Duration(1)};
  Script script;
  Checks checks;
};

}  // namespace

TEST_CASE("correct answers break no guarantee") {
  Told told;
  for (int32_t r = 0; r < 3; ++r) told.answer(r, {0, 2});
  CHECK(told.checks.violation().empty());
  CHECK(told.checks.num_ends()[1] == 3);
}

TEST_CASE("the checks notice two masks for one shard") {
  Told told;
  told.answer(0, {0, 1, 2});
  told.answer(1, {0, 1});
  CHECK(told.checks.violation() ==
        "S1: operation 1, shard 0 is of {0,1,2} on rank 0 and of {0,1} on rank 1");
}

TEST_CASE("shards must follow each other to the end, and must be equal on all ranks") {
  Told told;
  told.end_in_shards(0, {4, 4, 2});
  told.end_in_shards(1, {4, 4, 2});
  CHECK(told.checks.violation().empty());
  told.end_in_shards(2, {4, 3, 3});
  CHECK(told.checks.violation() ==
        "S1: operation 1 has other shards on rank 0 than on rank 2");
  Told gap;
  gap.end_in_shards(0, {4, 4}, 1);
  CHECK(gap.checks.violation() ==
        "S2: operation 1 on rank 0, shard 1 begins at element 5");
  Told less;
  less.end_in_shards(0, {4, 4});
  CHECK(less.checks.violation() == "S2: operation 1 on rank 0 ends at element 8");
}

TEST_CASE("the checks notice different lists of excluded members") {
  Told told;
  told.answer(0, {0, 1}, {Rank(2)});
  told.answer(1, {0, 1}, {Rank(2)});
  CHECK(told.checks.violation().empty());
  told.answer(2, {0, 1});
  CHECK(told.checks.violation() ==
        "S1: operation 1 has others out on rank 0 than on rank 2");
}

TEST_CASE(
    "a removed member may have exposed another mask, but may expose nothing later") {
  Told told;
  told.answer(0, {0, 1, 2});
  told.checks.on_view(1, {2, 0b110});
  told.answer(1, {1, 2});
  told.answer(2, {1, 2});
  CHECK(told.checks.violation().empty());
  told.checks.on_view(0, {2, 0b110});
  told.end(0, {1, 2}, {}, 1.5);
  CHECK(told.promise() == "S6");  // the operation ends twice
  Told later;
  later.checks.on_view(0, {2, 0b110});
  later.answer(0, {1, 2});
  CHECK(later.promise() == "S1");
}

TEST_CASE(
    "the checks notice views that differ, go back, skip a number or lack a majority") {
  Told two;
  two.checks.on_view(0, {2, 0b011});
  two.checks.on_view(2, {2, 0b110});
  CHECK(two.promise() == "S1");
  Told back;
  back.checks.on_view(0, {2, 0b011});
  back.checks.on_view(0, {1, 0b111});
  CHECK(back.promise() == "S1");
  Told few;
  few.checks.on_view(0, {2, 0b001});
  CHECK(few.promise() == "S1");
  Told skipped;
  skipped.checks.on_view(0, {3, 0b011});
  CHECK(skipped.checks.violation() ==
        "S1: rank 0 is in view 3, and nobody was seen in view 2");
}

TEST_CASE(
    "a result belongs to the view in its header, and its sender is in that view") {
  const auto send = [](Told& told, uint32_t view, uint64_t heard) {
    transport::FrameHeader header;
    header.seq = header.called = 1;
    for (int32_t r = 0; r < 3; ++r)
      if ((heard >> r & 1) != 0) told.checks.on_taken(0, r, header, false);
    told.checks.on_view(0, {2, 0b110});
    header.kind = transport::FrameKind::kResult;
    header.view = view;
    told.checks.on_sent(0, header);
    return told.checks.violation();
  };
  Told late;
  CHECK(send(late, 1, 0b010).empty());
  Told few;
  CHECK(send(few, 1, 0) ==
        "S1: rank 0 closes operation 1 having heard from {0} of {0,1,2}");
  Told removed;
  CHECK(send(removed, 2, 0b110) ==
        "S1: rank 0 sends a result of operation 1 in view 2 of {1,2}");
}

TEST_CASE("a member that rejoins while an operation is open is not in its result") {
  const auto come_back = [](Told& told) {
    told.checks.on_view(0, {2, 0b011});
    told.checks.on_view(0, {3, 0b111});
  };
  Told open;
  come_back(open);
  open.answer(0, {0, 1, 2});
  CHECK(open.promise() == "S2");
  Told without;
  come_back(without);
  without.answer(0, {0, 1});
  CHECK(without.checks.violation().empty());
  // The result exists, but has not left for the other members yet.
  Told exposed;
  exposed.answer(1, {0, 1, 2});
  come_back(exposed);
  exposed.answer(0, {0, 1, 2});
  CHECK(exposed.checks.violation().empty());
  // No member of both views has the result.
  Told alone;
  alone.answer(2, {0, 1, 2});
  come_back(alone);
  alone.answer(0, {0, 1, 2});
  CHECK(alone.promise() == "S2");
}

TEST_CASE("the checks notice wrong bytes, a wrong scale and a missing quorum") {
  Told wrong;
  Bytes output = wrong.fold({0, 2});
  output[7] ^= 1;
  wrong.end(1, {0, 2}, output, 1.5);
  CHECK(wrong.promise() == "S2");
  Told twice;  // rank 2 is counted twice
  twice.end(1, {0, 2}, twice.fold({0, 2, 2}), 1.5);
  CHECK(twice.promise() == "S2");
  Told order;
  order.end(1, {0, 1, 2}, order.fold({2, 1, 0}), 1.0);
  CHECK(order.promise() == "S2");
  Told scale;
  scale.end(1, {0, 2}, scale.fold({0, 2}), 1.0);
  CHECK(scale.promise() == "S3");
  Told quorum;
  quorum.answer(1, {1});
  CHECK(quorum.promise() == "S5");
}

TEST_CASE("a strict operation must be full") {
  Told told;
  Outcome outcome;
  told.checks.on_end(0, 2, Status::ok(), outcome, Bytes(40), Told::start);
  CHECK(told.promise() == "S5");
}

TEST_CASE(
    "a rebalanced sum must be full, and a bucket with one mask must be one shard") {
  std::string lines = kScript;
  lines.replace(lines.find("skip"), 4, "rebalance");
  Told full("", 0, lines);
  full.answer(0, {0, 1, 2});
  CHECK(full.checks.violation().empty());
  full.answer(1, {0, 1});
  CHECK(full.checks.violation() ==
        "S5: operation 1 on rank 1, shard 0 of {0,1} leaves out somebody that it must "
        "not");
  lines = kScript;
  lines.replace(lines.find("skip"), 4, "skip bucket")
      .replace(lines.find("1048576"), 7, "1");
  Told whole("", 0, lines);
  whole.answer(0, {0, 1});
  CHECK(whole.checks.violation().empty());
  Outcome outcome;
  outcome.shards.resize(3);
  whole.checks.on_end(1, 1, Status::ok(), outcome, Bytes(40), Told::start);
  CHECK(whole.checks.violation() == "S2: operation 1 on rank 1 has 3 shards");
}

TEST_CASE("an error needs a fault, and must name a rank") {
  Told needless;
  needless.fail(0, 2, "rank 1 is lost");
  CHECK(needless.promise() == "S6");
  Told lost;
  lost.checks.on_kill(1);
  lost.fail(0, 1, "rank 1 is lost");
  lost.fail(2, 2, "rank 1 is lost");
  CHECK(lost.checks.violation().empty());
  Told nameless;
  nameless.checks.on_kill(1);
  nameless.fail(0, 1, "something is lost");
  CHECK(nameless.promise() == "S6");
  Told tolerated("", 1);
  tolerated.checks.on_kill(1);
  tolerated.fail(0, 2, "rank 1 is lost");  // a strict operation
  CHECK(tolerated.checks.violation().empty());
  tolerated.fail(0, 1, "rank 1 is lost");
  CHECK(tolerated.promise() == "S6");
}

// Operation 1 needs two of three members, and rank 2 was excluded after the first call.
TEST_CASE(
    "an operation may fail after an exclusion only if another member is lost, too") {
  const auto fail_after = [](std::optional<int32_t> cut_from_0, int32_t tolerated = 1) {
    Told told("", tolerated);
    told.checks.on_view(0, {2, 0b011});
    told.checks.on_view(0, {3, 0b111});
    if (cut_from_0) told.checks.on_cut(0, *cut_from_0);
    told.fail(0, 1, "rank 1 is lost");
    return told.promise();
  };
  CHECK(fail_after(std::nullopt) == "S6");
  CHECK(fail_after(1).empty());
  // Rank 2 has to go in this case, and takes no part in the operation any more.
  CHECK(fail_after(2) == "S6");
  // A frame that never arrives is like a lost connection, but no member need notice it.
  Told held("", 1);
  held.checks.on_held(1, 0);
  held.checks.on_view(0, {2, 0b011});
  held.fail(0, 1, "rank 1 is lost");
  CHECK(held.checks.violation().empty());
}

// Five members, three of which call operation 1. The views exclude rank 4, then rank 3.
TEST_CASE("a view may exclude a needed member only if a loss was not known yet") {
  enum class Known { kNever, kAfterTheAnswer, kBefore };
  const auto fail_after = [](Known known) {
    std::string lines = kScript;
    lines.replace(0, 9, "members 5");
    Told told("", 1, lines);
    told.checks.on_view(0, {2, 0b01111});
    if (known == Known::kBefore) told.checks.on_lost(0, 1);
    transport::FrameHeader question;
    question.kind = transport::FrameKind::kView;
    question.shard = static_cast<uint16_t>(membership::ViewStep::kPrepare);
    for (const int32_t r : {0, 1}) told.checks.on_taken(r, 2, question, true);
    if (known == Known::kAfterTheAnswer) told.checks.on_lost(0, 1);
    told.checks.on_cut(0, 1);
    told.checks.on_view(2, {3, 0b00111});
    told.fail(2, 1, "rank 1 is lost");
    return told.promise();
  };
  CHECK(fail_after(Known::kBefore) == "S6");
  CHECK(fail_after(Known::kAfterTheAnswer).empty());
  CHECK(fail_after(Known::kNever).empty());
}

TEST_CASE("a view need not know calls that a member makes after its question") {
  const auto fail_after = [](bool has_asked) {
    std::string lines = kScript;
    lines.replace(0, 9, "members 5");
    lines.insert(lines.find("at"), "op allreduce 10 sum skip\n");
    Told told("", 1, lines);
    told.checks.on_view(0, {2, 0b01111});
    told.checks.on_lost(0, 1);
    transport::FrameHeader question;
    question.kind = transport::FrameKind::kView;
    question.shard = static_cast<uint16_t>(membership::ViewStep::kPrepare);
    for (const int32_t r : {0, 1}) {
      if (has_asked) told.checks.on_sent(r, question);
      told.checks.on_call(r, 3, Told::start, r);
      told.checks.on_taken(r, 2, question, true);
    }
    told.checks.on_cut(0, 1);
    told.checks.on_view(2, {3, 0b00111});
    told.checks.on_call(2, 3, Told::start, 2);
    told.fail(2, 3, "rank 1 is lost");
    return told.promise();
  };
  CHECK(fail_after(false) == "S6");
  CHECK(fail_after(true).empty());
}

TEST_CASE("a copied state does not change the blocks of a reduce_scatter") {
  std::string lines = kScript;
  lines.replace(lines.find("allreduce 10"), 12, "reduce_scatter 10");
  Told told("", 0, lines);
  const auto end = [&](int32_t rank, const std::vector<int32_t>& mask) {
    Outcome outcome;
    auto& own = outcome.shards.emplace_back();
    own.owner = Rank(rank);
    for (const int32_t r : mask) own.contributors.emplace_back(r);
    own.scale = 3.0 / static_cast<double>(mask.size());
    const size_t begin = static_cast<size_t>(rank) * 40;
    std::vector<const void*> sources;
    for (const int32_t r : mask)
      sources.push_back(told.checks.input(r, 1).data() + begin);
    Bytes block(40);
    kernels::find_reduce(ReduceOp::kSum, DType::kFloat32)(
        block.data(), sources.data(), sources.size(), 10, own.scale);
    if (rank == 2) {  // rank 2 was told that it is not in the block of rank 1
      auto& other = outcome.shards.emplace_back();
      other.owner = Rank(1);
      other.contributors = {Rank(0), Rank(1)};
    }
    told.checks.on_end(rank, 1, Status::ok(), outcome, block, Told::start);
  };
  end(0, {0, 2});
  end(1, {0, 1});
  told.checks.on_pass(1, 0, 1);
  end(2, {0, 1, 2});
  CHECK(told.checks.violation().empty());
}

TEST_CASE("the checks notice late, repeated and missing answers and touched memory") {
  Told late;
  late.end(0, {0, 2}, late.fold({0, 2}), 1.5, Told::start + milliseconds(20'001));
  CHECK(late.promise() == "S6");
  Told stopped;
  stopped.checks.on_stop(0, Told::start + milliseconds(30'000));
  stopped.end(0, {0, 2}, stopped.fold({0, 2}), 1.5, Told::start + milliseconds(30'000));
  CHECK(stopped.checks.violation().empty());
  Told missing;
  missing.checks.on_finish(Told::start);
  CHECK(missing.promise() == "S6");
  Told touched;
  touched.checks.on_memory_touched(0, 1);
  CHECK(touched.promise() == "S6");
}

TEST_CASE("the checks notice an overfull log and unneeded messages") {
  Script script =
      *parse("members 2\nlog 10\nop allreduce 10 sum skip\nop allreduce 10 sum skip\n");
  Checks log(script, 0);
  log.on_result(1, 1, 40);
  CHECK(log.violation().empty());
  log.on_result(1, 1, 40);  // the same result again, in another view
  CHECK(log.violation().empty());
  log.on_result(1, 2, 40);
  CHECK(log.violation().substr(0, 2) == "L6");

  Script calm = *parse("members 2\ncalm 2ms\nop allreduce 10 sum skip\n");
  Checks path(calm, 0);
  transport::FrameHeader header;
  header.seq = header.called = 1;
  path.on_taken(0, 1, header, true);
  for (const auto kind :
       {transport::FrameKind::kContrib, transport::FrameKind::kResult}) {
    header.kind = kind;
    path.on_sent(0, header);
  }
  path.on_finish(Told::start);
  CHECK(path.violation().empty());
  header.kind = transport::FrameKind::kReady;
  path.on_sent(0, header);
  path.on_finish(Told::start);
  CHECK(path.violation().substr(0, 2) == "L1");
}

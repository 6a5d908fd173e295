// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
// Tests with three primaries and a backup, rank 3, unless a test has other numbers.
// Every member owns a shard, and links take 1 ms.
#include <set>

#include "collectives/skippable/partial_allreduce.h"
#include "harness/catch.h"
#include "harness/cluster.h"

using namespace aikido;
using namespace aikido::testing;
using collectives::OutcomeKind;
using straggler::BackupMode;
using straggler::StandIn;
using transport::FrameHeader;
using transport::FrameKind;

namespace {

using Ranks = std::vector<Rank>;
using StandIns = std::vector<StandIn>;

Call backed_up_call(size_t count, int32_t backups = 1,
                    BackupMode mode = BackupMode::kShadow) {
  Call call = skip_sum_call(count);
  call.op = ReduceOp::kAvg;
  call.policy.backups = backups;
  call.policy.backup_mode = mode;
  call.policy.min_contributors = mode == BackupMode::kNPlusB ? 0 : 1;
  call.policy.floor = milliseconds(10);
  return call;
}

// A group, and the data shards of its next operation.
struct Backed {
  explicit Backed(const Call& what, int32_t size = 4, size_t min_shard = 64)
      : call(what),
        primaries(size - what.policy.backups),
        cluster({.size = size, .min_shard_bytes = min_shard}) {
    cluster.set_all_delays(milliseconds(1));
    cluster.network.set_tap(
        [this](Rank from, Rank to, const FrameHeader& header, TimePoint at) {
          if (header.kind == FrameKind::kContrib && from.value >= primaries)
            bytes_of_backups += header.payload_bytes;
          if (header.kind == FrameKind::kNeed) ++num_asked;
          return hold ? hold(from, to, header, at) : at;
        });
    renew();
  }
  void renew() {
    inputs.clear();
    for (int32_t r = 0; r < cluster.size(); ++r)
      inputs.push_back(random_elements(call.dtype, call.count, ++seed));
    answers.clear();
  }
  const Bytes& input(int32_t d) const { return inputs[static_cast<size_t>(d)]; }
  void primary(int32_t rank) {
    answers.push_back(cluster.allreduce(rank, call, input(rank)));
  }
  void backup(int32_t rank, int32_t data_shard) {
    answers.push_back(cluster.back_up(rank, call, input(data_shard), data_shard));
  }
  bool run(Duration limit = milliseconds(5000)) {
    return cluster.run_until_done(answers, limit);
  }
  // The mean of these data shards, as if all came from their primaries.
  Bytes mean(const std::vector<int32_t>& data_shards) const {
    Ranks ranks;
    for (const int32_t d : data_shards) ranks.emplace_back(d);
    return folded(call, inputs, ranks, 1.0 / static_cast<double>(ranks.size()));
  }
  // Runs operations in which all members are in time, so that lags are known.
  void warm_up(int32_t shadowed = 0) {
    for (int i = 0; i < 4; ++i) {
      for (int32_t r = 0; r < primaries; ++r) primary(r);
      for (int32_t r = primaries; r < cluster.size(); ++r)
        answers.push_back(
            cluster.back_up(r, call, input(shadowed),
                            call.policy.backup_mode == BackupMode::kSubstitute
                                ? straggler::kAnyDataShard
                                : shadowed));
      REQUIRE(run());
      cluster.run_for(milliseconds(100));
      renew();
    }
    bytes_of_backups = 0;
    num_asked = 0;
  }
  bool all_have(const Bytes& expected) const {
    for (const AnswerPtr& a : answers)
      if (!a->is_ok()) UNSCOPED_INFO(a->times << " answers: " << a->status.message());
    return std::all_of(answers.begin(), answers.end(), [&](const AnswerPtr& a) {
      return a->is_ok() && a->output == expected;
    });
  }

  Call call;
  int32_t primaries;
  Cluster cluster;
  uint64_t seed = 1;
  std::vector<Bytes> inputs;  // by data shard, then those of the backups
  std::vector<AnswerPtr> answers;
  uint64_t bytes_of_backups = 0;
  int num_asked = 0;
  std::function<TimePoint(Rank, Rank, const FrameHeader&, TimePoint)> hold;
};

constexpr int32_t kNobody = straggler::kAnyDataShard;

}  // namespace

TEST_CASE("without late members a backup costs no bytes and no time") {
  for (const size_t count : {0u, 1u, 100u, 1000u}) {
    Backed b(backed_up_call(count));
    for (int i = 0; i < 3; ++i) {
      b.backup(3, i);
      for (int32_t r = 0; r < 3; ++r) b.primary(r);
      REQUIRE(b.run(milliseconds(3)));
      CHECK(b.all_have(b.mean({0, 1, 2})));
      for (const auto& a : b.answers) {
        CHECK(a->outcome.kind == OutcomeKind::kComplete);
        CHECK(a->outcome.contributors == Ranks{Rank(0), Rank(1), Rank(2)});
        CHECK(a->outcome.stand_ins.empty());
        CHECK(a->outcome.skipped_by.empty());
      }
      b.cluster.run_for(milliseconds(50));
      b.renew();
    }
    CHECK(b.bytes_of_backups == 0);
    CHECK(b.num_asked == 0);
  }
}

TEST_CASE("a late primary is covered bit for bit, at each rank") {
  for (const size_t count : {10u, 1000u}) {  // one owner, then an owner per rank
    for (int32_t late = 0; late < 3; ++late) {
      Backed b(backed_up_call(count));
      b.warm_up(late);
      for (int32_t r = 0; r < 3; ++r)
        if (r != late) b.primary(r);
      b.backup(3, late);
      REQUIRE(b.run());
      CHECK(b.all_have(b.mean({0, 1, 2})));
      for (const auto& a : b.answers) {
        CHECK(a->outcome.kind == OutcomeKind::kComplete);
        CHECK(a->outcome.skipped.empty());
        CHECK(a->outcome.stand_ins == StandIns{{Rank(late), Rank(3)}});
        for (const auto& shard : a->outcome.shards)
          CHECK(shard.stand_ins == StandIns{{Rank(late), Rank(3)}});
      }
      // At most one more contribution.
      CHECK(b.bytes_of_backups > 0);
      CHECK(b.bytes_of_backups <= b.call.bytes());
      b.cluster.run_for(milliseconds(50));
      b.primary(late);
      REQUIRE(b.answers.back()->is_done());
      CHECK(b.all_have(b.mean({0, 1, 2})));
      CHECK(b.cluster.group(late).counters().skipped_own == 0);
      CHECK(b.answers.back()->outcome.skipped_by.empty());
    }
  }
}

TEST_CASE("the two copies of a data shard count once, in both orders of arrival") {
  for (const bool is_primary_first : {true, false}) {
    Backed b(backed_up_call(10), 4, 1 << 20);  // rank 0 owns it
    b.warm_up(2);
    const TimePoint begin = b.cluster.clock.now();
    b.hold = [&](Rank from, Rank, const FrameHeader& header, TimePoint at) {
      if (header.kind != FrameKind::kContrib || header.payload_bytes == 0) return at;
      if (from == Rank(2))
        return begin + (is_primary_first ? milliseconds(25) : milliseconds(26));
      if (from == Rank(3))
        return begin + (is_primary_first ? milliseconds(26) : milliseconds(25));
      return at;
    };
    for (int32_t r = 0; r < 3; ++r) b.primary(r);
    b.backup(3, 2);
    // Neither copy is in time. Both are on their way when the first one arrives.
    REQUIRE(b.run());
    CHECK(b.num_asked == 1);
    CHECK(b.all_have(b.mean({0, 1, 2})));
    for (const auto& a : b.answers)
      CHECK(a->outcome.stand_ins ==
            (is_primary_first ? StandIns{} : StandIns{{Rank(2), Rank(3)}}));
    b.cluster.run_idle();
    for (const auto& a : b.answers) CHECK(a->memory_is_untouched());
  }
}

TEST_CASE("of two late primaries one backup covers one, and the outcome names both") {
  Backed b(backed_up_call(1000));
  b.warm_up(1);
  b.primary(0);
  b.backup(3, 1);
  REQUIRE(b.run());
  CHECK(b.all_have(b.mean({0, 1})));
  b.cluster.run_for(milliseconds(50));
  b.primary(2);
  b.primary(1);
  for (const auto& a : b.answers) {
    CHECK(a->outcome.kind == OutcomeKind::kPartial);
    CHECK(a->outcome.skipped == Ranks{Rank(2)});
    CHECK(a->outcome.stand_ins == StandIns{{Rank(1), Rank(3)}});
    CHECK(a->outcome.contributors == Ranks{Rank(0), Rank(1)});
    CHECK(a->outcome.shards[0].scale == 0.5);
  }
  CHECK(b.answers[2]->outcome.skipped_by.size() == 4);
  CHECK(b.answers[3]->outcome.skipped_by.empty());
  CHECK(b.cluster.group(2).counters().skipped_own == 1);
}

TEST_CASE("a primary that is late again and again is covered without a wait") {
  Backed b(backed_up_call(1000));
  b.warm_up(2);
  for (int i = 0; i < 3; ++i) {
    b.primary(0);
    b.primary(1);
    b.backup(3, 2);
    const TimePoint begin = b.cluster.clock.now();
    REQUIRE(b.run());
    CHECK(b.all_have(b.mean({0, 1, 2})));
    // It is known to be behind, so these remain: offer, question, contribution, result,
    // acknowledgement.
    if (i > 0) CHECK(b.cluster.clock.now() - begin <= milliseconds(5));
    b.renew();
  }
}

TEST_CASE("the data shard of a dead primary comes from the backup") {
  Backed b(backed_up_call(1000));
  b.warm_up(1);
  b.cluster.kill(1);
  for (int i = 0; i < 3; ++i) {
    b.primary(0);
    b.primary(2);
    b.backup(3, 1);
    REQUIRE(b.run());
    CHECK(b.all_have(b.mean({0, 1, 2})));
    for (const auto& a : b.answers) {
      CHECK(a->outcome.stand_ins == StandIns{{Rank(1), Rank(3)}});
      // In the first operation it was still a member.
      CHECK(a->outcome.out == (i == 0 ? Ranks{} : Ranks{Rank(1)}));
    }
    b.renew();
  }
}

TEST_CASE("a dead backup costs nothing but its own help") {
  Backed b(backed_up_call(1000));
  b.warm_up();
  b.cluster.kill(3);
  b.cluster.run_for(milliseconds(50));
  for (int i = 0; i < 3; ++i) {
    for (int32_t r = 0; r < 3; ++r) b.primary(r);
    REQUIRE(b.run(milliseconds(3)));
    CHECK(b.all_have(b.mean({0, 1, 2})));
    for (const auto& a : b.answers) CHECK(a->outcome.out == Ranks{Rank(3)});
    b.renew();
  }
  b.primary(0);
  b.primary(1);
  REQUIRE(b.run());
  CHECK(b.all_have(b.mean({0, 1})));
}

TEST_CASE("a backup that dies after it was asked is no longer waited for") {
  Backed b(backed_up_call(10), 4, 1 << 20);
  b.warm_up(2);
  const TimePoint begin = b.cluster.clock.now();
  b.hold = [&](Rank from, Rank, const FrameHeader& header, TimePoint at) {
    const bool is_it = from == Rank(3) && header.kind == FrameKind::kContrib &&
                       header.payload_bytes > 0;
    return is_it ? begin + std::chrono::seconds(9) : at;
  };
  b.primary(0);
  b.primary(1);
  b.backup(3, 2);
  while (b.num_asked == 0) b.cluster.run_for(milliseconds(1));
  b.cluster.kill(3);
  b.answers.pop_back();
  REQUIRE(b.run(milliseconds(500)));
  CHECK(b.all_have(b.mean({0, 1})));
}

TEST_CASE("a substitute fills the missing data shard with its own data") {
  Backed b(backed_up_call(1000, 1, BackupMode::kSubstitute));
  b.warm_up();
  b.primary(0);
  b.primary(2);
  b.answers.push_back(b.cluster.back_up(3, b.call, b.input(3), kNobody));
  REQUIRE(b.run());
  CHECK(b.all_have(folded(b.call, b.inputs, {Rank(0), Rank(3), Rank(2)}, 1.0 / 3)));
  for (const auto& a : b.answers)
    CHECK(a->outcome.stand_ins == StandIns{{Rank(1), Rank(3)}});
}

TEST_CASE(
    "n_plus_b ends with as many contributions as there are primaries, from any ranks") {
  Backed b(backed_up_call(1000, 1, BackupMode::kNPlusB));
  for (const int32_t r : {0, 1, 3}) b.primary(r);
  const TimePoint begin = b.cluster.clock.now();
  REQUIRE(b.run());
  CHECK(b.cluster.clock.now() - begin <= milliseconds(4));
  CHECK(b.all_have(b.mean({0, 1, 3})));
  for (const auto& a : b.answers) {
    CHECK(a->outcome.skipped == Ranks{Rank(2)});
    CHECK(a->outcome.stand_ins.empty());
  }
}

TEST_CASE("with replicas any primary may be late without a wait") {
  Backed b(backed_up_call(1000, 2, BackupMode::kReplicate));
  b.primary(0);
  b.backup(2, 0);
  b.backup(3, 1);
  const TimePoint begin = b.cluster.clock.now();
  REQUIRE(b.run());
  CHECK(b.cluster.clock.now() - begin <= milliseconds(4));
  CHECK(b.all_have(b.mean({0, 1})));
  CHECK(b.num_asked == 0);
  b.cluster.run_for(milliseconds(50));
  b.primary(1);
  CHECK(b.all_have(b.mean({0, 1})));
}

TEST_CASE("a shadow with different bits ends the call on every member, with its name") {
  for (const int32_t first : {1, 3}) {  // the copy that arrives first
    for (const size_t count : {1u, 1000u}) {
      Call call = backed_up_call(count);
      call.policy.verify_shadows = true;
      Backed b(call);
      // Equal bits are accepted, and cost their bytes.
      for (int32_t r = 0; r < 3; ++r) b.primary(r);
      b.backup(3, 1);
      REQUIRE(b.run());
      CHECK(b.all_have(b.mean({0, 1, 2})));
      CHECK(b.bytes_of_backups > 0);
      b.renew();

      Bytes other = b.input(1);
      other.back() ^= 1;
      const auto call_one = [&](int32_t r) {
        if (r < 3) return b.primary(r);
        b.answers.push_back(b.cluster.back_up(3, b.call, other, 1));
      };
      call_one(first);
      b.cluster.run_for(milliseconds(5));
      for (const int32_t r : {0, 1, 2, 3})
        if (r != first) call_one(r);
      REQUIRE(b.run());
      for (const auto& a : b.answers) {
        CHECK(a->times == 1);
        CHECK(a->status.code() == Code::kInvalidArgument);
        CHECK(
            a->status.message().find(
                "what backup rank 3 has computed for data shard 1 is not bit-equal to "
                "what its primary, rank 1, has: the user's code is not "
                "deterministic") != std::string::npos);
        CHECK(a->memory_is_untouched());
      }
    }
  }
}

TEST_CASE("all members get an error if they disagree on backups") {
  const auto change = GENERATE(0, 1, 2);
  Backed b(backed_up_call(100), 5);
  Call other = b.call;
  if (change == 0) other.policy.backups = 2;
  if (change == 1) other.policy.backup_mode = BackupMode::kSubstitute;
  if (change == 2) other.policy.verify_shadows = true;
  for (int32_t r = 0; r < 4; ++r)
    b.answers.push_back(b.cluster.allreduce(r, b.call, b.input(r)));
  b.answers.push_back(b.cluster.back_up(4, other, b.input(0), 0));
  REQUIRE(b.run());
  for (const auto& a : b.answers) {
    CHECK(a->status.code() == Code::kInvalidArgument);
    CHECK(a->status.message().find(straggler::to_string(other.policy)) !=
          std::string::npos);
    CHECK(a->status.message().find(straggler::to_string(b.call.policy)) !=
          std::string::npos);
  }
}

TEST_CASE("a backup that owns a shard serves it while its caller is late") {
  Backed b(backed_up_call(1000));
  for (int32_t r = 0; r < 3; ++r) b.primary(r);
  REQUIRE(b.run(milliseconds(3)));
  CHECK(b.all_have(b.mean({0, 1, 2})));
  b.cluster.run_for(milliseconds(50));
  b.backup(3, 0);
  CHECK(b.answers.back()->is_done());
  CHECK(b.answers.back()->outcome.was_committed);
  CHECK(b.all_have(b.mean({0, 1, 2})));
}

TEST_CASE(
    "a call ends soon after no backup can fill its missing data shard, and not "
    "before") {
  const auto begin_one = [](BackupMode mode) {
    Call call = backed_up_call(1000, 1, mode);
    call.policy.min_contributors = 2;
    auto b = std::make_unique<Backed>(call, 3);
    b->primary(0);
    b->cluster.run_for(milliseconds(1));
    b->cluster.kill(1);
    b->cluster.run_for(milliseconds(100));
    REQUIRE_FALSE(b->answers[0]->is_done());  // the backup may fill the hole
    return b;
  };
  const auto shadowing_one = begin_one(BackupMode::kShadow);
  shadowing_one->backup(2, 1);
  REQUIRE(shadowing_one->run(milliseconds(100)));
  CHECK(shadowing_one->all_have(shadowing_one->mean({0, 1})));

  const auto shadowing_other = begin_one(BackupMode::kShadow);
  shadowing_other->backup(2, 0);
  REQUIRE(shadowing_other->run(milliseconds(100)));
  for (const auto& a : shadowing_other->answers) {
    CHECK(a->status.code() == Code::kPeerLost);
    CHECK(a->status.culprit() == Rank(1));
    CHECK(a->status.message().find(
              "only 2 of 3 members are left, with 1 of 2 data shards, fewer than "
              "min_contributors=2") != std::string::npos);
  }

  const auto substitute = begin_one(BackupMode::kSubstitute);
  substitute->answers.push_back(
      substitute->cluster.back_up(2, substitute->call, substitute->input(2), kNobody));
  REQUIRE(substitute->run(milliseconds(100)));
  for (const auto& a : substitute->answers) {
    CHECK(a->is_ok());
    CHECK(a->outcome.stand_ins == StandIns{{Rank(1), Rank(2)}});
  }
}

TEST_CASE("the data shards that two backups have computed are counted together") {
  Call call = backed_up_call(1000, 2);
  call.policy.min_contributors = 3;
  Backed b(call, 5);
  b.warm_up();
  b.cluster.kill(2);
  b.cluster.run_for(milliseconds(100));
  b.primary(0);
  b.primary(1);
  b.backup(3, 0);
  b.backup(4, 1);  // no backup knows of the other
  REQUIRE(b.run(milliseconds(3)));
  for (const auto& a : b.answers)
    CHECK(a->status.message().find("with 2 of 3 data shards") != std::string::npos);
}

TEST_CASE("members may receive a result that contains the data of a dead primary") {
  Call call = backed_up_call(1000);
  call.policy.min_contributors = 2;
  Backed b(call, 3);
  const TimePoint begin = b.cluster.clock.now();
  b.hold = [&](Rank from, Rank to, const FrameHeader& header, TimePoint at) {
    const bool is_it =
        from == Rank(0) && to == Rank(2) && header.kind == FrameKind::kResult;
    return is_it ? begin + milliseconds(20) : at;
  };
  b.primary(0);
  b.backup(2, 0);
  b.cluster.allreduce(1, b.call, b.input(1));
  while (!b.answers[0]->is_done()) b.cluster.run_for(milliseconds(1));
  b.cluster.kill(1);
  REQUIRE(b.run(milliseconds(100)));
  CHECK(b.all_have(b.mean({0, 1})));
}

TEST_CASE(
    "a question to a backup ends also while other members are asked if they live") {
  Backed b(backed_up_call(10), 4, 1 << 20);  // rank 0 owns it
  b.warm_up(2);
  b.primary(0);
  b.primary(1);
  REQUIRE(b.run());
  CHECK(b.all_have(b.mean({0, 1})));
  b.renew();
  // Ranks 2 and 3 are known to be behind, and only half of the members have called. So
  // the owner asks the others. The backup calls before they answer, but then it is
  // slow.
  const TimePoint begin = b.cluster.clock.now();
  bool is_waiting = false;
  b.hold = [&](Rank from, Rank, const FrameHeader& header, TimePoint at) {
    if (header.kind == FrameKind::kAskPresent) is_waiting = true;
    const bool is_it = from == Rank(3) && header.kind == FrameKind::kContrib &&
                       header.payload_bytes > 0;
    return is_it ? begin + std::chrono::seconds(9) : at;
  };
  b.primary(0);
  b.primary(1);
  while (!is_waiting) b.cluster.run_for(std::chrono::microseconds(100));
  for (int i = 0; i < 2; ++i) b.cluster.back_up(3, b.call, b.input(2), 2);
  REQUIRE(b.run(milliseconds(50)));
  CHECK(b.num_asked == 1);
  CHECK(b.all_have(b.mean({0, 1})));
}

TEST_CASE("with one primary a covered call takes no longer than with more") {
  Backed b(backed_up_call(1000), 2);
  b.warm_up();
  for (int i = 0; i < 3; ++i) {
    const TimePoint begin = b.cluster.clock.now();
    b.backup(1, 0);
    REQUIRE(b.run());
    CHECK(b.all_have(b.input(0)));
    CHECK(b.answers[0]->outcome.stand_ins == StandIns{{Rank(0), Rank(1)}});
    // Only the primary can acknowledge the result, and it does so at once.
    CHECK(b.cluster.clock.now() - begin <= milliseconds(30));
    b.cluster.run_for(milliseconds(100));
    b.primary(0);
    CHECK(b.all_have(b.input(0)));
    b.renew();
  }
}

TEST_CASE(
    "the owner's call ends when half of the others have the full result, backups "
    "included") {
  Backed b(backed_up_call(1000, 3), 6, 1 << 20);  // rank 0 owns it
  b.warm_up();
  for (const int32_t r : {2, 3, 4, 5})
    b.cluster.network.set_rate(Rank(0), Rank(r), r < 4 ? 200'000 : 50'000);
  const bool have_called = GENERATE(true, false);  // true if the backups have
  if (have_called)
    for (int32_t r = 3; r < 6; ++r) b.backup(r, 0);
  b.cluster.run_for(milliseconds(5));
  const TimePoint begin = b.cluster.clock.now();
  for (int32_t r = 0; r < 3; ++r) b.primary(r);
  REQUIRE(b.run());
  // One of the other two primaries has the result at once, and rank 2 after 20 ms.
  Duration first = Duration::max();
  for (const auto& a : b.answers) first = std::min(first, a->at - begin);
  CHECK(first <= milliseconds(5));
  const Duration of_owner = b.answers[have_called ? 3 : 0]->at - begin;
  CHECK(of_owner >= milliseconds(20));
  CHECK(of_owner <= milliseconds(35));
  CHECK(b.all_have(b.mean({0, 1, 2})));
}

TEST_CASE("a slow owner is suspected also if backups complete the quorum") {
  Call call = backed_up_call(1000);
  call.policy.min_contributors = 3;
  Backed b(call);
  b.warm_up(2);
  b.cluster.kill(2);
  for (int i = 0; i < 4; ++i) {
    b.primary(0);
    b.primary(1);
    b.backup(3, 2);
    REQUIRE(b.run());
    CHECK(b.all_have(b.mean({0, 1, 2})));
    b.cluster.run_for(milliseconds(100));
    b.renew();
  }
  const TimePoint begin = b.cluster.clock.now();
  b.hold = [&](Rank from, Rank to, const FrameHeader& header, TimePoint at) {
    const bool is_it =
        from == Rank(1) && to == Rank(3) && header.kind == FrameKind::kResult;
    return is_it ? begin + std::chrono::seconds(9) : at;
  };
  b.primary(0);
  b.primary(1);
  b.backup(3, 2);
  REQUIRE(b.run(milliseconds(2000)));
  CHECK(b.all_have(b.mean({0, 1, 2})));
}

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
// Three primaries and a backup, rank 3, unless a test has other numbers. All members
// are in time in the operations before the tested operation, so each has only the
// grace.
#include "straggler/active_backup.h"

#include <memory>

#include "harness/catch.h"
#include "straggler/group_policy.h"
#include "straggler/play.h"

namespace aikido::straggler {
namespace {

using testing::kBytes;
using testing::log_of;
using testing::ms;
using testing::skip_options;

constexpr uint64_t kNoLogLimit = UINT64_MAX;
constexpr Rank kBackup{3};
using Ranks = std::vector<Rank>;
using StandIns = std::vector<StandIn>;

PolicyOptions backed_up(int32_t backups = 1, BackupMode mode = BackupMode::kShadow) {
  PolicyOptions options = skip_options();
  options.backups = backups;
  options.backup_mode = mode;
  options.warmup_operations = 2;
  return options;
}

// A group, the policy of one shard at a time, and a clock in milliseconds.
struct Shards {
  explicit Shards(const PolicyOptions& options, int32_t members = 4,
                  uint64_t log = kNoLogLimit)
      : size(members), group(options, log_of(members, log)) {}

  void begin(size_t most = 7) {
    policy = group.start_with_backups(Seq(++seq), kBytes, RankSet(size), most);
  }
  TimePoint at(double t) const { return start + ms(t); }
  void arrive(int32_t rank, double t) { policy->on_arrival(Rank(rank), at(t)); }
  void offer(int32_t rank, int32_t data_shard, double t) {
    policy->on_offer(Rank(rank), data_shard, at(t));
  }
  void copy(int32_t rank, double t) { policy->on_copy(Rank(rank), at(t)); }
  Ranks ask(double t) { return policy->ask(at(t)); }
  Decision decide(double t) {
    (void)policy->ask(at(t));
    return policy->decide(at(t));
  }
  // Milliseconds to the next look; -1: none.
  double look() const {
    const auto next = policy->next_look();
    return next ? to_ms(*next - start) : -1;
  }
  // Reports the result to the group, as all members learn it, and starts the next
  // operation a second later.
  void commit(double t) {
    policy->on_close({}, kBytes, at(t));
    RankSet in_time = policy->arrived();
    RankSet covered(size);
    for (const auto& [data_shard, backup] : policy->stand_ins()) {
      in_time.erase(data_shard);
      covered.insert(data_shard);
    }
    group.history().on_committed(Seq(seq), in_time, covered,
                                 Rank(size - group.options().backups), kBytes);
    start += std::chrono::seconds(1);
  }
  // Runs operations in which all members arrive at once.
  void warm_up(int times = 4) {
    const int32_t primaries = size - group.options().backups;
    for (; times > 0; --times) {
      begin();
      for (int32_t r = 0; r < primaries; ++r) arrive(r, 0);
      for (int32_t r = primaries; r < size; ++r) {
        offer(r,
              group.options().backup_mode == BackupMode::kSubstitute ? kAnyDataShard
                                                                     : r - primaries,
              0);
        if (group.options().backup_mode == BackupMode::kReplicate) copy(r, 0);
      }
      commit(0);
    }
  }

  int32_t size;
  GroupPolicy group;
  std::unique_ptr<ActiveBackup> policy;
  uint64_t seq = 0;
  TimePoint start{std::chrono::hours(1)};
};

TEST_CASE("without a late member no backup is asked or waited for") {
  Shards s(backed_up());
  s.begin();
  s.arrive(0, 0);
  s.arrive(1, 1);
  CHECK_FALSE(s.decide(1).closes());
  s.arrive(2, 2);
  const Decision d = s.decide(2);
  CHECK(d.closes());
  CHECK(d.reason == Reason::kComplete);
  CHECK(d.num_arrived == 3);
  CHECK(d.world_size == 3);
  CHECK(s.policy->stand_ins().empty());

  s.begin();
  s.offer(3, 2, 0);
  for (int32_t r = 0; r < 3; ++r) {
    s.arrive(r, r);
    CHECK(s.ask(r).empty());
  }
  CHECK(s.decide(2).closes());
  CHECK(s.look() == -1);
}

TEST_CASE("a backup is asked when its primary has no time left, and counts for it") {
  Shards s(backed_up());
  s.warm_up();
  const double grace = to_ms(
      s.group.deadline_of(Rank(2), Seq(1000), kBytes));  // a period, divided by 2 n
  REQUIRE(grace > 20);
  s.begin();
  s.arrive(0, 0);
  s.offer(3, 2, 1);
  s.arrive(1, 5);
  CHECK(s.ask(5).empty());
  CHECK(s.look() == 5 + grace);
  CHECK(s.ask(5 + grace) == Ranks{kBackup});
  CHECK(s.ask(6 + grace).empty());  // the backup is asked once only
  CHECK_FALSE(s.decide(6 + grace).closes());
  s.copy(3, 8 + grace);
  const Decision d = s.decide(8 + grace);
  CHECK(d.closes());
  CHECK(d.reason == Reason::kComplete);
  CHECK(s.policy->stand_ins() == StandIns{{Rank(2), kBackup}});
  CHECK(s.policy->arrived().count() == 3);
}

TEST_CASE("the first copy of a data shard counts, in either order, and only it") {
  for (const bool is_primary_first : {true, false}) {
    Shards s(backed_up());
    s.warm_up();
    s.begin();
    s.arrive(0, 0);
    s.arrive(1, 0);
    s.offer(3, 2, 0);
    REQUIRE(s.ask(500) == Ranks{kBackup});
    if (is_primary_first) {
      s.arrive(2, 501);
      s.copy(3, 502);
    } else {
      s.copy(3, 501);
      s.arrive(2, 502);
    }
    CHECK(s.decide(502).closes());
    CHECK(s.policy->arrived().count() == 3);
    CHECK(s.policy->stand_ins().size() == (is_primary_first ? 0u : 1u));
  }
}

TEST_CASE("a stand-in is no arrival of its primary") {
  Shards s(backed_up());
  s.warm_up();
  s.begin();
  s.arrive(0, 0);
  s.arrive(1, 0);
  s.offer(3, 2, 0);
  s.ask(500);
  s.copy(3, 510);
  REQUIRE(s.decide(510).closes());
  s.commit(510);
  const History& history = s.group.history();
  CHECK_FALSE(history.recent().delay(Seq(5), Rank(2)));
  CHECK(history.late_run(Rank(2)) == 1);
  CHECK(history.healthy_run(Rank(2)) == 0);
  CHECK(history.consecutive_skips(Rank(2)) == 0);  // no data were lost
  CHECK(history.last_skipped(Rank(2)) == Seq(5));
  // Its own lateness is known when it calls. Here it is a second, because the late call
  // comes at 0 ms of the next operation.
  s.group.history().on_called(Rank(2), Seq(5), s.at(0));
  CHECK(history.recent().delay(Seq(5), Rank(2)) == ms(1000));
}

TEST_CASE(
    "a primary that is known to be behind is covered at once, also for the quorum") {
  PolicyOptions options = backed_up();
  options.min_contributors = 3;
  Shards s(options);
  s.warm_up();
  s.begin();  // its data are lost in this operation
  s.arrive(0, 0);
  s.arrive(1, 0);
  s.group.history().on_committed(Seq(s.seq), RankSet(4), RankSet(4), kBackup, 0);
  s.begin();
  s.arrive(0, 0);
  s.offer(3, 2, 1);
  CHECK(s.ask(1) == Ranks{kBackup});
  s.copy(3, 3);
  CHECK_FALSE(s.decide(3).closes());
  s.arrive(1, 4);
  CHECK(s.decide(4).closes());
  CHECK(s.policy->quorum_time() == s.at(3));
}

TEST_CASE("the policy asks for a quorum that only backups can complete") {
  PolicyOptions options = backed_up(2);
  options.min_contributors = 3;
  Shards s(options, 5);  // three primaries, of which two are late
  s.warm_up();
  const double grace = to_ms(s.group.deadline_of(Rank(2), Seq(1000), kBytes));
  s.begin();
  s.offer(3, 1, 0);
  s.offer(4, 2, 0);
  s.arrive(0, 1);
  CHECK(s.look() == 1 + grace);
  CHECK_FALSE(s.decide(grace).closes());
  CHECK(s.ask(1 + grace) == Ranks{Rank(3), Rank(4)});
  s.copy(3, 2 + grace);
  CHECK_FALSE(s.decide(5000).closes());
  CHECK(s.decide(5000).reason == Reason::kNoQuorum);
  s.copy(4, 5000);
  CHECK(s.decide(5000).closes());

  // With one primary, its lateness is measured from the backup that has computed the
  // same data shard.
  Shards two(backed_up(), 2);
  two.warm_up();
  two.begin();
  two.offer(1, 0, 0);
  CHECK(two.look() > 0);
  CHECK(two.ask(two.look()) == Ranks{Rank(1)});
}

TEST_CASE("the contribution of an excluded primary is requested at once") {
  Shards s(backed_up());
  s.begin();
  RankSet left = RankSet::full(4);
  left.erase(Rank(0));
  s.policy->expect(left);
  s.offer(3, 0, 0);
  CHECK(s.ask(0) == Ranks{kBackup});
  s.arrive(1, 1);
  s.arrive(2, 1);
  CHECK_FALSE(s.decide(1).closes());
  s.copy(3, 2);
  CHECK(s.decide(2).closes());
  CHECK(s.policy->stand_ins() == StandIns{{Rank(0), kBackup}});
}

TEST_CASE("an excluded backup is not waited for") {
  Shards s(backed_up());
  s.begin();
  RankSet left(4);
  left.insert(Rank(1));
  left.insert(Rank(2));
  s.policy->expect(left);
  s.arrive(1, 0);
  s.arrive(2, 1);
  const Decision d = s.decide(1);
  CHECK(d.closes());
  CHECK(d.reason == Reason::kComplete);
}

TEST_CASE("a backup that was asked has limited time, and its time is recorded") {
  Shards s(backed_up());
  s.warm_up();
  s.begin();
  s.arrive(0, 0);
  s.arrive(1, 0);
  s.offer(3, 2, 0);
  REQUIRE(s.ask(400) == Ranks{kBackup});
  // Nothing is known yet, so the patience is twice the time that the operation has
  // taken.
  CHECK_FALSE(s.decide(1199).closes());
  CHECK(s.look() == 1200);
  const Decision d = s.decide(1200);
  CHECK(d.closes());
  CHECK(d.reason == Reason::kDeadline);
  CHECK(s.policy->arrived().count() == 2);
  s.policy->on_close({}, kBytes, s.at(1200));
  CHECK(s.group.stand_in_patience(kBytes) == ms(1200));  // 1.5 x 800
}

TEST_CASE("a stand-in that was not needed does not shorten the wait for later ones") {
  Shards s(backed_up());
  s.warm_up();
  for (int i = 0; i < 40; ++i) {
    const bool is_needed = i < 4;
    s.begin();
    s.arrive(0, 0);
    s.arrive(1, 0);
    s.offer(3, 2, 0);
    REQUIRE(s.ask(900) == Ranks{kBackup});
    if (is_needed) {
      s.copy(3, 1000);
    } else {
      s.arrive(2, 901);
    }
    REQUIRE(s.decide(1000).closes());
    s.commit(is_needed ? 1000 : 901);
    s.group.history().on_called(Rank(2), Seq(s.seq), s.at(0));
  }
  CHECK(s.group.stand_in_patience(kBytes) == ms(150));  // 1.5 x 100
}

TEST_CASE("one backup covers one of two late primaries") {
  Shards s(backed_up(2), 6);  // four primaries; one backup has not called
  s.warm_up();
  s.begin();
  s.arrive(0, 0);
  s.arrive(1, 0);
  CHECK_FALSE(s.decide(0).closes());
  s.arrive(2, 0);
  s.offer(4, 3, 0);
  s.offer(5, 3, 0);
  CHECK(s.ask(900) == Ranks{Rank(4)});  // not both backups for the same data shard
  s.copy(4, 901);
  CHECK(s.decide(901).closes());
  CHECK(s.policy->stand_ins() == StandIns{{Rank(3), Rank(4)}});

  Shards one(backed_up());
  one.warm_up();
  PolicyOptions least = backed_up();
  least.min_contributors = 1;
  Shards two(least);
  two.warm_up();
  two.begin();
  two.arrive(0, 0);
  two.offer(3, 2, 0);
  REQUIRE(two.ask(900) == Ranks{kBackup});
  two.copy(3, 910);
  CHECK(two.decide(910).closes());
  CHECK(two.policy->arrived().count() == 2);
  CHECK_FALSE(two.policy->arrived().contains(Rank(1)));
}

TEST_CASE("a backup that has not called has as much time as a member") {
  Shards s(backed_up());
  s.warm_up();
  const double grace = to_ms(s.group.deadline_of(kBackup, Seq(1000), kBytes));
  s.begin();
  s.arrive(0, 0);
  s.arrive(1, 0);
  CHECK_FALSE(s.decide(grace - 1).closes());
  CHECK(s.decide(grace).closes());
  s.commit(grace);
  // The owner has waited for the backup in vain, and the backup has not called since.
  s.begin();
  s.arrive(0, 0);
  s.arrive(1, 0);
  CHECK(s.decide(0).closes());
  CHECK(s.decide(0).reason == Reason::kKnownBehind);
  // The backup calls again, so its contribution is expected.
  s.group.history().on_called(kBackup, Seq(s.seq - 1), s.at(0));
  CHECK_FALSE(s.decide(0).closes());
}

TEST_CASE("a substitute fills the lowest data shard with a primary out of time") {
  PolicyOptions options = backed_up(1, BackupMode::kSubstitute);
  options.min_contributors = 1;
  Shards s(options);
  s.warm_up();
  s.begin();
  s.arrive(0, 0);
  s.offer(3, kAnyDataShard, 0);
  CHECK(s.ask(0).empty());
  CHECK(s.ask(900) == Ranks{kBackup});
  // The contribution of the primary that the backup was asked for arrives. So the
  // backup fills the other hole.
  s.arrive(1, 901);
  s.copy(3, 902);
  CHECK(s.policy->stand_ins() == StandIns{{Rank(2), kBackup}});
  CHECK(s.decide(902).closes());
}

TEST_CASE(
    "a substitute fills another hole when the primary that it stood in for comes") {
  PolicyOptions options = backed_up(1, BackupMode::kSubstitute);
  options.min_contributors = 3;
  Shards s(options);
  s.begin();
  // Rank 2 is excluded. Rank 0 has no time left, because its shard was moved to another
  // owner.
  RankSet late(4), members = RankSet::full(4);
  late.insert(Rank(0));
  members.erase(Rank(2));
  s.policy = s.group.start_with_backups(Seq(s.seq), kBytes, late, 7);
  s.policy->expect(members);
  s.offer(3, kAnyDataShard, 0);
  s.arrive(1, 0);
  CHECK(s.ask(0) == Ranks{kBackup});
  s.copy(3, 0);
  CHECK(s.policy->stand_ins() == StandIns{{Rank(0), kBackup}});
  CHECK_FALSE(s.decide(1).closes());
  s.arrive(0, 2);
  CHECK(s.decide(2).closes());
  CHECK(s.policy->stand_ins() == StandIns{{Rank(2), kBackup}});
}

TEST_CASE("with replicas the first complete copy counts, and no backup is asked") {
  Shards s(backed_up(2, BackupMode::kReplicate));
  s.begin();
  s.offer(2, 0, 0);
  s.copy(2, 1);
  s.arrive(1, 1);
  CHECK(s.ask(1).empty());
  CHECK(s.decide(1).closes());
  CHECK(s.policy->stand_ins() == StandIns{{Rank(0), Rank(2)}});
  s.arrive(0, 2);
  s.offer(3, 1, 2);
  s.copy(3, 2);
  CHECK(s.policy->stand_ins().size() == 1);
}

TEST_CASE("verification waits for the second copy as long as for a stand-in") {
  PolicyOptions options = backed_up();
  options.verify_shadows = true;
  Shards s(options);
  s.begin();
  for (int32_t r = 0; r < 3; ++r) s.arrive(r, 0);
  CHECK_FALSE(s.decide(0).closes());  // the backup may still call
  s.offer(3, 1, 10);
  CHECK_FALSE(s.decide(29).closes());
  CHECK(s.decide(30).closes());  // twice the time until the backup began
  s.copy(3, 12);
  CHECK(s.decide(12).closes());
  CHECK(s.policy->stand_ins().empty());

  Shards late(options);
  late.warm_up();
  late.begin();
  late.arrive(0, 0);
  late.arrive(2, 0);
  late.offer(3, 1, 0);
  late.copy(3, 100);
  CHECK_FALSE(
      late.decide(119).closes());  // the primary's contribution must be compared
  CHECK(late.look() == 120);
  CHECK(late.policy->stand_ins() == StandIns{{Rank(1), Rank(3)}});
  late.arrive(1, 119);
  CHECK(late.decide(119).closes());
}

TEST_CASE("verification makes no primary late because its shadow was faster") {
  PolicyOptions options = backed_up();
  options.verify_shadows = true;
  Shards s(options);
  s.begin();
  s.arrive(0, 0);
  s.arrive(2, 0);
  s.offer(3, 1, 1);
  s.copy(3, 1);
  REQUIRE(s.policy->stand_ins().size() == 1);
  s.arrive(1, 2);
  CHECK(s.policy->stand_ins().empty());
  CHECK(s.decide(2).closes());
  CHECK(s.decide(2).num_arrived == 3);
}

TEST_CASE("no more backups stand in than a result header can name") {
  PolicyOptions options = backed_up(2);
  options.min_contributors = 1;
  Shards s(options, 5);
  s.warm_up();
  s.begin(1);
  s.arrive(0, 0);
  s.offer(3, 1, 0);
  s.offer(4, 2, 0);
  CHECK(s.ask(900) == Ranks{Rank(3)});
  s.copy(3, 901);
  CHECK(s.ask(901).empty());
  CHECK(s.decide(901).closes());
  CHECK(s.policy->stand_ins().size() == 1);
}

TEST_CASE("a member that loses its time in another operation has none in this one") {
  Shards s(backed_up());
  s.warm_up();
  s.begin();
  const uint64_t before = s.seq;
  s.begin();
  s.arrive(0, 15);
  s.arrive(1, 15);
  s.offer(3, 2, 15);
  CHECK(s.ask(15).empty());
  const double due = s.look();
  CHECK(due > 16);
  // The previous operation ends without its primary, which is behind from then on.
  RankSet in_time(4), covered(4);
  for (const int32_t r : {0, 1}) in_time.insert(Rank(r));
  covered.insert(Rank(2));
  s.group.history().on_committed(Seq(before), in_time, covered, kBackup, kBytes);
  CHECK((s.look() != -1 && s.look() < 16));
  CHECK(s.ask(16) == Ranks{kBackup});
  // The backup is asked once. Then the policy waits for the copy.
  CHECK(s.look() > 16);
}

TEST_CASE("a full log holds the shard open for members that have not called") {
  Shards s(backed_up(), 4, kBytes);
  s.warm_up();
  s.begin();  // its result is kept for rank 2 and the backup
  s.arrive(0, 0);
  s.arrive(1, 0);
  s.commit(0);
  s.begin();
  s.arrive(0, 0);
  s.arrive(1, 0);
  s.offer(3, 2, 0);
  CHECK(s.ask(0) == Ranks{kBackup});
  s.copy(3, 1);
  const Decision d = s.decide(5000);
  CHECK_FALSE(d.closes());
  CHECK(d.reason == Reason::kLogFull);
  CHECK(d.rank == Rank(2));
  s.arrive(2, 5000);
  CHECK(s.decide(5000).closes());

  // The same holds for a backup, although no data shard is missing.
  Shards late(backed_up(), 4, kBytes);
  for (int i = 0; i < 2; ++i) {
    late.begin();
    for (int32_t r = 0; r < 3; ++r) late.arrive(r, 0);
    CHECK(late.decide(5000).closes() == (i == 0));
    late.commit(0);
  }
  CHECK(late.decide(5000).rank == kBackup);
  late.offer(3, 0, 5000);
  CHECK(late.decide(5000).closes());
}

TEST_CASE("a backup that offers again has not received the question") {
  Shards s(backed_up());
  s.begin();
  RankSet left = RankSet::full(4);
  left.erase(Rank(0));
  s.policy->expect(left);
  s.offer(3, 0, 0);
  CHECK(s.ask(0) == Ranks{kBackup});
  CHECK(s.ask(1).empty());
  s.offer(3, 0, 1);
  CHECK(s.ask(1) == Ranks{kBackup});
  s.copy(3, 2);
  s.offer(3, 0, 3);
  CHECK(s.ask(3).empty());
}

}  // namespace
}  // namespace aikido::straggler

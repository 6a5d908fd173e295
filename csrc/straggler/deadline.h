// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Deadlines: how long an owner waits for a missing member after the quorum (our
// design). One object per group, for the progress thread; no clock.
//
// Note [price of a loss]
// Losing one contribution of n members costs `worth` / n of a period, and at least
// `floor`. A longer wait for one contribution alone never pays. This price is the
// grace: the deadline as long as all members arrive within it.
//
// Note [choice of the rule]
// As soon as a member is later than the grace, the rule is chosen that would have made
// most progress over the recent operations (wait_model.h). A rule has one deadline for
// all members, and a set of members that get no time until their last few lags are
// within the grace. The choice is repeated every kEvery operations. With backups a skip
// loses no data. Then each member gets the grace, and no time while each of its last
// few lags exceeds the grace.
//
// Note [re-entry]
// A member that was skipped and calls that operation after its close begins the next
// operation late, although it computes as fast as the others. Without a longer wait it
// stays late in each following operation. So the owners grant it one wait of its late
// start, after which it is in step. If it misses the operation all the same, the next
// grant comes after kGrantAfter operations, and after twice as many each further time.
//
// Note [probe]
// A member that gets no time starts each operation late, and computes only some
// operations. So its observed lags say little about its lag if it were in step. The
// owners wait for it once after kProbeAfter operations, the first time after at most
// kMostToFirstProbe. This number grows with the length of the wait, so that progress
// falls by about 3 % at most. In the next few operations the member has the grace. A
// probe is in vain if the member misses one of them, and doubles the time between later
// probes. WaitAll also waits in all of these operations, so a probe adds nothing to the
// regret.
//
// Note [slow link]
// A contribution that was cut off shows the rate of its link (skip.h), if some bytes of
// it have arrived, or if nothing has arrived for longer before this operation than in
// it. If it would have come later than half of a period, a wait in the next operations
// would be in vain too: the member gets little time (at least the floor; wait_model.h,
// kLeastPart) for kSlowFor operations of that size or larger, and for twice as many
// each further time. A contribution that would have come within the grace, or is in a
// result of a later operation, ends this at once. A member that computes for long shows
// nothing of its link until it has called, so this does not concern it.
//
// Note [bound of the regret]
// No prediction is certain. Therefore an account records the progress that skipping has
// lost against WaitAll (progress_account.h). If the account exceeds kMostLost
// operations, the owner waits for everybody, as long as the longest lag of the window.
// This ends when the account is half of kMostLost, or with a trial of the rule: the
// rule would lately have made kWorthATrial times the progress of WaitAll. A trial comes
// after kTrialAfter operations of waiting. After each failed trial since the account
// was zero this number doubles. A trial may lose kOfATrial operations beyond kMostLost,
// and begins only if it would not lose all of them. The loss of a failed trial stays in
// the account, and only the allowed part of the progress of WaitAll pays for it. So for
// all delays the account stays below the sum of kMostLost, kOfATrial and the largest
// loss of one operation.

#include <cstdint>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "straggler/history.h"
#include "straggler/policy.h"
#include "straggler/progress_account.h"
#include "straggler/wait_model.h"

namespace aikido::straggler {

// Note [price of a loss]. Requires: world_size >= 1.
Duration price_of_loss(Duration period, int32_t world_size, Duration floor,
                       double worth);

// Deadlines of all members, made from a history and cached until the history changes.
class Deadlines {
 public:
  static constexpr size_t kEvery = 8;         // operations
  static constexpr uint64_t kGrantAfter = 8;  // operations
  static constexpr uint32_t kMostDoublings = 6;
  static constexpr uint64_t kSlowFor = 8;            // operations
  static constexpr double kMostLost = 2;             // full operations
  static constexpr double kOfATrial = 1;             // full operations
  static constexpr uint64_t kProbeAfter = 16;        // operations, for a short wait
  static constexpr uint64_t kMostToFirstProbe = 64;  // operations
  static constexpr uint32_t kMostProbeDoublings = 2;
  static constexpr size_t kTrialAfter = 8;  // operations
  static constexpr double kWorthATrial = 1.1;

  // `history` must outlive it. Requires: validated options.
  Deadlines(const PolicyOptions& options, const History& history);

  enum class Why : uint8_t {
    kGrace,       // nobody has been later than the grace
    kRule,        // chosen by the wait model
    kDropped,     // the member gets no time
    kReEntry,     // the member is granted one longer wait
    kWarmingUp,   // too few operations are known: the ceiling
    kWaitingPays  // skipping has lost too much progress
  };
  struct Answer {
    Duration deadline{0};
    Why why = Why::kGrace;
  };

  // --- Events, at each close of a shard that is owned here.

  // The answer for `rank` in operation `seq` of `bytes` bytes was kReEntry; `is_in`:
  // its contribution arrived in time. Call it before the history knows of the close.
  void on_re_entry(Rank rank, Seq seq, uint64_t bytes, bool is_in);
  // The contribution of `rank`, which had called, was cut off: it would have come `lag`
  // after the quorum.
  void on_cut_off(Rank rank, Seq seq, uint64_t bytes, Duration lag);
  // Call it when the history knows the operation; chooses the rule anew if it is time.
  // O(n), or O(window) every kEvery operations.
  void choose(uint64_t bytes, TimePoint now);

  // --- Answers.

  // Deadline of `rank` in operation `seq` of `bytes` bytes. O(1).
  Answer of(Rank rank, Seq seq, uint64_t bytes) const;
  // Time that each member gets unless it is dropped.
  Duration grace(uint64_t bytes) const;
  // Time that half of the members wait for one of `num_missing` members (skip.h): the
  // loss without all of them, and at least slack times the usual time to a quorum.
  Duration for_quorum(int32_t num_missing, uint64_t bytes) const;
  // Limits all deadlines, independent of the options.
  void limit(Duration longest) { longest_ = longest; }
  // Progress that skipping has lost against WaitAll beyond the allowed part, in full
  // operations.
  double lost() const { return account_.lost(); }
  const ReplayedOperations& replayed() const { return account_.replayed(); }

 private:
  struct Grant {
    Seq not_before;  // first operation of the next grant
    uint32_t num_failures = 0;
  };
  struct Probe {
    Seq last, not_before;  // 0: none
    uint32_t num_failures = 0;
    bool is_open = false;  // its result is not known yet
  };
  // Note [slow link]
  struct Slow {
    Seq since, until;
    uint64_t bytes = 0;
    uint32_t num_times = 0;
  };
  bool is_slow(Rank rank, Seq seq, uint64_t bytes) const;
  bool is_dropped(Rank rank, uint64_t bytes) const;
  std::optional<Duration> probe(Rank rank, Seq seq, uint64_t bytes) const;
  bool is_in_step(Rank rank, Seq seq) const;
  Answer of_dropped(Rank rank, Seq seq, uint64_t bytes) const;
  std::optional<Duration> re_entry(Rank rank, Seq seq, uint64_t bytes) const;
  void note_probe(Rank rank, Seq seq, uint64_t bytes);
  uint64_t to_next_probe(Duration wait, uint64_t bytes) const;
  void judge_probes();
  void note_grant(Rank rank, Seq seq, bool is_in);
  void watch_account();
  void choose_rule(uint64_t bytes);
  bool may_try(const WaitModel& model) const;

  PolicyOptions options_;
  const History& history_;
  Duration longest_ = Duration::max();
  size_t looked_at_ = 0;  // closed operations at the last choice
  bool is_well_ = true;   // nobody is later than the grace
  WaitRule rule_;
  std::vector<Duration> typical_;  // delays, by rank
  std::vector<Grant> grants_;      // by rank
  std::vector<Probe> probes_;      // by rank
  std::vector<Slow> slow_;         // by rank
  ProgressAccount account_;
  bool waits_ = false;       // for everybody
  bool is_trial_ = false;    // of the rule, while the account is high
  size_t num_waited_ = 0;    // operations since it began to wait for everybody
  uint32_t num_trials_ = 0;  // trials that have failed, or may still fail
};

}  // namespace aikido::straggler

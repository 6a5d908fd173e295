// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// How long an owner waits for a missing member after the quorum (our design). One
// object per group, for the progress thread; no clock.
//
// Note [price of a loss]
// A lost contribution of one of n members is worth `worth` n-th parts of a period, at
// least `floor`. To wait longer than that for one contribution alone is never worth it.
// This price is the grace: the deadline while all members come within it.
//
// Note [which rule]
// As soon as a member is later than the grace, the rule is chosen that would have made
// most progress over the recent operations (wait_model.h): one deadline for all, and
// members that get no time until their last few lags are within the grace. The choice
// is made anew every kEvery operations. With backups a skip loses no data, so members
// have the grace, and no time while each of their last few lags is beyond it.
//
// Note [re-entry]
// A member that was skipped and calls that operation after its close begins the next
// operation late, although it computes as fast as the others. Without a longer wait it
// stays late in each following operation. So the owners grant it one wait of its late
// start, after which it is in step. If it misses the operation all the same, the next
// grant comes after kGrantAfter operations, and after twice as many each further time.
//
// Note [probe]
// A member that gets no time starts each operation late, and computes only some of
// them: what is seen of it says little about how late it would be in step. So the
// owners wait for it once after kProbeAfter operations, and after more of them the
// longer this wait is, so that progress falls by about 3 % at most. In the next few
// operations it has the grace. A probe is in vain if the member misses one of them, and
// doubles the time between later probes. WaitAll waits in all of these operations, so
// a probe adds nothing to the regret.
//
// Note [bound of the regret]
// No prediction is sure. So an account is kept of what skipping has lost against
// WaitAll (progress_account.h). When it exceeds kMostLost operations, the owner waits
// for everybody, as long as for the longest lag of the window, until the account is
// half of that, or until the rule would have made kWorthATrial times the progress of
// WaitAll lately. Such a trial comes after kTrialAfter operations of waiting, and after
// twice as many for each trial that has failed since the account was zero. A trial may
// lose kOfATrial operations more than kMostLost and begins only if it would not lose
// all of them: what a failed trial has lost stays in the account, and only the allowed
// part of the progress of WaitAll pays for it. So whatever the delays are, the account
// stays below the sum of kMostLost, kOfATrial and what one operation can lose.

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

// The deadlines of all members, made from a history and kept until it changes.
class Deadlines {
 public:
  static constexpr size_t kEvery = 8;         // operations
  static constexpr uint64_t kGrantAfter = 8;  // operations
  static constexpr uint32_t kMostDoublings = 6;
  static constexpr double kMostLost = 2;       // full operations
  static constexpr double kOfATrial = 1;       // full operations
  static constexpr uint64_t kProbeAfter = 16;  // operations, for a short wait
  static constexpr uint32_t kMostProbeDoublings = 2;
  static constexpr size_t kTrialAfter = 8;  // operations
  static constexpr double kWorthATrial = 1.1;

  // `history` must outlive it. Requires: validated options.
  Deadlines(const PolicyOptions& options, const History& history);

  enum class Why : uint8_t {
    kGrace,       // nobody has been later than that
    kRule,        // chosen by the wait model
    kDropped,     // it gets no time
    kReEntry,     // it is granted one wait
    kWarmingUp,   // too few operations are known: the ceiling
    kWaitingPays  // skipping has lost too much progress
  };
  struct Answer {
    Duration deadline{0};
    Why why = Why::kGrace;
  };

  // --- Events, at each close of a shard that is owned here.

  // Operation `seq` of `bytes` had kReEntry for `rank`, whose contribution is in or
  // not. Told before the history knows of the close.
  void on_re_entry(Rank rank, Seq seq, uint64_t bytes, bool is_in);
  // The history knows the operation: chooses anew where it is time. O(n), or O(window)
  // every kEvery operations.
  void choose(uint64_t bytes, TimePoint now);

  // --- Answers.

  // For operation `seq` of `bytes`. O(1).
  Answer of(Rank rank, Seq seq, uint64_t bytes) const;
  // What a member always gets that is not dropped.
  Duration grace(uint64_t bytes) const;
  // For how long half of the members wait for one of `num_missing` (skip.h): what is
  // lost without all of them, and at least slack times what a quorum takes as a rule.
  Duration for_quorum(int32_t num_missing, uint64_t bytes) const;
  // No deadline is longer than this, whatever the options say.
  void limit(Duration longest) { longest_ = longest; }
  // Full operations that skipping has lost against WaitAll, beyond what is allowed.
  double lost() const { return account_.lost(); }
  const ReplayedOperations& replayed() const { return account_.replayed(); }

 private:
  struct Grant {
    Seq not_before;  // the next one
    uint32_t num_failures = 0;
  };
  struct Probe {
    Seq last, not_before;  // 0: none
    uint32_t num_failures = 0;
    bool is_open = false;  // whether it has paid is not known yet
  };
  bool is_dropped(Rank rank, uint64_t bytes) const;
  std::optional<Duration> probe(Rank rank, Seq seq, uint64_t bytes) const;
  bool is_in_step(Rank rank, Seq seq) const;
  Answer of_dropped(Rank rank, Seq seq, uint64_t bytes) const;
  std::optional<Duration> re_entry(Rank rank, Seq seq, uint64_t bytes) const;
  void note_probe(Rank rank, Seq seq, uint64_t bytes);
  void judge_probes();
  void note_grant(Rank rank, Seq seq, bool is_in);
  void watch_account();
  void choose_rule(uint64_t bytes);
  bool may_try(const WaitModel& model) const;

  PolicyOptions options_;
  const History& history_;
  Duration longest_ = Duration::max();
  size_t looked_at_ = 0;  // closed operations then
  bool is_well_ = true;   // nobody is later than the grace
  WaitRule rule_;
  std::vector<Duration> typical_;  // delays, by rank
  std::vector<Grant> grants_;      // by rank
  std::vector<Probe> probes_;      // by rank
  ProgressAccount account_;
  bool waits_ = false;       // for everybody
  bool is_trial_ = false;    // of the rule, while the account is high
  size_t num_waited_ = 0;    // operations, since it waits for everybody
  uint32_t num_trials_ = 0;  // that have failed, or may still fail
};

}  // namespace aikido::straggler

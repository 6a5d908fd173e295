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
// operations it has the grace, until it is late again; then the next probe comes after
// twice as many. WaitAll waits in all of these operations, so a probe adds nothing to
// the regret.
//
// Note [bound of the regret]
// No prediction is sure. So the contributions that WaitAll would have made in the same
// time, less kAllowed of them, are compared with those that are in the sums. When the
// difference exceeds kMostRegret full operations, the owner waits for everybody, as
// long as for the longest lag of the window, until the difference is half of that, or
// until the rule would have made kWorthATrial times the progress of WaitAll lately.
// Such a trial comes after kTrialAfter operations of waiting, and after twice as many
// for each trial that has failed since the difference was zero. Whatever the delays
// are, the loss against WaitAll is therefore bounded by kAllowed of the progress, a
// constant, and half of kMostRegret for each trial, whose number is logarithmic in that
// of the operations. What was gained counts for at most kMostCredit operations.

#include <cstdint>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "straggler/history.h"
#include "straggler/policy.h"
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
  static constexpr double kAllowed = 0.02;
  static constexpr double kMostRegret = 2;  // full operations
  static constexpr double kMostCredit = 4;
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
  // For operation `seq` of `bytes`. O(1), or O(window) every kEvery operations.
  Answer of(Rank rank, Seq seq, uint64_t bytes);
  // What a member always gets that is not dropped.
  Duration grace(uint64_t bytes) const;
  // For how long half of the members wait for one of `num_missing` (skip.h): what is
  // lost without all of them, and at least slack times what a quorum takes as a rule.
  Duration for_quorum(int32_t num_missing, uint64_t bytes);
  // No deadline is longer than this, whatever the options say.
  void limit(Duration longest) { longest_ = longest; }
  // Contributions that WaitAll would have made and that are not in the sums, beyond
  // what is allowed, in full operations.
  double regret() const { return regret_; }

 private:
  struct Grant {
    Seq last;        // operation it was granted for; 0: none, or it has come
    Seq not_before;  // the next one
    uint32_t num_failures = 0;
  };
  struct Probe {
    Seq last, not_before;
    uint32_t num_failures = 0;
  };
  void look(uint64_t bytes);
  void end_wait(const WaitModel& model, size_t num_new);
  void add_regret(const WaitModel& model, size_t num_new);
  std::optional<Duration> re_entry(Rank rank, Seq seq, uint64_t bytes);
  Answer of_dropped(Rank rank, Seq seq, uint64_t bytes);

  PolicyOptions options_;
  const History& history_;
  Duration longest_ = Duration::max();
  size_t looked_at_ = 0;  // closed operations then
  bool is_well_ = true;   // nobody is later than the grace
  WaitRule rule_;
  std::vector<Duration> typical_;  // delays, by rank
  std::vector<Grant> grants_;      // by rank
  std::vector<Probe> probes_;      // by rank
  double regret_ = 0;
  bool waits_ = false;
  size_t num_waited_ = 0;    // operations, since it waits for everybody
  uint32_t num_trials_ = 0;  // that have failed, or may still fail
};

}  // namespace aikido::straggler

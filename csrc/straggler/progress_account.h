// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Account of the progress that skipping has cost against WaitAll, in full operations
// (our design). PURE; the progress thread is the only caller.
//
// Note [charged before it is known]
// An operation without some members loses their contributions, and saves the time that
// WaitAll would have waited for them. The loss is known at the close. The saving is
// known once the missing members have called. Until then a member counts as late by the
// time that has passed, and as not late in an operation that it cannot have begun. So
// missing information never makes the account too low, and an operation can enter it at
// its close. An operation is final when all members have called it, at the latest when
// it leaves the window. One estimate remains: the time that a member would have needed
// for an operation that it did not compute is never seen. Its fair delays replace it.
//
// Note [price of time]
// Time is changed into operations at the time that WaitAll takes for one: the longer of
// two means, over the last operations and over many. A saving in a cheap phase is worth
// less in the expensive phase that follows. So the mean of a few operations alone would
// count gains that do not exist over the whole run.

#include "base/clock.h"
#include "base/types.h"
#include "straggler/recent_operations.h"

namespace aikido::straggler {

// Sums over operations, as they were and under WaitAll, which skips nobody.
struct ReplayedOperations {
  uint64_t operations = 0;
  double bytes = 0;
  double bytes_in = 0;  // the contributed part of `bytes`; under WaitAll all of them
  Duration time{0}, time_of_wait_all{0};

  void add(const ReplayedOperations& other);
};

class ProgressAccount {
 public:
  // Part of the progress of WaitAll that may be lost. The bound is 2 %: the rest is
  // room for the estimates of the account.
  static constexpr double kAllowed = 0.015;
  // Gains count for so many operations at most.
  static constexpr double kMostCredit = 4;
  static constexpr double kFew = 16, kMany = 1024;  // operations, of the two means

  // `worth`: of a missing contribution, 0 to 1.
  explicit ProgressAccount(double worth) : worth_(worth) {}

  // An operation of `recent` was closed at `now`. O(n) for each operation that is not
  // final.
  void update(const RecentOperations& recent, TimePoint now);

  // Full operations that WaitAll would have made in the same time, minus kAllowed, and
  // that are not in the sums. Negative: skipping has gained.
  double lost() const { return final_ + open_; }
  // The final operations, as they were and as WaitAll would have made them.
  const ReplayedOperations& replayed() const { return replayed_; }

 private:
  // Mean with falling weights of old values. 0 without values.
  struct Mean {
    double memory;
    double num = 0, sum = 0;
    void add(double value) {
      num = num * (1 - 1 / memory) + 1;
      sum = sum * (1 - 1 / memory) + value;
    }
    double value() const { return num > 0 ? sum / num : 0; }
  };
  struct Entry {
    double bytes = 0, share_missing = 0;
    Duration ours{0}, waiting{0};
    bool is_final = true;
  };
  Entry entry(const RecentOperations& recent, const PastOperation& op,
              TimePoint now) const;
  double change(const Entry& entry) const;

  double worth_;
  Seq next_{1};  // first operation that is not final
  double final_ = 0, open_ = 0;
  ReplayedOperations replayed_;
  // Means over final operations: bytes, and nanoseconds of WaitAll.
  Mean bytes_{kMany}, waiting_{kMany}, waiting_lately_{kFew};
};

}  // namespace aikido::straggler

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Record of one member's lateness over the operations of a group: its skips in a row,
// its calls, and the news that change them later. A part of History, which checks ranks
// and passes on what is known of the lags. Pure; one thread.

#include <cstdint>

#include "base/types.h"

namespace aikido::straggler {

class SkipRecord {
 public:
  // --- Events. Operations come in the order of their commits, or later.

  // The member has called `seq`. Returns false if that was known.
  bool note_called(Seq seq) {
    if (seq <= called_) return false;
    called_ = seq;
    return true;
  }
  // The member is back and has its missed results, up to `seq`.
  void note_caught_up(Seq seq) {
    if (seq > called_) called_ = seq;
  }
  // The result of `seq` has its contribution.
  void note_included(Seq seq);
  // The member was late in `seq`, although its data may be in the result.
  void note_late(Seq seq);
  // The member was skipped in `seq`. `is_lost`: its data is not in the result.
  // `is_little`: its lag was small. `is_rest`: its lag was the rest of an earlier
  // lateness.
  void note_skipped(Seq seq, bool is_lost, bool is_little, bool is_rest);
  // The member could not contribute to `seq`. That says nothing about its lateness when
  // it can.
  void note_absent(Seq seq);
  // The lag in `seq` was small after all: a run of late operations begins after it.
  void note_little(Seq seq);
  // True if `seq` is the last operation that counts as late.
  bool is_last_late(Seq seq) const { return news_ == seq; }
  // The lag in that operation was the rest of an earlier lateness after all.
  void take_back_last_late();
  // Lateness in operations up to `seq` counts no more.
  void forgive(Seq seq);
  // The count for the limit on consecutive skips begins anew.
  void forget_skips() { consecutive_ = consecutive_before_ = 0; }

  // --- Answers, as in History.

  bool is_behind(Seq seq) const;
  Seq called() const { return called_; }
  Seq last_skipped() const { return last_skipped_; }
  Seq forgiven() const { return forgiven_; }
  uint32_t consecutive() const { return consecutive_; }
  uint32_t late() const { return late_; }
  uint32_t healthy() const { return healthy_; }

  // Recent operations that were committed without its lag. Counted by the History.
  uint32_t num_owed = 0;

 private:
  Seq called_, last_skipped_, skipped_before_, counted_, forgiven_;
  Seq called_when_skipped_;
  Seq news_;                             // the last operation that counts as late
  uint32_t consecutive_ = 0;             // with the operation `counted_`
  uint32_t consecutive_before_ = 0;      // without it
  uint32_t late_ = 0, late_before_ = 0;  // the same, since it was forgiven
  uint32_t healthy_ = 0;                 // in a row
};

}  // namespace aikido::straggler

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Search for a limit of bytes in flight that does not cost rate (our design). It is fed
// with the rates of samples, and answers by which factor the limit should exceed its
// normal value. Pure; one thread.
//
// A limit would starve the link in three cases: the path is longer than the residence,
// other senders fill the queues, or this process looks too late. So the rate is first
// learnt with all of InflightLimit::kMost, which common queues can hold. If the
// rate is far lower over kLowSamples, kStep times the limit is tried. This is repeated
// as long as the rate grows, in the end without any limit. The larger limit then stays
// for kOpenFirst, and twice as long each further time, up to kOpen, until the normal
// limit has sufficed for as long. Times in which more bytes than the limit were in
// flight, from before, do not count, because then the limit was not the cause.
//   To drop the limit at once would be simpler. But members that share a downlink
// starve each other if only some have a limit, and a queue overflow costs more than it
// gains. For the same reason a rate must be low for longer than a member first goes
// without a limit. Otherwise the starved members would drop their limits too, and so on
// in turns.
//   If a larger limit does not help, the link may be slow at the moment. Then the
// learnt rate falls to no less than kLow times its old value. Otherwise a rate that the
// limit keeps low would be taken for the rate of the link. In a collective, rates are
// often low for tens of milliseconds, while two members send to a third. On a busy
// processor they are low on average. A limit under which several samples in a row were
// high is not the cause of low samples. A member that had to drop the limit twice in a
// row drops it sooner.
//
//   kLearn --the rate grows no more--> kBound --low for long--> kLearn, larger limits
//   kLearn --a larger limit has helped--> kOpen --its time is over--> kBound
//   kLearn --it has not helped--> kBound

#include <chrono>

#include "base/clock.h"

namespace aikido::transport {

class LimitSearch {
 public:
  // kSamples samples give a rate. It is learnt once it grows by less than kGrown with a
  // larger limit. A sample is low below kLow times the learnt rate. A larger limit is
  // worth it if the rate is kHigh times as high. kLowSamples samples show if the rate
  // is low for long; they take longer than kOpenFirst.
  static constexpr int kSamples = 4;
  static constexpr int kLowSamples = 100;
  static constexpr double kGrown = 1.2;
  static constexpr double kStep = 4;
  static constexpr double kMostSteps = 64;  // above: no limit
  static constexpr double kLow = 0.7;
  static constexpr double kHigh = 1.3;
  static constexpr Duration kOpenFirst = std::chrono::milliseconds(250);
  static constexpr Duration kOpen = std::chrono::seconds(10);
  static constexpr Duration kNotAgainFor = std::chrono::seconds(5);

  // A sample has ended. Data waited all the time, and left with that rate.
  // `is_excused`: bytes from before the present limit were in flight.
  void on_sample(double bytes_per_s, bool is_excused, TimePoint now);
  // Ends the time of a larger limit if it is over.
  void on_time(TimePoint now) {
    if (mode_ == Mode::kOpen && now >= not_before_) begin(Mode::kBound);
  }

  // The rate of the link is known.
  bool has_learnt() const { return has_learnt_; }
  double learnt_bytes_per_s() const { return learnt_; }  // 0: unknown
  // Factor of the limit: 1 if the normal limit suffices.
  double steps() const { return steps_; }
  // There should be no limit at all.
  bool is_unlimited() const { return steps_ > kMostSteps; }

 private:
  // kLearn: larger limits until the rate stops growing. kBound: normal limit. kOpen:
  // larger limit for a time.
  enum class Mode { kLearn, kBound, kOpen };
  void end_learning(TimePoint now);
  void begin(Mode mode);

  Mode mode_ = Mode::kLearn;
  int num_samples_ = 0;       // in this mode; at most kLowSamples in kBound
  double sum_ = 0;            // of the samples in this mode
  double last_few_ = 0;       // of the last kSamples being counted
  double learnt_ = 0;         // bytes per second; 0: unknown
  double learnt_before_ = 0;  // learnt_ before a larger limit was tried
  double steps_ = 1;          // factor of the limit; 1 in kBound
  double worth_it_ = 1;       // largest factor that increased the rate
  double open_steps_ = 1;     // factor of the last kOpen
  bool has_learnt_ = false;
  TimePoint not_before_{};          // next learning, or end of kOpen
  Duration open_for_ = kOpenFirst;  // length of the next kOpen
  bool is_suspected_ = false;       // the limit may keep the rate low
};

}  // namespace aikido::transport

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "transport/schedule/limit_search.h"

#include <algorithm>
#include <utility>

namespace aikido::transport {

void LimitSearch::begin(Mode mode) {
  mode_ = mode;
  num_samples_ = 0;
  sum_ = last_few_ = 0;
  if (mode == Mode::kBound) steps_ = 1;
}

void LimitSearch::on_sample(double bytes_per_s, bool is_excused, TimePoint now) {
  if (mode_ == Mode::kOpen) return;
  if (mode_ == Mode::kBound && is_excused) return;
  ++num_samples_;
  // The first samples still contain bytes that left under the earlier limit.
  if (mode_ == Mode::kLearn && num_samples_ <= kSamples) return;
  sum_ += bytes_per_s;
  if (mode_ == Mode::kLearn) {
    if (num_samples_ == 2 * kSamples) end_learning(now);
    return;
  }
  // For kNotAgainFor after an attempt that did not help, samples do not count.
  if (now < not_before_) return begin(Mode::kBound);
  last_few_ += bytes_per_s;
  if (num_samples_ % kSamples != 0) return;
  if (std::exchange(last_few_, 0) >= kSamples * kLow * learnt_) {
    if (now >= not_before_ + open_for_) {
      open_for_ = kOpenFirst;
      open_steps_ = 1;
    }
    is_suspected_ = false;
    return begin(Mode::kBound);
  }
  const bool is_known = is_suspected_ || open_for_ > 2 * kOpenFirst;
  if (num_samples_ < (is_known ? 2 * kSamples : kLowSamples)) return;
  // The first low result only makes the limit suspected, and the count begins again.
  // The second makes the present rate the reference for larger limits.
  is_suspected_ = !is_suspected_;
  if (is_suspected_) return begin(Mode::kBound);
  learnt_before_ = std::exchange(learnt_, sum_ / num_samples_);
  worth_it_ = 1;
  steps_ = std::max(kStep, open_steps_);
  begin(Mode::kLearn);
}

void LimitSearch::end_learning(TimePoint now) {
  if (sum_ == 0) return begin(Mode::kLearn);
  // First phase: the rate is learnt with kMost until it no longer grows.
  const double before = std::exchange(learnt_, sum_ / kSamples);
  if (!has_learnt_) {
    has_learnt_ = before > 0 && learnt_ <= kGrown * before;
    return begin(has_learnt_ ? Mode::kBound : Mode::kLearn);
  }
  const bool is_worth_it = learnt_ > kHigh * before;
  if (is_worth_it) {
    worth_it_ = steps_;
    if (steps_ <= kMostSteps) {
      steps_ *= kStep;
      return begin(Mode::kLearn);
    }
  }
  // A rate that the limit itself kept low must not replace the rate of the link.
  learnt_ = std::max({learnt_, before, kLow * learnt_before_});
  steps_ = open_steps_ = worth_it_;
  const bool is_starved = steps_ > 1;
  not_before_ = now + (is_starved ? open_for_ : kNotAgainFor);
  if (is_starved) open_for_ = std::min(kOpen, 2 * open_for_);
  begin(is_starved ? Mode::kOpen : Mode::kBound);
}

}  // namespace aikido::transport

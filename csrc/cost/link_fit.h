// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Estimate of alpha and beta of a link from measured transfers. Single slow transfers
// do not change it; a change of the link's rate does, soon. Deterministic; one thread
// at a time.
//
// Note [the fit]
// The last `window` samples count. Candidates are all lines through two samples, and
// through one sample with alpha or beta 0, if neither is negative. The fit is the
// candidate with the least sum of |predicted - measured| / max(predicted, measured).
// This error is relative, so small transfers determine alpha. It is at most 1 for each
// sample, so a minority of outliers has little effect (lines through as few samples as
// necessary, as in Rousseeuw and Leroy, "Robust Regression and Outlier Detection",
// 1987). With a single size, alpha and beta cannot be separated. Then alpha keeps its
// value, or becomes the time of such a transfer if that is less, and beta gets the
// rest.
//
// The rate has changed if the last `change` samples are all slower, or all faster, than
// the fit of the samples before, by more than `tolerance`. Then the earlier samples are
// forgotten. A single outlier, or `change` - 1 in a row, is no change.

#include <cstddef>
#include <deque>
#include <optional>

#include "base/status.h"
#include "cost/link_cost.h"

namespace aikido::cost {

struct LinkFitOptions {
  size_t window = 32;
  size_t change = 4;
  double tolerance = 0.25;  // fraction of the predicted time
};

class LinkFit {
 public:
  // kInvalidArgument: a window below 2, a change below 2 or above half of the window,
  // or a tolerance that is not positive.
  static Result<LinkFit> make(const LinkFitOptions& options);

  // Adds a transfer of so many bytes and seconds. kInvalidArgument, without any effect,
  // if a number is negative or not finite.
  Status add(double bytes, double seconds);

  // Empty before the first sample.
  const std::optional<LinkCost>& link() const { return link_; }
  size_t size() const { return samples_.size(); }  // samples that count
  size_t changes() const { return changes_; }      // changes of the rate so far

 private:
  struct Sample {
    double bytes = 0, seconds = 0;
  };
  explicit LinkFit(const LinkFitOptions& options) : options_(options) {}
  bool has_changed() const;
  LinkCost fit_of(const std::deque<Sample>& samples, double alpha_before_s) const;

  LinkFitOptions options_;
  std::deque<Sample> samples_;  // oldest first
  std::optional<LinkCost> link_;
  size_t changes_ = 0;
};

}  // namespace aikido::cost

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Alpha and beta of a link from transfers that were seen, one after another. Transfers
// that took long for a reason of their own do not move it, and a link that has become
// faster or slower does soon. Deterministic; one thread at a time.
//
// Note [the fit]
// The last `window` samples count. Of all lines through two of them, and through one
// with alpha or beta 0, none with either below 0, the fit is that with the least sum of
// |said - seen| / max(said, seen). This is relative, so that small transfers say what
// alpha is, and at most 1 for each, so that a minority of outliers moves it little
// (lines through as many samples as it takes, as in Rousseeuw and Leroy, "Robust
// Regression and Outlier Detection", 1987). With one size alone nobody can tell alpha
// and beta apart: alpha stays what it was, or what such a transfer takes where that is
// less, and beta takes the rest.
//
// The rate has changed when the last `change` samples are all slower than the fit of
// those before says, or all faster, by more than `tolerance`; then the ones before are
// forgotten. A single outlier, or `change` - 1 of them in a row, is none.

#include <cstddef>
#include <deque>
#include <optional>

#include "base/status.h"
#include "ordering/graph.h"

namespace aikido::ordering {

struct LinkFitOptions {
  size_t window = 32;
  size_t change = 4;
  double tolerance = 0.25;  // share of the time that the fit says
};

class LinkFit {
 public:
  // kInvalidArgument with a sentence: a window below 2, a change below 2 or above half
  // of the window, a tolerance that is not above 0.
  static Result<LinkFit> make(const LinkFitOptions& options);

  // A transfer of so many bytes took so long. kInvalidArgument, and nothing happens,
  // for figures that are negative or no numbers.
  Status add(double bytes, double seconds);

  // Empty before the first sample.
  const std::optional<LinkCost>& link() const { return link_; }
  size_t size() const { return samples_.size(); }  // that count
  size_t changes() const { return changes_; }      // of the rate, so far

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

}  // namespace aikido::ordering

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "cost/link_fit.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

namespace aikido::cost {
namespace {

// Median; the smaller of two. Requires: not empty.
double median(std::vector<double> values) {
  const auto middle =
      values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

double difference(double said_s, double seen_s) {
  const double most = std::max(said_s, seen_s);
  return most > 0 ? std::abs(said_s - seen_s) / most : 0;
}

}  // namespace

Result<LinkFit> LinkFit::make(const LinkFitOptions& options) {
  if (options.window < 2)
    return invalid(concat("the window has ", options.window,
                          " samples; it takes a number from 2 up"));
  if (options.change < 2 || options.change > options.window / 2)
    return invalid(concat("a change takes ", options.change,
                          " samples; it takes a number from 2 to half of the window, ",
                          options.window / 2));
  if (!std::isfinite(options.tolerance) || options.tolerance <= 0)
    return invalid(concat("the tolerance is ", options.tolerance,
                          "; it takes a finite number above 0"));
  return LinkFit(options);
}

Status LinkFit::add(double bytes, double seconds) {
  for (const auto& [name, value] : {std::pair("bytes", bytes), {"seconds", seconds}})
    if (!std::isfinite(value) || value < 0)
      return invalid(concat(name, " of a transfer is ", value,
                            "; it takes a finite number from 0 up"));
  samples_.push_back({bytes, seconds});
  if (samples_.size() > options_.window) samples_.pop_front();
  if (has_changed()) {
    ++changes_;
    samples_.erase(samples_.begin(),
                   samples_.end() - static_cast<std::ptrdiff_t>(options_.change));
  }
  link_ = fit_of(samples_, link_ ? link_->alpha_s : 0);
  return Status::ok();
}

bool LinkFit::has_changed() const {
  const size_t count = samples_.size(), last = options_.change;
  if (count < 2 * last) return false;
  const auto begin = samples_.end() - static_cast<std::ptrdiff_t>(last);
  const LinkCost before = fit_of({samples_.begin(), begin}, link_->alpha_s);
  const auto are_all = [&](auto is_so) {
    return std::all_of(begin, samples_.end(), is_so);
  };
  const auto said = [&](const Sample& it) { return before.time_s(it.bytes); };
  return are_all([&](const Sample& it) {
           return it.seconds > said(it) * (1 + options_.tolerance);
         }) ||
         are_all([&](const Sample& it) {
           return it.seconds < said(it) * (1 - options_.tolerance);
         });
}

LinkCost LinkFit::fit_of(const std::deque<Sample>& samples,
                         double alpha_before_s) const {
  const double size = samples.front().bytes;
  if (std::all_of(samples.begin(), samples.end(),
                  [&](const Sample& it) { return it.bytes == size; })) {
    std::vector<double> times;
    for (const Sample& it : samples) times.push_back(it.seconds);
    const double time_s = median(std::move(times));
    const double alpha_s = size > 0 ? std::min(alpha_before_s, time_s) : time_s;
    return {alpha_s, size > 0 ? (time_s - alpha_s) / size : 0};
  }
  LinkCost best;
  double least = std::numeric_limits<double>::infinity();
  const auto consider = [&](double alpha_s, double beta_s) {
    if (!(alpha_s >= 0 && beta_s >= 0)) return;
    const LinkCost link{alpha_s, beta_s};
    double error = 0;
    for (const Sample& it : samples)
      error += difference(link.time_s(it.bytes), it.seconds);
    if (error >= least) return;
    least = error;
    best = link;
  };
  for (size_t i = 0; i < samples.size(); ++i) {
    const auto [bytes, seconds] = samples[i];
    consider(seconds, 0);
    if (bytes > 0) consider(0, seconds / bytes);
    for (size_t k = 0; k < i; ++k) {
      if (samples[k].bytes == bytes) continue;
      const double beta_s = (seconds - samples[k].seconds) / (bytes - samples[k].bytes);
      consider(seconds - beta_s * bytes, beta_s);
    }
  }
  return best;
}

}  // namespace aikido::cost

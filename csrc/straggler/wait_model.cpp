// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "straggler/wait_model.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

namespace aikido::straggler {
namespace {

// The lower median; 0 for no values.
Duration median(std::vector<Duration>& values) {
  if (values.empty()) return Duration::zero();
  const auto middle =
      values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

constexpr auto kForEver = Duration::max();
// All sizes of a dropped set up to this are tried, then each size half again as large.
constexpr int32_t kFewDropped = 4;

}  // namespace

WaitModel::WaitModel(const RecentOperations& recent, Duration grace, double worth,
                     double slack, int32_t fewest, double half_life)
    : past_(recent.all()),
      n_(recent.world_size()),
      grace_(grace),
      worth_(worth),
      slack_(slack),
      fewest_(fewest) {
  Duration time{0};
  for (const PastOperation& op : past_) time += op.to_quorum;
  least_ = time / static_cast<int64_t>(past_.size()) / kLeastPart;
  for (size_t age = past_.size(); age-- > 0;)
    weights_.push_back(std::exp2(-static_cast<double>(age) / half_life));
  delays_.resize(past_.size() * num());
  std::vector<Duration> of_rank;
  for (size_t r = 0; r < num(); ++r) {
    const Rank rank(static_cast<int32_t>(r));
    const FairDelays& fair = recent.fair_delays(rank);
    of_rank.clear();
    size_t num_unknown = 0;
    int num_late = 0;
    for (const PastOperation& op : past_) {
      Duration delay{0};
      if (const auto known = recent.delay(op.seq, rank)) {
        delay = *known;
        num_late += delay > grace_ ? 1 : 0;
      } else if (fair.size() > 0) {
        delay = fair[num_unknown++ % fair.size()];
      }
      delays_[of_rank.size() * num() + r] = delay;
      of_rank.push_back(delay);
    }
    num_late_.push_back(num_late);
    const auto sum = std::accumulate(of_rank.begin(), of_rank.end(), Duration::zero());
    mean_.push_back(sum / static_cast<int64_t>(of_rank.size()));
    typical_.push_back(median(of_rank));
  }
  split_members();
}

// Splits the members: members in time under each rule in each operation, and the
// others.
void WaitModel::split_members() {
  const bool is_habit = std::any_of(num_late_.begin(), num_late_.end(),
                                    [](int num) { return num >= kHabit; });
  shortest_ = is_habit ? std::min(least_, grace_) : grace_;
  longest_in_time_.assign(past_.size(), Duration::zero());
  for (size_t r = 0; r < num(); ++r) {
    Duration longest{0};
    for (size_t i = 0; i < past_.size(); ++i) longest = std::max(longest, delay(i, r));
    if (longest > shortest_) {
      late_.push_back(r);
      continue;
    }
    for (size_t i = 0; i < past_.size(); ++i)
      longest_in_time_[i] = std::max(longest_in_time_[i], delay(i, r));
  }
}

Predicted WaitModel::wait_all() const {
  return predict({kForEver, RankSet(n_)});
}

Predicted WaitModel::predict(const WaitRule& rule) const {
  const auto n = static_cast<size_t>(n_);
  std::vector<Duration> start(n, Duration::zero());  // how much later than the others
  std::vector<Duration> lag(n);
  std::vector<char> is_dropped(n), was_out(n, 0);
  for (const size_t r : late_)
    is_dropped[r] = rule.dropped.contains(Rank(static_cast<int32_t>(r)));
  Predicted sum;
  for (size_t i = 0; i < past_.size(); ++i) {
    const Duration base = past_[i].to_quorum;
    Duration wait = longest_in_time_[i];
    for (const size_t r : late_) {
      if (start[r] > base && start[r] > Duration::zero()) {  // still in an earlier one
        lag[r] = kForEver;
        continue;
      }
      lag[r] = start[r] + delay(i, r);
      if (lag[r] == Duration::zero()) continue;
      Duration limit = is_dropped[r] ? Duration::zero() : rule.deadline;
      if (was_out[r] && !is_dropped[r] && limit != kForEver)  // it is granted one wait
        limit = std::max(limit, scaled(start[r], slack_) + grace_);
      wait = std::max(wait, std::min(lag[r], limit));
    }
    int32_t num_missing = 0;
    for (const size_t r : late_) {
      if (lag[r] <= wait) {
        start[r] = Duration::zero();
        was_out[r] = 0;
        continue;
      }
      ++num_missing;
      start[r] = lag[r] == kForEver ? start[r] - base - wait : lag[r] - wait;
      was_out[r] = 1;
    }
    const double missing = worth_ * num_missing / n_;
    sum.contributions += weights_[i] *
                         static_cast<double>(std::max<uint64_t>(past_[i].bytes, 1)) *
                         (1 - missing);
    sum.time += scaled(base + wait, weights_[i]);
  }
  return sum;
}

// Candidates: the grace, the shortest deadline, and deadlines that suit some
// operations.
std::vector<Duration> WaitModel::deadlines(Duration ceiling) const {
  std::vector<Duration> longest;
  for (const Duration delay : delays_)
    if (delay > Duration::zero()) longest.push_back(delay);
  std::vector<Duration> all{grace_};
  const auto add = [&](Duration deadline) {
    if (std::find(all.begin(), all.end(), deadline) == all.end())
      all.push_back(deadline);
  };
  add(shortest_);
  if (longest.empty()) return all;
  std::sort(longest.begin(), longest.end());
  for (const double q : {0.2, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0}) {
    const auto last = static_cast<double>(longest.size() - 1);
    const Duration enough = scaled(longest[static_cast<size_t>(q * last)], slack_);
    add(std::clamp(enough, shortest_, ceiling));
  }
  return all;
}

// Candidates: no member, the member with the longest mean delay, the two longest, etc.
std::vector<RankSet> WaitModel::dropped_sets() const {
  std::vector<int32_t> order(static_cast<size_t>(n_));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return mean_[static_cast<size_t>(a)] > mean_[static_cast<size_t>(b)];
  });
  std::vector<RankSet> sets{RankSet(n_)};
  RankSet set(n_);
  int32_t next_size = 1;
  for (int32_t i = 0; i < n_ - fewest_; ++i) {
    const int32_t rank = order[static_cast<size_t>(i)];
    if (mean_[static_cast<size_t>(rank)] <= grace_) break;
    if (num_late_[static_cast<size_t>(rank)] < kHabit) continue;
    set.insert(Rank(rank));
    if (i + 1 < next_size) continue;
    sets.push_back(set);
    next_size = i + 1 < kFewDropped ? i + 2 : 3 * (i + 1) / 2;
  }
  return sets;
}

WaitRule WaitModel::best(Duration ceiling) const {
  const auto ends = deadlines(ceiling);
  std::vector<std::pair<WaitRule, Predicted>> all;
  double best = 0;
  for (const RankSet& dropped : dropped_sets())
    for (const Duration deadline : ends) {
      WaitRule rule{deadline, dropped};
      const Predicted predicted = predict(rule);
      best = std::max(best, predicted.rate());
      all.emplace_back(std::move(rule), predicted);
    }
  const double least =
      best * (1 - kTie - kTieOfFew / static_cast<double>(past_.size()));
  size_t chosen = all.size();
  for (size_t i = 0; i < all.size(); ++i) {
    if (all[i].second.rate() < least) continue;
    if (chosen == all.size() ||
        all[i].second.contributions > all[chosen].second.contributions)
      chosen = i;
  }
  return all[chosen].first;
}

}  // namespace aikido::straggler

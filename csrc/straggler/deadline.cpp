// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "straggler/deadline.h"

#include <algorithm>

#include "base/check.h"

namespace aikido::straggler {

Duration price_of_loss(Duration period, int32_t world_size, Duration floor,
                       double worth) {
  AIKIDO_CHECK(world_size >= 1, "world_size=", world_size);
  return std::max(scaled(period, worth / world_size), floor);
}

Deadlines::Deadlines(const PolicyOptions& options, const History& history)
    : options_(options),
      history_(history),
      rule_{Duration::zero(), RankSet(history.world_size())},
      typical_(static_cast<size_t>(history.world_size())),
      grants_(static_cast<size_t>(history.world_size())),
      probes_(static_cast<size_t>(history.world_size())) {}

Duration Deadlines::grace(uint64_t bytes) const {
  // With backups a skip loses no data, but the time until another one has sent them.
  const double worth = options_.backups > 0 ? options_.worth / 2 : options_.worth;
  const Duration price = price_of_loss(history_.recent().period(bytes),
                                       history_.world_size(), options_.floor, worth);
  return std::clamp(price, options_.floor, options_.ceiling);
}

Deadlines::Answer Deadlines::of(Rank rank, Seq seq, uint64_t bytes) {
  const RecentOperations& recent = history_.recent();
  if (recent.num_closed(bytes) < options_.warmup_operations)
    return {std::min(options_.ceiling, longest_), Why::kWarmingUp};
  const Duration grace = this->grace(bytes);
  if (options_.backups > 0) {  // Note [which rule]
    const bool is_late = recent.shortest_of_few(rank) > grace;
    return is_late ? Answer{Duration::zero(), Why::kDropped}
                   : Answer{std::min(grace, longest_), Why::kGrace};
  }
  look(bytes);
  if (waits_) {
    const Duration all = scaled(recent.longest_lag(), options_.slack);
    return {std::min(std::clamp(all, grace, options_.ceiling), longest_),
            Why::kWaitingPays};
  }
  Answer answer{grace, Why::kGrace};
  if (!is_well_) {
    answer = {rule_.deadline, Why::kRule};
    if (rule_.dropped.contains(rank) && recent.longest_of_few(rank) > grace)
      answer = of_dropped(rank, seq, bytes);
  }
  if (const auto granted = re_entry(rank, seq, bytes);
      granted && *granted > answer.deadline)
    answer = {*granted, Why::kReEntry};
  answer.deadline = std::min({answer.deadline, options_.ceiling, longest_});
  return answer;
}

// Note [probe]
Deadlines::Answer Deadlines::of_dropped(Rank rank, Seq seq, uint64_t bytes) {
  const RecentOperations& recent = history_.recent();
  Probe& probe = probes_[static_cast<size_t>(rank.value)];
  const Duration grace = this->grace(bytes);
  const bool is_in_step = probe.last > Seq(0) && probe.last < seq &&
                          seq.value <= probe.last.value + RecentOperations::kFew &&
                          history_.last_skipped(rank) < probe.last;
  if (is_in_step) return {grace, Why::kGrace};
  if (seq != probe.last && seq < probe.not_before)
    return {Duration::zero(), Why::kDropped};
  const Duration expected =
      recent.late_start(rank, seq) + typical_[static_cast<size_t>(rank.value)];
  const Duration wait =
      scaled(std::min(expected, recent.longest_of_few(rank)), options_.slack) + grace;
  const auto period = std::max(to_ms(recent.period(bytes)), 1e-3);
  const double share = to_ms(std::min(wait, options_.ceiling)) / period;
  if (seq != probe.last && probe.last > Seq(0))
    probe.num_failures = std::min(probe.num_failures + 1, kMostProbeDoublings);
  probe.last = seq;
  const double operations =
      static_cast<double>(kProbeAfter << probe.num_failures) * (1 + 2 * share);
  probe.not_before = Seq(seq.value + static_cast<uint64_t>(operations));
  return {wait, Why::kReEntry};
}

// Note [re-entry]
std::optional<Duration> Deadlines::re_entry(Rank rank, Seq seq, uint64_t bytes) {
  const auto i = static_cast<size_t>(rank.value);
  Grant& grant = grants_[i];
  if (grant.last > Seq(0) && grant.last < seq) {  // what became of the last one
    if (history_.last_skipped(rank) >= grant.last) {
      const auto doublings = std::min(grant.num_failures++, kMostDoublings);
      grant.not_before = Seq(grant.last.value + (kGrantAfter << doublings));
    } else {
      grant.num_failures = 0;
    }
    grant.last = Seq(0);
  }
  const Duration late = history_.recent().late_start(rank, seq);
  const Duration grace = this->grace(bytes);
  if (late == Duration::zero() || seq < grant.not_before || typical_[i] > grace)
    return std::nullopt;
  grant.last = seq;
  return scaled(late, options_.slack) + grace;
}

// Chooses the rule anew where it is time.
void Deadlines::look(uint64_t bytes) {
  const RecentOperations& recent = history_.recent();
  const size_t num = recent.num_closed();
  const size_t num_new = num - looked_at_;
  const bool is_early = num < 2 * kEvery && num_new > 0;
  if (num_new < kEvery && !is_early) return;
  looked_at_ = num;
  const bool was_well = is_well_;
  if (recent.is_empty()) {
    is_well_ = true;
    return;
  }
  is_well_ = recent.is_complete() && recent.longest_lag() <= grace(bytes);
  if (is_well_ && was_well && regret_ <= 0) return;
  const auto n = history_.world_size();
  const WaitModel model(recent, grace(bytes), options_.worth, options_.slack,
                        fewest_of(options_, n));
  for (int32_t r = 0; r < n; ++r)
    typical_[static_cast<size_t>(r)] = model.typical(Rank(r));
  const RankSet dropped_before = rule_.dropped;
  rule_ = model.best(options_.ceiling);
  rule_.dropped.for_each([&](Rank r) {
    if (!dropped_before.contains(r))
      probes_[static_cast<size_t>(r.value)] = {
          Seq(0), Seq(recent.last_closed().value + kProbeAfter), 0};
  });
  add_regret(model, num_new);
  end_wait(model, num_new);
}

// Note [bound of the regret]
void Deadlines::end_wait(const WaitModel& model, size_t num_new) {
  if (regret_ <= 0) num_trials_ = 0;
  num_waited_ = waits_ ? num_waited_ + num_new : 0;
  if (num_waited_ < kTrialAfter << num_trials_) return;
  if (model.predict(rule_).rate() < kWorthATrial * model.wait_all().rate()) return;
  num_trials_ = std::min(num_trials_ + 1, kMostDoublings);
  regret_ = kMostRegret / 2;
  waits_ = false;
}

// Note [bound of the regret]
void Deadlines::add_regret(const WaitModel& model, size_t num_new) {
  const auto& past = model.past();
  // Those that are so old that late members have told when they called.
  const size_t num = std::min(num_new, past.size());
  const size_t end = past.size() > kEvery ? past.size() - kEvery : 0;
  if (end == 0) return;
  const size_t begin = end > num ? end - num : 0;
  double bytes = 0, in = 0, time = 0, wait_all_time = 0;
  const int32_t n = history_.world_size();
  for (size_t i = begin; i < end; ++i) {
    const PastOperation& op = past[i];
    bytes += static_cast<double>(op.bytes);
    in += static_cast<double>(op.bytes) * (1 - options_.worth * (n - op.num_in) / n);
    time += static_cast<double>((op.to_quorum + op.waited).count());
    Duration longest{0};
    for (size_t r = 0; r < op.delays.size(); ++r)
      longest = std::max(longest, model.delay(i, r));
    wait_all_time += static_cast<double>((op.to_quorum + longest).count());
  }
  if (bytes == 0 || wait_all_time == 0) return;
  const double by_wait_all = bytes / wait_all_time * time * (1 - kAllowed);
  const double operations =
      (by_wait_all - in) / (bytes / static_cast<double>(end - begin));
  regret_ = std::max(regret_ + operations, -kMostCredit);
  waits_ = regret_ > kMostRegret || (waits_ && regret_ > kMostRegret / 2);
}

Duration Deadlines::for_quorum(int32_t num_missing, uint64_t bytes) {
  if (options_.backups == 0) look(bytes);
  const Duration as_a_rule = scaled(history_.median_after_half(bytes), options_.slack);
  Duration deadline = std::max(num_missing * grace(bytes), as_a_rule);
  if (!is_well_) deadline = std::max(deadline, rule_.deadline);
  if (waits_)
    deadline =
        std::max(deadline, scaled(history_.recent().longest_lag(), options_.slack));
  return std::min({deadline, options_.ceiling, longest_});
}

}  // namespace aikido::straggler

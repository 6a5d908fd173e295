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
      probes_(static_cast<size_t>(history.world_size())),
      slow_(static_cast<size_t>(history.world_size())),
      account_(options.worth) {}

Duration Deadlines::grace(uint64_t bytes) const {
  // With backups a skip loses no data, only the time until a backup has sent them.
  const double worth = options_.backups > 0 ? options_.worth / 2 : options_.worth;
  const Duration price = price_of_loss(history_.recent().period(bytes),
                                       history_.world_size(), options_.floor, worth);
  return std::clamp(price, options_.floor, options_.ceiling);
}

Deadlines::Answer Deadlines::of(Rank rank, Seq seq, uint64_t bytes) const {
  const RecentOperations& recent = history_.recent();
  if (recent.num_closed(bytes) < options_.warmup_operations)
    return {std::min(options_.ceiling, longest_), Why::kWarmingUp};
  const Duration grace = this->grace(bytes);
  if (options_.backups > 0) {  // Note [choice of the rule]
    const bool is_late = recent.shortest_of_few(rank) > grace;
    return is_late ? Answer{Duration::zero(), Why::kDropped}
                   : Answer{std::min(grace, longest_), Why::kGrace};
  }
  if (waits_) {
    const Duration all = scaled(recent.longest_lag(), options_.slack);
    return {std::min(std::clamp(all, grace, options_.ceiling), longest_),
            Why::kWaitingPays};
  }
  Answer answer{grace, Why::kGrace};
  if (is_dropped(rank, bytes)) {
    answer = of_dropped(rank, seq, bytes);
  } else if (is_slow(rank, seq, bytes)) {
    const Duration little =
        std::max(options_.floor, recent.period(bytes) / WaitModel::kLeastPart);
    return {std::min({grace, little, longest_}), Why::kDropped};
  } else if (!is_well_) {
    answer = {rule_.deadline, Why::kRule};
  }
  if (const auto granted = re_entry(rank, seq, bytes);
      granted && *granted > answer.deadline)
    answer = {*granted, Why::kReEntry};
  answer.deadline = std::min({answer.deadline, options_.ceiling, longest_});
  return answer;
}

// See Note [slow link].
void Deadlines::on_cut_off(Rank rank, Seq seq, uint64_t bytes, Duration lag) {
  Slow& slow = slow_[static_cast<size_t>(rank.value)];
  if (lag <= grace(bytes) || history_.last_included(rank, bytes) > slow.since)
    slow = {};
  if (2 * lag <= history_.recent().period(bytes) || seq < slow.until) return;
  const auto doublings = std::min(slow.num_times, kMostDoublings);
  slow = {seq, Seq(seq.value + (kSlowFor << doublings)), bytes, slow.num_times + 1};
}

bool Deadlines::is_slow(Rank rank, Seq seq, uint64_t bytes) const {
  const Slow& slow = slow_[static_cast<size_t>(rank.value)];
  return seq <= slow.until && bytes >= slow.bytes &&
         history_.last_included(rank, bytes) <= slow.since;
}

bool Deadlines::is_dropped(Rank rank, uint64_t bytes) const {
  return !is_well_ && rule_.dropped.contains(rank) &&
         history_.recent().longest_of_few(rank) > grace(bytes);
}

Deadlines::Answer Deadlines::of_dropped(Rank rank, Seq seq, uint64_t bytes) const {
  if (const auto wait = probe(rank, seq, bytes)) return {*wait, Why::kReEntry};
  return is_in_step(rank, seq) ? Answer{grace(bytes), Why::kGrace}
                               : Answer{Duration::zero(), Why::kDropped};
}

// True if the member came in the last probe, and in all operations since.
bool Deadlines::is_in_step(Rank rank, Seq seq) const {
  const Probe& probe = probes_[static_cast<size_t>(rank.value)];
  return probe.last > Seq(0) && probe.last < seq &&
         seq.value <= probe.last.value + RecentOperations::kFew &&
         history_.last_skipped(rank) < probe.last;
}

// Note [probe]
std::optional<Duration> Deadlines::probe(Rank rank, Seq seq, uint64_t bytes) const {
  const RecentOperations& recent = history_.recent();
  const Probe& probe = probes_[static_cast<size_t>(rank.value)];
  if (is_in_step(rank, seq) || (seq != probe.last && seq < probe.not_before))
    return std::nullopt;
  const Duration expected =
      recent.late_start(rank, seq) + typical_[static_cast<size_t>(rank.value)];
  return scaled(std::min(expected, recent.longest_of_few(rank)), options_.slack) +
         grace(bytes);
}

void Deadlines::note_probe(Rank rank, Seq seq, uint64_t bytes) {
  const auto wait = probe(rank, seq, bytes);
  Probe& probe = probes_[static_cast<size_t>(rank.value)];
  if (!wait || probe.last == seq) return;
  probe.last = seq;
  probe.is_open = true;
  probe.not_before =
      Seq(seq.value + (to_next_probe(*wait, bytes) << probe.num_failures));
}

// Operations until a probe that waits so long.
uint64_t Deadlines::to_next_probe(Duration wait, uint64_t bytes) const {
  const auto period = std::max(to_ms(history_.recent().period(bytes)), 1e-3);
  const double share = to_ms(std::min(wait, options_.ceiling)) / period;
  return static_cast<uint64_t>(static_cast<double>(kProbeAfter) * (1 + 2 * share));
}

// A probe has paid if the member was in this operation and in the next few.
void Deadlines::judge_probes() {
  const Seq last = history_.recent().last_closed();
  for (int32_t r = 0; r < history_.world_size(); ++r) {
    Probe& probe = probes_[static_cast<size_t>(r)];
    if (!probe.is_open || last.value <= probe.last.value + RecentOperations::kFew)
      continue;
    probe.is_open = false;
    const bool has_paid = history_.last_skipped(Rank(r)) < probe.last;
    probe.num_failures =
        has_paid ? 0 : std::min(probe.num_failures + 1, kMostProbeDoublings);
  }
}

// Note [re-entry]
std::optional<Duration> Deadlines::re_entry(Rank rank, Seq seq, uint64_t bytes) const {
  const auto i = static_cast<size_t>(rank.value);
  const Duration late = history_.recent().late_start(rank, seq);
  const Duration grace = this->grace(bytes);
  if (late == Duration::zero() || seq < grants_[i].not_before || typical_[i] > grace)
    return std::nullopt;
  return scaled(late, options_.slack) + grace;
}

// Records the outcome of a grant.
void Deadlines::note_grant(Rank rank, Seq seq, bool is_in) {
  Grant& grant = grants_[static_cast<size_t>(rank.value)];
  if (is_in) {
    grant.num_failures = 0;
  } else {
    const auto doublings = std::min(grant.num_failures++, kMostDoublings);
    grant.not_before = Seq(seq.value + (kGrantAfter << doublings));
  }
}

void Deadlines::on_re_entry(Rank rank, Seq seq, uint64_t bytes, bool is_in) {
  if (is_dropped(rank, bytes)) note_probe(rank, seq, bytes);
  if (re_entry(rank, seq, bytes)) note_grant(rank, seq, is_in);
}

void Deadlines::choose(uint64_t bytes, TimePoint now) {
  const RecentOperations& recent = history_.recent();
  if (options_.backups > 0 || recent.is_empty()) return;
  account_.update(recent, now);
  watch_account();
  judge_probes();
  const size_t num = recent.num_closed();
  const bool is_early = num < 2 * kEvery;
  if (num - looked_at_ < kEvery && !is_early) return;
  looked_at_ = num;
  const bool was_well = is_well_;
  is_well_ = recent.is_complete() && recent.longest_lag() <= grace(bytes);
  if (!is_well_ || !was_well) choose_rule(bytes);
}

// Note [choice of the rule]
void Deadlines::choose_rule(uint64_t bytes) {
  const RecentOperations& recent = history_.recent();
  const auto n = history_.world_size();
  const WaitModel model(recent, grace(bytes), options_.worth, options_.slack,
                        fewest_of(options_, n));
  for (int32_t r = 0; r < n; ++r)
    typical_[static_cast<size_t>(r)] = model.typical(Rank(r));
  const RankSet dropped_before = rule_.dropped;
  rule_ = model.best(options_.ceiling);
  rule_.dropped.for_each([&](Rank r) {
    if (dropped_before.contains(r)) return;
    const Duration wait =
        scaled(typical_[static_cast<size_t>(r.value)], options_.slack);
    probes_[static_cast<size_t>(r.value)] = {
        Seq(0),
        Seq(recent.last_closed().value +
            std::min(to_next_probe(wait, bytes), kMostToFirstProbe)),
        0, false};
  });
  if (!may_try(model)) return;
  num_trials_ = std::min(num_trials_ + 1, kMostDoublings);
  waits_ = false;
  is_trial_ = true;
}

// Note [bound of the regret]
bool Deadlines::may_try(const WaitModel& model) const {
  return waits_ && account_.lost() <= kMostLost &&
         num_waited_ >= kTrialAfter << num_trials_ &&
         model.predict(rule_).rate() >= kWorthATrial * model.wait_all().rate();
}

// Note [bound of the regret]
void Deadlines::watch_account() {
  const double lost = account_.lost();
  if (lost <= 0) num_trials_ = 0;
  if (lost <= kMostLost / 2) {
    waits_ = is_trial_ = false;
  } else if (waits_) {
    ++num_waited_;
  } else if (lost > kMostLost + (is_trial_ ? kOfATrial : 0)) {
    waits_ = true;
    is_trial_ = false;
    num_waited_ = 0;
  }
}

Duration Deadlines::for_quorum(int32_t num_missing, uint64_t bytes) const {
  const Duration as_a_rule = scaled(history_.median_after_half(bytes), options_.slack);
  Duration deadline = std::max(num_missing * grace(bytes), as_a_rule);
  if (!is_well_) deadline = std::max(deadline, rule_.deadline);
  if (waits_)
    deadline =
        std::max(deadline, scaled(history_.recent().longest_lag(), options_.slack));
  return std::min({deadline, options_.ceiling, longest_});
}

}  // namespace aikido::straggler

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "reassign/simulation.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <queue>
#include <random>
#include <set>
#include <utility>

namespace aikido::reassign {
namespace {

enum class EventKind : uint8_t {
  kDeliver,
  kItemDone,
  kLook,
  kClaim,
  kDie,
  kPause,
  kLeave,
  kPeerLost,
  kOutcome,
};

struct Event {
  TimePoint time{};
  uint64_t order = 0;
  EventKind kind = EventKind::kClaim;
  int32_t rank = 0;
  int32_t from = 0;     // kDeliver, kPeerLost
  uint64_t number = 0;  // kItemDone, kLook, kClaim: generation; kOutcome: step
  std::vector<std::byte> payload;
};
struct IsLater {
  bool operator()(const Event& a, const Event& b) const {
    return std::pair(a.time, a.order) > std::pair(b.time, b.order);
  }
};

struct Label {
  int32_t owner = 0;
  double cost = 1;       // real
  double predicted = 1;  // that the ranks know
  int num_counted = 0;
  bool is_dropped = false;  // in doubt
};

struct Process {
  std::unique_ptr<Reassigner> reassigner;
  bool is_alive = true;
  bool is_computing = false;
  bool is_waiting = false;
  bool has_contributed = false;
  uint64_t step = 0;
  uint64_t generation = 0;  // of timed events; older ones mean nothing
  Duration took{};          // of the running item
  ItemId running;
  uint64_t running_label = 0;
  TimePoint paused_until{};
  TimePoint look{};
  std::vector<uint64_t> computed;  // labels of the step
  std::vector<ItemId> computed_ids;
  std::vector<uint64_t> to_reissue;
  std::map<uint64_t, std::vector<uint64_t>> lists;  // labels by step
  std::set<uint64_t> outcomes;                      // that have arrived
};

struct Sum {
  std::set<int32_t> skipped, contributors;
  std::map<int32_t, std::vector<uint64_t>> computed;
  bool is_done = false;
  TimePoint done_at{};
  // Costs of all items of the step: the first own item of each rank, and the others.
  std::vector<double> firsts, others;
  std::vector<double> slowness;  // of all ranks
};

// Time of the work without its division into items, and of whole items (Verdict).
double ideal_time(const Sum& sum) {
  double speed = 0;
  for (const double slow : sum.slowness) speed += 1 / slow;
  const double firsts = std::accumulate(sum.firsts.begin(), sum.firsts.end(), 0.0);
  return std::accumulate(sum.others.begin(), sum.others.end(), firsts) / speed;
}
double whole_time(const Sum& sum) {
  std::vector<double> costs = sum.others;
  std::sort(costs.begin(), costs.end(), std::greater<>());
  std::vector<double> ends = sum.slowness;
  for (size_t r = 0; r < ends.size(); ++r) ends[r] *= sum.firsts[r];
  for (const double cost : costs) {
    size_t best = 0;
    for (size_t r = 1; r < ends.size(); ++r)
      if (ends[r] + cost * sum.slowness[r] < ends[best] + cost * sum.slowness[best])
        best = r;
    ends[best] += cost * sum.slowness[best];
  }
  return *std::max_element(ends.begin(), ends.end());
}

class Simulation {
 public:
  explicit Simulation(const World& world)
      : world_(world), random_(world.seed), item_random_(world.seed) {}

  Verdict run();

 private:
  static constexpr uint64_t kLeastDrain = 8;
  static constexpr uint64_t kMostDrain = 200;

  double uniform(double from, double to) {
    return std::uniform_real_distribution<double>(from, to)(random_);
  }
  double normal() { return std::normal_distribution<double>()(random_); }
  double item_normal() { return std::normal_distribution<double>()(item_random_); }
  bool chance(double p) { return p > 0 && uniform(0, 1) < p; }
  Duration latency() {
    return std::chrono::duration_cast<Duration>(
        scaled(world_.most_latency - world_.least_latency, uniform(0, 1)) +
        world_.least_latency);
  }
  Process& at(int32_t rank) { return processes_[static_cast<size_t>(rank)]; }
  bool is_draining(uint64_t step) const { return step > world_.num_steps; }
  double slowness(int32_t rank, uint64_t step) const {
    return world_.slowness ? world_.slowness(rank, step) : 1;
  }
  void violate(std::string text) {
    if (verdict_.violations.size() < 10) verdict_.violations.push_back(std::move(text));
  }
  void push(TimePoint time, EventKind kind, int32_t rank, int32_t from = 0,
            uint64_t number = 0, std::vector<std::byte> payload = {}) {
    events_.push({time, ++order_, kind, rank, from, number, std::move(payload)});
  }

  double random_cost();
  uint64_t new_label(int32_t owner, double cost);
  void make_lists(uint64_t step);
  void plan_faults(uint64_t step);
  void begin(int32_t rank, uint64_t step);
  void handle(const Event& event);
  void claim(int32_t rank);
  void contribute(int32_t rank);
  void check_sum(uint64_t step);
  void apply_outcome(int32_t rank);
  void die(int32_t rank);
  void leave(int32_t rank);
  void after(int32_t rank);  // every call of a Reassigner
  bool is_finished() const;
  void check_end();

  const World world_;
  std::mt19937_64 random_;
  std::mt19937_64 item_random_;  // so the items do not depend on the messages
  Verdict verdict_;
  std::vector<Process> processes_;
  std::vector<Label> labels_;
  std::map<uint64_t, Sum> sums_;
  std::map<uint64_t, std::vector<std::vector<uint64_t>>> fresh_;  // by step and rank
  std::priority_queue<Event, std::vector<Event>, IsLater> events_;
  std::map<std::pair<int32_t, int32_t>, TimePoint> delivered_;
  uint64_t order_ = 0;
  TimePoint now_{};
  uint64_t last_step_ = 0;
};

double Simulation::random_cost() {
  const double sigma = world_.cost_sigma;
  double sum = 0;
  for (uint32_t i = 0; i < world_.samples_per_item; ++i)
    sum += std::exp(sigma * item_normal() - sigma * sigma / 2);
  return sum / world_.samples_per_item;
}

uint64_t Simulation::new_label(int32_t owner, double cost) {
  Label label;
  label.owner = owner;
  label.cost = cost;
  label.predicted = cost * std::exp(world_.prediction_sigma * item_normal());
  labels_.push_back(label);
  return labels_.size() - 1;
}

// Fresh items of a step, for all ranks.
void Simulation::make_lists(uint64_t step) {
  auto& lists = fresh_[step];
  if (!lists.empty()) return;
  lists.resize(static_cast<size_t>(world_.num_ranks));
  const uint32_t per_rank = is_draining(step) ? 1 : world_.items_per_rank;
  for (int32_t rank = 0; rank < world_.num_ranks; ++rank)
    for (uint32_t i = 0; i < per_rank; ++i) {
      // In the drain items are long, so that late messages arrive.
      const double cost = is_draining(step) ? 20 : random_cost();
      lists[static_cast<size_t>(rank)].push_back(new_label(rank, cost));
    }
  const auto is_larger = [&](uint64_t a, uint64_t b) {
    return labels_[a].predicted > labels_[b].predicted;
  };
  for (auto& list : lists) std::stable_sort(list.begin(), list.end(), is_larger);
  if (!world_.is_partitioned || is_draining(step)) return;
  std::vector<uint64_t> all;
  for (const auto& list : lists) all.insert(all.end(), list.begin(), list.end());
  std::sort(all.begin(), all.end(), is_larger);
  std::vector<double> load(lists.size());
  for (auto& list : lists) list.clear();
  for (const uint64_t label : all) {
    const auto least = std::min_element(load.begin(), load.end()) - load.begin();
    load[static_cast<size_t>(least)] += labels_[label].predicted;
    lists[static_cast<size_t>(least)].push_back(label);
    labels_[label].owner = static_cast<int32_t>(least);
  }
}

void Simulation::begin(int32_t rank, uint64_t step) {
  Process& process = at(rank);
  make_lists(step);
  plan_faults(step);
  last_step_ = std::max(last_step_, step);
  std::vector<uint64_t> list = fresh_[step][static_cast<size_t>(rank)];
  list.insert(list.end(), process.to_reissue.begin(), process.to_reissue.end());
  process.to_reissue.clear();
  std::vector<ItemSpec> specs;
  for (const uint64_t label : list) specs.push_back({label, labels_[label].predicted});
  Sum& sum = sums_[step];
  for (const uint64_t label : list) sum.others.push_back(labels_[label].cost);
  sum.firsts.push_back(list.empty() ? 0 : sum.others[sum.others.size() - list.size()]);
  if (!list.empty())
    sum.others.erase(sum.others.end() - static_cast<std::ptrdiff_t>(list.size()));
  sum.slowness.push_back(slowness(rank, step));
  process.lists[step] = std::move(list);
  process.step = step;
  process.has_contributed = false;
  process.is_waiting = false;
  process.computed.clear();
  process.computed_ids.clear();
  ++process.generation;
  const Duration span = world_.item_time * world_.items_per_rank;
  const auto within = [&] { return now_ + scaled(span, uniform(0, 1.5)); };
  if (!is_draining(step)) {
    if (chance(world_.death)) push(within(), EventKind::kDie, rank);
    if (chance(world_.pause)) push(within(), EventKind::kPause, rank);
    if (chance(world_.leave)) push(within(), EventKind::kLeave, rank, 0, step);
  }
  process.reassigner->begin(step, std::move(specs), now_);
  after(rank);
  claim(rank);
}

void Simulation::plan_faults(uint64_t step) {
  if (sums_.contains(step)) return;
  Sum& sum = sums_[step];
  if (is_draining(step)) return;
  for (int32_t rank = 0; rank < world_.num_ranks; ++rank)
    if (at(rank).is_alive && chance(world_.skip)) sum.skipped.insert(rank);
}

void Simulation::claim(int32_t rank) {
  Process& process = at(rank);
  if (!process.is_alive || process.is_computing || process.has_contributed) return;
  const Claim claim = process.reassigner->claim(now_);
  process.is_waiting = claim.kind == Claim::Kind::kWait;
  if (process.is_waiting) {
    if (claim.until <= now_ || claim.until > now_ + std::chrono::hours(1))
      violate("a rank waits without a bound");
    else
      push(claim.until, EventKind::kClaim, rank, 0, process.generation);
  } else if (claim.kind == Claim::Kind::kStepOver) {
    contribute(rank);
    return;
  } else {
    process.is_computing = true;
    process.running = claim.id;
    process.running_label = claim.spec.label;
    const auto& lists = at(claim.id.owner.value).lists;
    const auto list = lists.find(claim.id.step);
    if (claim.id.step != process.step || list == lists.end() ||
        claim.id.index >= list->second.size() ||
        list->second[claim.id.index] != claim.spec.label)
      violate("an item is computed under a wrong name");
    const double error = std::max(0.05, 1 + world_.jitter * normal());
    process.took = scaled(world_.item_time, labels_[claim.spec.label].cost * error *
                                                slowness(rank, process.step));
    push(now_ + process.took, EventKind::kItemDone, rank, 0, process.generation);
  }
  after(rank);
}

void Simulation::contribute(int32_t rank) {
  Process& process = at(rank);
  process.has_contributed = true;
  const StepReport& report = process.reassigner->report();
  std::vector<ItemId> taken;
  for (const ItemId& id : process.computed_ids)
    if (id.owner != Rank(rank)) taken.push_back(id);
  if (taken != report.taken) violate("a report differs from the computed items");
  verdict_.num_moved += taken.size();
  if (!is_draining(process.step)) {
    ++verdict_.num_rank_steps;
    verdict_.num_messages += report.num_messages;
    verdict_.num_bytes += report.num_bytes;
  }
  Sum& sum = sums_[process.step];
  if (!sum.is_done && !sum.skipped.contains(rank)) {
    sum.contributors.insert(rank);
    sum.computed[rank] = process.computed;
  }
  check_sum(process.step);
  apply_outcome(rank);
}

void Simulation::check_sum(uint64_t step) {
  Sum& sum = sums_[step];
  if (sum.is_done) return;
  for (int32_t rank = 0; rank < world_.num_ranks; ++rank) {
    const Process& process = at(rank);
    if (!process.is_alive || sum.contributors.contains(rank)) continue;
    if (sum.skipped.contains(rank) && process.step <= step) {
      // A skipped rank is not waited for, unless nobody else is there.
      if (!sum.contributors.empty()) continue;
    }
    if (process.step == step && process.has_contributed) continue;
    return;
  }
  sum.is_done = true;
  sum.done_at = now_;
  for (const auto& [rank, labels] : sum.computed)
    for (const uint64_t label : labels)
      if (++labels_[label].num_counted == 2) violate("an item is counted twice");
  if (!is_draining(step)) {
    const auto before = sums_.find(step - 1);
    const TimePoint from = before == sums_.end() ? TimePoint{} : before->second.done_at;
    verdict_.step_ms.push_back(to_ms(now_ - from));
    verdict_.ideal_ms.push_back(to_ms(world_.item_time) * ideal_time(sum));
    verdict_.whole_ms.push_back(to_ms(world_.item_time) * whole_time(sum));
  }
  for (int32_t rank = 0; rank < world_.num_ranks; ++rank)
    push(now_ + latency(), EventKind::kOutcome, rank, 0, step);
}

void Simulation::apply_outcome(int32_t rank) {
  Process& process = at(rank);
  const uint64_t step = process.step;
  if (!process.is_alive || !process.has_contributed || !process.outcomes.contains(step))
    return;
  const Sum& sum = sums_[step];
  RankSet contributors(world_.num_ranks);
  for (const int32_t one : sum.contributors) contributors.insert(Rank(one));
  process.reassigner->on_outcome(step, contributors);
  if (!sum.contributors.contains(rank))
    for (size_t i = 0; i < process.computed.size(); ++i)
      if (process.computed_ids[i].owner == Rank(rank))
        process.to_reissue.push_back(process.computed[i]);
  after(rank);
  if (step >= world_.num_steps + kLeastDrain) {
    const bool is_empty =
        std::all_of(processes_.begin(), processes_.end(),
                    [](auto& p) { return !p.is_alive || p.to_reissue.empty(); });
    // All ranks stop after the same step.
    if ((is_empty && last_step_ == step) || step >= world_.num_steps + kMostDrain)
      return;
  }
  begin(rank, step + 1);
}

void Simulation::die(int32_t rank) {
  Process& process = at(rank);
  const auto alive = std::count_if(processes_.begin(), processes_.end(),
                                   [](const Process& p) { return p.is_alive; });
  if (!process.is_alive || alive <= 2) return;
  process.is_alive = false;
  ++verdict_.num_deaths;
  const bool is_in_flight_lost = chance(0.5);
  if (is_in_flight_lost) {
    std::vector<Event> kept;
    for (; !events_.empty(); events_.pop())
      if (events_.top().kind != EventKind::kDeliver || events_.top().from != rank)
        kept.push_back(events_.top());
    for (Event& event : kept) events_.push(std::move(event));
  }
  for (int32_t other = 0; other < world_.num_ranks; ++other) {
    if (other == rank || !at(other).is_alive) continue;
    const TimePoint last = delivered_[{rank, other}];
    push(std::max(now_ + latency(), last + Duration(1)), EventKind::kPeerLost, other,
         rank);
  }
  for (auto& [step, sum] : sums_)
    if (!sum.is_done) check_sum(step);
}

void Simulation::leave(int32_t rank) {
  Process& process = at(rank);
  if (process.has_contributed) return;
  process.is_computing = false;
  ++process.generation;
  for (const ItemId& id : process.reassigner->leave(now_))
    process.to_reissue.push_back(process.lists[id.step][id.index]);
  after(rank);
  contribute(rank);
}

void Simulation::after(int32_t rank) {
  Process& process = at(rank);
  for (OutgoingMessage& message : process.reassigner->take_messages()) {
    TimePoint& last = delivered_[{rank, message.to.value}];
    last = std::max(now_ + latency(), last + Duration(1));
    push(last, EventKind::kDeliver, message.to.value, rank, 0,
         std::move(message.payload));
  }
  for (const Loss& loss : process.reassigner->take_losses()) {
    Label& label = labels_[loss.spec.label];
    if (loss.reason == Loss::Reason::kInDoubt) {
      label.is_dropped = true;
      ++verdict_.num_in_doubt;
    } else {
      ++verdict_.num_lost;
      process.to_reissue.push_back(loss.spec.label);
    }
  }
  const auto look = process.reassigner->next_look();
  if (look && *look != process.look && *look != TimePoint::max()) {
    process.look = *look;
    push(std::max(*look, now_), EventKind::kLook, rank);
  }
}

void Simulation::handle(const Event& event) {
  Process& process = at(event.rank);
  if (!process.is_alive) return;
  if (now_ < process.paused_until && event.kind != EventKind::kDie) {
    Event later = event;
    later.time = process.paused_until;
    later.order = ++order_;
    events_.push(std::move(later));
    return;
  }
  Reassigner& reassigner = *process.reassigner;
  const bool is_old = event.number != process.generation;
  switch (event.kind) {
    case EventKind::kDeliver: {
      const Status status =
          reassigner.on_message(Rank(event.from), event.payload, now_);
      if (!status.is_ok()) violate("a message is refused: " + status.message());
      break;
    }
    case EventKind::kItemDone:
      if (is_old) return;
      process.is_computing = false;
      process.computed.push_back(process.running_label);
      process.computed_ids.push_back(process.running);
      reassigner.on_finished(process.took, now_);
      break;
    case EventKind::kLook:
      reassigner.on_time(now_);
      break;
    case EventKind::kClaim:
      if (is_old || !process.is_waiting) return;
      break;
    case EventKind::kDie:
      return die(event.rank);
    case EventKind::kPause:
      process.paused_until = now_ + scaled(world_.longest_pause, uniform(0, 1));
      return;
    case EventKind::kLeave:
      if (process.step == event.number) leave(event.rank);
      return;
    case EventKind::kPeerLost:
      reassigner.on_peer_lost(Rank(event.from), now_);
      break;
    case EventKind::kOutcome:
      process.outcomes.insert(event.number);
      return apply_outcome(event.rank);
  }
  after(event.rank);
  if (!process.has_contributed) claim(event.rank);
}

bool Simulation::is_finished() const {
  return std::all_of(processes_.begin(), processes_.end(), [&](const Process& p) {
    return !p.is_alive || (p.step == last_step_ && p.has_contributed);
  });
}

void Simulation::check_end() {
  if (last_step_ < world_.num_steps || !is_finished()) violate("a rank waits for ever");
  for (const Label& label : labels_) {
    if (!at(label.owner).is_alive || label.num_counted == 1) continue;
    if (label.num_counted == 0 && !label.is_dropped) violate("an item is lost");
  }
  if (verdict_.num_in_doubt > 0 && verdict_.num_deaths == 0)
    violate("an item is in doubt although nobody died");
}

Verdict Simulation::run() {
  processes_.resize(static_cast<size_t>(world_.num_ranks));
  for (int32_t rank = 0; rank < world_.num_ranks; ++rank) {
    const int32_t helpers = world_.is_reassigning ? world_.num_helpers : 0;
    auto group = helper_group(Rank(rank), world_.num_ranks, helpers, world_.hosts);
    at(rank).reassigner =
        std::make_unique<Reassigner>(Rank(rank), *std::move(group), world_.options);
  }
  for (int32_t rank = 0; rank < world_.num_ranks; ++rank) begin(rank, 1);
  while (!events_.empty() && verdict_.violations.empty()) {
    const Event event = events_.top();
    events_.pop();
    now_ = event.time;
    // Some hundred events for each item are plenty.
    if (order_ > 100'000 + 1'000 * labels_.size()) violate("messages without end");
    handle(event);
  }
  if (verdict_.violations.empty()) check_end();
  verdict_.num_items = labels_.size();
  return std::move(verdict_);
}

// Sum of the times divided by the sum of the others, from step `first` on.
double mean_ratio(const std::vector<double>& times, const std::vector<double>& others,
                  size_t first) {
  const auto from = static_cast<std::ptrdiff_t>(first);
  return std::accumulate(times.begin() + from, times.end(), 0.0) /
         std::accumulate(others.begin() + from, others.end(), 0.0);
}

}  // namespace

Verdict simulate(const World& world) {
  return Simulation(world).run();
}

double mean_over_ideal(const Verdict& verdict, size_t first) {
  return mean_ratio(verdict.step_ms, verdict.ideal_ms, first);
}

double whole_over_ideal(const Verdict& verdict, size_t first) {
  return mean_ratio(verdict.whole_ms, verdict.ideal_ms, first);
}

}  // namespace aikido::reassign

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "pipeline/generate.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

#include "base/text.h"
#include "pipeline/index.h"
#include "pipeline/layout.h"
#include "pipeline/order.h"

namespace aikido::pipeline {
namespace {

constexpr std::array<std::string_view, 5> kMethods = {
    "gpipe", "1f1b", "1f1b_async", "interleaved_1f1b", "zero_bubble"};
constexpr int kMostRanks = 4096;
constexpr int64_t kMostBatches = int64_t{1} << 22;  // of all stages

bool is_interleaved(Method method) {
  return method == Method::kInterleaved || method == Method::kZeroBubble;
}
bool is_one_f_one_b(Method method) {
  return method == Method::kOneFOneB || method == Method::kAsync;
}

// "8 and 12 are": the multiples of 4 around 10.
std::string multiples_around(int64_t number, int64_t of) {
  const int64_t below = number / of * of;
  return below == 0 ? concat(of, " is") : concat(below, " and ", below + of, " are");
}

class Generator {
 public:
  explicit Generator(const GenerateOptions& options) : options_(options) {}

  Result<Schedule> run() {
    AIKIDO_TRY(check_size());
    AIKIDO_TRY(is_interleaved(options_.method) ? check_interleaved()
                                               : check_replicas());
    AIKIDO_TRY(check_weights());
    Schedule schedule;
    schedule.name = name_of(options_.method);
    schedule.num_micro_batches = options_.micro_batches;
    schedule.weights = weights_;
    schedule.stages = is_interleaved(options_.method)
                          ? stages_in_turns(options_.stages / options_.stages_per_rank,
                                            options_.stages_per_rank)
                          : stages_in_a_row(replicas_);
    turns_ = options_.turns.empty() ? even_turns(schedule.stages) : options_.turns;
    auto programs = order(schedule.stages);
    if (options_.recompute)
      for (Program& program : programs) program = with_recomputing(program);
    return lay_out(std::move(schedule), programs, {per_step_, options_.overlap_sums});
  }

 private:
  std::string_view method() const { return name_of(options_.method); }

  Status check_size() {
    const auto [stages, batches] = std::pair(options_.stages, options_.micro_batches);
    if (stages < 1 || stages > kMostRanks)
      return invalid(concat("stages is ", stages, "; it takes 1 to ", kMostRanks));
    if (batches < 1)
      return invalid(concat("micro_batches is ", batches, "; it takes 1 or more"));
    if (int64_t{stages} * batches > kMostBatches)
      return invalid(concat(batches, " micro_batches on ", stages, " stages are ",
                            int64_t{stages} * batches, " forwards; at most ",
                            kMostBatches, " are scheduled at once"));
    return Status::ok();
  }

  Status check_replicas() {
    if (options_.stages_per_rank != 1)
      return invalid(concat("stages_per_rank is ", options_.stages_per_rank, ", but ",
                            method(),
                            " has one stage on each rank; interleaved_1f1b and "
                            "zero_bubble take several"));
    replicas_ = options_.replicas;
    if (replicas_.empty()) replicas_.assign(static_cast<size_t>(options_.stages), 1);
    if (replicas_.size() != static_cast<size_t>(options_.stages))
      return invalid(concat("replicas has ", replicas_.size(),
                            " numbers and stages is ", options_.stages,
                            "; each stage takes one"));
    int64_t ranks = 0;
    for (size_t s = 0; s < replicas_.size(); ++s) {
      if (replicas_[s] < 1)
        return invalid(concat("stage ", s, " has ", replicas_[s],
                              " replicas; it takes 1 or more"));
      if (replicas_[s] > options_.micro_batches)
        return invalid(
            concat("stage ", s, " has ", replicas_[s], " replicas and there ",
                   options_.micro_batches == 1 ? "is " : "are ", options_.micro_batches,
                   " micro_batches; some replicas would have none, so take "
                   "fewer of them or more micro_batches"));
      ranks += replicas_[s];
    }
    if (ranks > kMostRanks)
      return invalid(concat("the replicas take ", ranks, " ranks; at most ", kMostRanks,
                            " are scheduled"));
    AIKIDO_TRY(check_turns());
    return check_warmups();
  }

  Status check_turns() const {
    if (options_.turns.empty()) return Status::ok();
    if (options_.method == Method::kAsync)
      return invalid(
          "turns are given, but an update of 1f1b_async has one micro-batch of each "
          "replica; gpipe and 1f1b take turns");
    if (options_.turns.size() != replicas_.size())
      return invalid(concat("turns has ", options_.turns.size(),
                            " lists and stages is ", options_.stages,
                            "; each stage takes one"));
    for (size_t s = 0; s < replicas_.size(); ++s) {
      const auto& turns = options_.turns[s];
      for (const int replica : turns)
        if (replica < 0 || replica >= replicas_[s])
          return invalid(concat("the turns of stage ", s, " name replica ", replica,
                                "; it has ", replicas_[s], ", from 0 on"));
      const size_t taken = std::min(turns.size(), index(options_.micro_batches));
      for (int replica = 0; replica < replicas_[s]; ++replica)
        if (std::find(turns.begin(), turns.begin() + static_cast<ptrdiff_t>(taken),
                      replica) == turns.begin() + static_cast<ptrdiff_t>(taken))
          return invalid(concat("the turns of stage ", s, " give replica ", replica,
                                " none of ", options_.micro_batches,
                                " micro_batches; each takes one or more"));
    }
    return Status::ok();
  }

  Status check_warmups() {
    warmups_ = options_.warmups;
    if (warmups_.empty()) {
      warmups_ = warmups_of(replicas_);
      return Status::ok();
    }
    if (!is_one_f_one_b(options_.method))
      return invalid(concat("warmups are given, but ", method(),
                            " has its own; 1f1b and 1f1b_async take them"));
    if (warmups_.size() != replicas_.size())
      return invalid(concat("warmups has ", warmups_.size(), " numbers and stages is ",
                            options_.stages, "; each stage takes one"));
    for (size_t s = 0; s < warmups_.size(); ++s) {
      if (warmups_[s] < 0)
        return invalid(concat("the warmup of stage ", s, " is ", warmups_[s],
                              "; it takes 0 or more forwards"));
      warmups_[s] = std::min(warmups_[s], options_.micro_batches);
    }
    return Status::ok();
  }

  Status check_interleaved() {
    const int each = options_.stages_per_rank;
    const auto* given = !options_.warmups.empty()    ? "warmups"
                        : !options_.turns.empty()    ? "turns"
                        : !options_.replicas.empty() ? "replicas"
                                                     : nullptr;
    if (given != nullptr)
      return invalid(concat(given, " are given, but ", method(),
                            " takes none; 1f1b and 1f1b_async do"));
    if (each < 1 || options_.stages % each != 0)
      return invalid(concat("stages_per_rank is ", each, " and stages is ",
                            options_.stages,
                            "; it takes a number that divides the stages"));
    const int ranks = options_.stages / each;
    const int portions = std::max(1, options_.micro_batches / ranks);
    if (each > 1 && options_.micro_batches % portions != 0)
      return invalid(concat("micro_batches is ", options_.micro_batches, "; ", method(),
                            " on ", ranks, " ranks takes them in ", portions,
                            " portions of one size; ",
                            options_.micro_batches / portions * portions, " and ",
                            ranks * (portions + 1), " can be divided so"));
    replicas_.assign(static_cast<size_t>(options_.stages), 1);
    return Status::ok();
  }

  Status check_weights() {
    const bool is_async = options_.method == Method::kAsync;
    weights_ = is_async ? options_.weights.value_or(WeightPolicy::kStash)
                        : WeightPolicy::kFlush;
    if (options_.weights && *options_.weights != weights_)
      return invalid(concat("weights is ", name_of(*options_.weights), ", but ",
                            method(), " flushes; 1f1b_async takes others"));
    if (is_async && weights_ == WeightPolicy::kFlush)
      return invalid("weights is flush, but 1f1b_async does not; 1f1b does");
    if (options_.micro_batches_per_step && !is_async)
      return invalid(
          concat("micro_batches_per_step is given, but ", method(),
                 " has one step, of all micro_batches; 1f1b_async takes it"));
    if (options_.micro_batches_per_step && *options_.micro_batches_per_step < 1)
      return invalid(concat("micro_batches_per_step is ",
                            *options_.micro_batches_per_step, "; it takes 1 or more"));
    if (options_.overlap_sums && weights_ != WeightPolicy::kStash)
      return invalid(concat("overlap_sums is given, and weights is ", name_of(weights_),
                            "; it takes 1f1b_async with stash, where weights may be an "
                            "update older"));
    per_step_.assign(replicas_.size(), options_.micro_batches);
    return is_async ? set_per_step() : Status::ok();
  }

  Status set_per_step() {
    const int batches = options_.micro_batches;
    if (options_.micro_batches_per_step) {
      const int each = *options_.micro_batches_per_step;
      if (batches % each != 0)
        return invalid(concat("micro_batches is ", batches,
                              " and micro_batches_per_step is ", each,
                              ", which does not divide it; ",
                              multiples_around(batches, each), " such a number"));
      per_step_.assign(replicas_.size(), each);
    } else if (weights_ == WeightPolicy::kStash) {
      per_step_ = replicas_;
    } else {
      const int64_t each = weights_ == WeightPolicy::kVerticalSync
                               ? common_multiple()
                               : smallest_divisor_from(in_flight());
      if (batches % each != 0)
        return invalid(concat(
            "micro_batches is ", batches,
            "; with vertical_sync all stages take steps with the same "
            "micro-batches, and the smallest number that all replicas "
            "share alike is ",
            each, ", so it takes a multiple of that: ", multiples_around(batches, each),
            " one"));
      per_step_.assign(replicas_.size(), static_cast<int>(each));
    }
    for (size_t s = 0; s < replicas_.size(); ++s)
      if (batches % per_step_[s] != 0)
        return invalid(concat("micro_batches is ", batches, "; the ", replicas_[s],
                              " replicas of stage ", s,
                              " add up their gradients every ", per_step_[s],
                              " micro-batches, so it takes a multiple of that: ",
                              multiples_around(batches, per_step_[s]), " one"));
    if (weights_ == WeightPolicy::kTwoVersions && per_step_[0] < in_flight())
      return invalid(
          concat("an update takes ", per_step_[0], " micro-batches and ", in_flight(),
                 " are under way at a time, so they would need more than the "
                 "two versions of 2bw; micro_batches_per_step takes at least ",
                 in_flight(), ", and micro_batches a multiple of it"));
    return Status::ok();
  }

  int64_t common_multiple() const {
    int64_t each = 1;
    for (const int count : replicas_) {
      each = std::lcm(each, int64_t{count});
      if (each > options_.micro_batches) break;
    }
    return each;
  }

  int64_t smallest_divisor_from(int64_t least) const {
    int64_t divisor = std::min<int64_t>(least, options_.micro_batches);
    while (options_.micro_batches % divisor != 0) ++divisor;
    return divisor;
  }

  // Micro-batches in flight in all replicas of the first stage.
  int64_t in_flight() const { return int64_t{replicas_[0]} * (warmups_[0] + 1); }

  std::vector<Program> order(const Stages& stages) const {
    const int batches = options_.micro_batches;
    switch (options_.method) {
      case Method::kGpipe:
        return gpipe_order(stages, turns_, batches);
      case Method::kOneFOneB:
      case Method::kAsync:
        return one_f_one_b_order(stages, turns_, warmups_, batches);
      case Method::kInterleaved:
      case Method::kZeroBubble:
        break;
    }
    return interleaved_order(options_.stages / options_.stages_per_rank,
                             options_.stages_per_rank, batches,
                             options_.method == Method::kZeroBubble);
  }

  const GenerateOptions& options_;
  std::vector<int> replicas_, warmups_, per_step_;  // by stage
  Turns turns_;
  WeightPolicy weights_ = WeightPolicy::kFlush;
};

}  // namespace

std::string_view name_of(Method method) {
  return kMethods[static_cast<size_t>(method)];
}

Result<Method> method_named(std::string_view name) {
  for (size_t i = 0; i < kMethods.size(); ++i)
    if (kMethods[i] == name) return static_cast<Method>(i);
  return invalid(concat('"', printable(name.substr(0, 40)),
                        "\" is no schedule; there are gpipe, 1f1b, 1f1b_async, "
                        "interleaved_1f1b and zero_bubble"));
}

Result<Schedule> generate(const GenerateOptions& options) {
  return Generator(options).run();
}

}  // namespace aikido::pipeline

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "pipeline/validate.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <set>
#include <utility>

#include "pipeline/index.h"
#include "pipeline/rendezvous.h"

namespace aikido::pipeline {
namespace {

// Facts of the whole schedule about one micro-batch on one stage.
struct BatchFacts {
  int home = -1;     // rank that computes it
  int version = -1;  // version of its forward
  int update = 0;    // update that contains its gradient; 0: none yet
  bool is_recomputed = false;
};

// Progress of a rank with one micro-batch on one stage.
struct Progress {
  bool has_input = false, has_gradient = false;  // received
  bool forward = false, recomputed = false;
  bool backward = false;  // whole backward or its first half
  bool weights = false;   // all gradients of weights
  bool sent_output = false, sent_gradient = false;
};

// Weights of one stage on a rank.
struct Weights {
  int newest = 0;
  int reduced = 0;               // version that the last reduce is for
  std::set<int> kept;            // by push
  std::map<int, size_t> pushed;  // instruction of each push
  std::optional<size_t> open;    // last gradient that is in no update yet
  std::optional<size_t> last_reduce;

  int count() const { return static_cast<int>(kept.size() + 1 - kept.count(newest)); }
};

class Validator {
 public:
  Validator(const Schedule& schedule, const ValidateOptions& options)
      : schedule_(schedule), options_(options) {}

  Result<Validation> run() {
    AIKIDO_TRY(check_stages());
    AIKIDO_TRY(check_numbers());
    batches_.resize(index(schedule_.num_stages()) * index(schedule_.num_micro_batches));
    members_.resize(schedule_.stages.size());
    AIKIDO_TRY(survey());
    AIKIDO_TRY(check_complete());
    result_.ranks.resize(schedule_.ranks.size());
    for (int rank = 0; rank < schedule_.num_ranks(); ++rank) AIKIDO_TRY(walk(rank));
    AIKIDO_TRY(check_updates());
    AIKIDO_TRY(check_rendezvous(schedule_));
    measure_lags();
    return std::move(result_);
  }

 private:
  const Instruction& at(int rank, size_t i) const {
    return schedule_.ranks[index(rank)][i];
  }
  BatchFacts& batch(int stage, int micro_batch) {
    return batches_[index(stage) * index(schedule_.num_micro_batches) +
                    index(micro_batch)];
  }
  bool is_last(int stage) const { return stage + 1 == schedule_.num_stages(); }
  bool has_replicas(int stage) const {
    return schedule_.stages[index(stage)].size() > 1;
  }
  bool has(int rank, int stage) const {
    const auto& ranks = schedule_.stages[index(stage)];
    return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
  }

  Status refuse(int rank, std::string reason) const {
    return {Code::kInvalidArgument, std::move(reason), Rank{rank}};
  }
  template <class... Args>
  Status refuse_at(int rank, size_t i, const Args&... reason) const {
    return refuse(rank, concat(place_of(schedule_, rank, i), ": ", reason...));
  }

  Status check_stages() const {
    if (schedule_.num_micro_batches < 1)
      return {Code::kInvalidArgument,
              concat("the schedule has ", schedule_.num_micro_batches,
                     " micro-batches; it needs 1 or more")};
    if (schedule_.stages.empty())
      return {Code::kInvalidArgument, "the schedule has no stages; it needs 1 or more"};
    for (int s = 0; s < schedule_.num_stages(); ++s) {
      const auto& ranks = schedule_.stages[index(s)];
      if (ranks.empty())
        return {Code::kInvalidArgument, concat("no rank has stage ", s)};
      for (size_t i = 0; i < ranks.size(); ++i) {
        if (ranks[i] < 0 || ranks[i] >= schedule_.num_ranks())
          return {Code::kInvalidArgument,
                  concat("stage ", s, " is on rank ", ranks[i], ", and there are ",
                         schedule_.num_ranks(), " ranks, from 0 on")};
        if (std::count(ranks.begin(), ranks.end(), ranks[i]) > 1)
          return {Code::kInvalidArgument,
                  concat("stage ", s, " is on rank ", ranks[i], " twice")};
      }
    }
    return Status::ok();
  }

  // Checks the ranges of numbers before they are used as indices.
  Status check_numbers() const {
    size_t forwards = 0;
    for (int rank = 0; rank < schedule_.num_ranks(); ++rank)
      for (size_t i = 0; i < schedule_.ranks[index(rank)].size(); ++i) {
        AIKIDO_TRY(check_numbers_of(rank, i));
        if (at(rank, i).kind == Opcode::kForward) ++forwards;
      }
    const size_t needed =
        index(schedule_.num_stages()) * index(schedule_.num_micro_batches);
    // If only a few are missing, another check has a better text, with the instruction.
    if (forwards < needed / 2)
      return {Code::kInvalidArgument,
              concat(schedule_.num_micro_batches, " micro-batches on ",
                     schedule_.num_stages(), " stages need ", needed,
                     " forwards, and the ranks have ", forwards)};
    return Status::ok();
  }

  Status check_numbers_of(int rank, size_t i) const {
    const Instruction& it = at(rank, i);
    if (it.stage < 0 || it.stage >= schedule_.num_stages())
      return refuse_at(rank, i, "there is no stage ", it.stage, "; there are ",
                       schedule_.num_stages(), ", from 0 on");
    if (!has(rank, it.stage))
      return refuse_at(rank, i, "the rank does not have stage ", it.stage);
    if ((is_compute(it.kind) || is_message(it.kind)) &&
        (it.micro_batch < 0 || it.micro_batch >= schedule_.num_micro_batches))
      return refuse_at(rank, i, "there is no micro-batch ", it.micro_batch,
                       "; there are ", schedule_.num_micro_batches, ", from 0 on");
    if (is_message(it.kind)) {
      if (it.peer < 0 || it.peer >= schedule_.num_ranks())
        return refuse_at(rank, i, "there is no rank ", it.peer, "; there are ",
                         schedule_.num_ranks(), ", from 0 on");
      if (it.peer == rank)
        return refuse_at(rank, i, "a rank needs no message to itself");
    } else if (it.version < 0) {
      return refuse_at(rank, i, "there is no version ", it.version,
                       "; they count from 0");
    }
    return Status::ok();
  }

  // Collects the rank, version and update of each micro-batch.
  Status survey() {
    for (int rank = 0; rank < schedule_.num_ranks(); ++rank) {
      std::map<int, int> updates;  // closed, by stage
      for (size_t i = 0; i < schedule_.ranks[index(rank)].size(); ++i) {
        const Instruction& it = at(rank, i);
        const Opcode closing = has_replicas(it.stage) ? Opcode::kReduce : Opcode::kStep;
        if (it.kind == closing) ++updates[it.stage];
        if (!is_compute(it.kind)) continue;
        BatchFacts& of = batch(it.stage, it.micro_batch);
        if (it.kind == Opcode::kForward) {
          if (of.home >= 0)
            return refuse_at(rank, i, "rank ", of.home, " does this forward, too");
          of.home = rank;
          of.version = it.version;
        } else if (it.kind == Opcode::kRecompute) {
          of.is_recomputed = true;
        } else if (it.kind != Opcode::kInputGradient && of.update == 0) {
          of.update = updates[it.stage] + 1;
          auto& members = members_[index(it.stage)];
          members[of.update].push_back(it.micro_batch);
        }
      }
    }
    return Status::ok();
  }

  // Each stage does each micro-batch. The text names an instruction that needs the
  // missing one, if there is one.
  Status check_complete() const {
    const auto missing = std::find_if(batches_.begin(), batches_.end(),
                                      [](const BatchFacts& of) { return of.home < 0; });
    if (missing == batches_.end()) return Status::ok();
    const auto [stage, micro_batch] = std::div(
        static_cast<int>(missing - batches_.begin()), schedule_.num_micro_batches);
    for (const int rank : schedule_.stages[index(stage)])
      for (size_t i = 0; i < schedule_.ranks[index(rank)].size(); ++i)
        if (at(rank, i).stage == stage && at(rank, i).micro_batch == micro_batch)
          return refuse_at(rank, i, "no rank does the forward of micro-batch ",
                           micro_batch, " of stage ", stage);
    return refuse(
        schedule_.stages[index(stage)][0],
        concat("no rank of stage ", stage, " does micro-batch ", micro_batch));
  }

  // Checks a rank's list alone.
  Status walk(int rank) {
    walk_ = {};
    const auto& program = schedule_.ranks[index(rank)];
    for (int stage = 0; stage < schedule_.num_stages(); ++stage)
      if (has(rank, stage)) ++walk_.versions;
    for (size_t i = 0; i < program.size(); ++i) {
      const Opcode kind = program[i].kind;
      Weights& weights = walk_.weights[program[i].stage];
      walk_.versions -= weights.count();
      AIKIDO_TRY(is_message(kind)   ? message(rank, i)
                 : is_compute(kind) ? compute(rank, i)
                                    : change_weights(rank, i, weights));
      walk_.versions += weights.count();
      AIKIDO_TRY(measure_memory(rank, i));
    }
    for (const auto& [stage, weights] : walk_.weights) {
      if (weights.open)
        return refuse_at(rank, *weights.open, "its gradient is in no update: no ",
                         has_replicas(stage) ? "reduce" : "step", " of stage ", stage,
                         " follows");
      if (weights.reduced > weights.newest)
        return refuse_at(rank, *weights.last_reduce, "no step follows");
      if (!weights.kept.empty())
        return refuse_at(rank, weights.pushed.at(*weights.kept.begin()),
                         "no pop of this version follows");
    }
    for (const auto& [key, done] : walk_.progress) {
      const auto& [stage, micro_batch] = key;
      if (done.weights) continue;
      for (size_t i = program.size(); i-- > 0;)
        if (program[i].stage == stage && program[i].micro_batch == micro_batch)
          return refuse_at(rank, i, "no ",
                           done.backward ? "weight gradient" : "backward", " of stage ",
                           stage, ", micro-batch ", micro_batch, " follows");
    }
    return Status::ok();
  }

  Progress& progress(int stage, int micro_batch) {
    return walk_.progress[{stage, micro_batch}];
  }
  // True if another stage on this rank has done it, for a micro-batch of this rank.
  bool is_done_here(int rank, int stage, int micro_batch, bool Progress::*what) {
    return batch(stage, micro_batch).home == rank && progress(stage, micro_batch).*what;
  }

  Status message(int rank, size_t i) {
    const Instruction& it = at(rank, i);
    const bool is_activation =
        it.kind == Opcode::kSendActivation || it.kind == Opcode::kReceiveActivation;
    const bool goes_up = is_activation == is_send(it.kind);  // other end: stage + 1
    if (goes_up ? is_last(it.stage) : it.stage == 0)
      return refuse_at(rank, i, "there is no stage ", goes_up ? "after" : "before",
                       " stage ", it.stage);
    const int other = goes_up ? it.stage + 1 : it.stage - 1;
    if (batch(it.stage, it.micro_batch).home != rank)
      return refuse_at(rank, i, "the rank does not do micro-batch ", it.micro_batch,
                       " of stage ", it.stage);
    const int home = batch(other, it.micro_batch).home;
    if (home != it.peer)
      return refuse_at(rank, i, "rank ", home, " does micro-batch ", it.micro_batch,
                       " of stage ", other, ", not rank ", it.peer);
    Progress& done = progress(it.stage, it.micro_batch);
    if (is_send(it.kind)) {
      if (!(is_activation ? done.forward : done.backward))
        return refuse_at(rank, i, "it is sent before it is computed");
      bool& sent = is_activation ? done.sent_output : done.sent_gradient;
      if (sent) return refuse_at(rank, i, "it was sent before");
      sent = true;
      return Status::ok();
    }
    bool& has = is_activation ? done.has_input : done.has_gradient;
    if (has) return refuse_at(rank, i, "it was received before");
    has = true;
    return Status::ok();
  }

  Status compute(int rank, size_t i) {
    const Instruction& it = at(rank, i);
    Progress& done = progress(it.stage, it.micro_batch);
    if (it.kind == Opcode::kForward) {
      AIKIDO_TRY(check_input(rank, i, done));
    } else {
      if (!done.forward)
        return refuse_at(rank, i, "no forward of it on this rank is before it");
      AIKIDO_TRY(check_backward(rank, i, done));
    }
    AIKIDO_TRY(check_version(rank, i));
    switch (it.kind) {
      case Opcode::kForward:
        done.forward = true;
        break;
      case Opcode::kRecompute:
        done.recomputed = true;
        break;
      case Opcode::kInputGradient:
        done.backward = true;
        break;
      default:
        done.backward = done.weights = true;
        walk_.weights[it.stage].open = i;
    }
    return Status::ok();
  }

  Status check_input(int rank, size_t i, const Progress& done) {
    const Instruction& it = at(rank, i);
    if (it.stage == 0 || done.has_input ||
        is_done_here(rank, it.stage - 1, it.micro_batch, &Progress::forward))
      return Status::ok();
    return refuse_at(rank, i, "its input is neither received nor computed before");
  }

  Status check_backward(int rank, size_t i, const Progress& done) {
    const Instruction& it = at(rank, i);
    const bool is_weights = it.kind == Opcode::kWeightGradient;
    if (is_weights ? done.weights : done.backward)
      return refuse_at(rank, i, "its backward was before");
    if (is_weights && !done.backward)
      return refuse_at(rank, i, "no input gradient of it is before it");
    if (it.kind == Opcode::kRecompute) {
      if (done.recomputed) return refuse_at(rank, i, "it was recomputed before");
      return Status::ok();
    }
    if (!is_weights && batch(it.stage, it.micro_batch).is_recomputed &&
        !done.recomputed)
      return refuse_at(rank, i, "it is recomputed only after its backward");
    if (is_weights || is_last(it.stage) || done.has_gradient ||
        is_done_here(rank, it.stage + 1, it.micro_batch, &Progress::backward))
      return Status::ok();
    return refuse_at(
        rank, i, "the gradient of its output is neither received nor computed before");
  }

  Status check_version(int rank, size_t i) {
    const Instruction& it = at(rank, i);
    const BatchFacts& of = batch(it.stage, it.micro_batch);
    const Weights& weights = walk_.weights[it.stage];
    if (it.version > weights.newest)
      return refuse_at(rank, i, "version ", it.version,
                       " is not made yet; the newest is ", weights.newest);
    if (it.version != weights.newest && !weights.kept.contains(it.version))
      return refuse_at(rank, i, "version ", it.version, " is gone; the newest is ",
                       weights.newest, " and no push has kept the other");
    if (it.version != of.version)
      return refuse_at(rank, i, "its forward took version ", of.version);
    if (it.kind != Opcode::kForward) return Status::ok();
    const int wanted = version_of_policy(it, of, weights.newest);
    if (it.version != wanted)
      return refuse_at(rank, i, "with weights ", name_of(schedule_.weights),
                       " it takes version ", wanted);
    return Status::ok();
  }

  int version_of_policy(const Instruction& it, const BatchFacts& of, int newest) {
    switch (schedule_.weights) {
      case WeightPolicy::kFlush:
        return std::max(0, of.update - 1);
      case WeightPolicy::kVerticalSync:
        return it.stage == 0 ? newest : batch(0, it.micro_batch).version;
      case WeightPolicy::kTwoVersions:
        return std::max(0, of.update - 2);
      case WeightPolicy::kStash:
        break;
    }
    return newest;
  }

  Status change_weights(int rank, size_t i, Weights& weights) {
    const Instruction& it = at(rank, i);
    switch (it.kind) {
      case Opcode::kReduce:
        if (!has_replicas(it.stage))
          return refuse_at(rank, i, "stage ", it.stage,
                           " is on one rank, so there is nothing to add up");
        if (it.version != weights.newest + 1 || weights.reduced >= it.version)
          return refuse_at(rank, i, "the newest version is ", weights.newest,
                           weights.reduced > weights.newest
                               ? " and gradients for the next are reduced already"
                               : concat(", so it makes ", weights.newest + 1));
        weights.reduced = it.version;
        weights.last_reduce = i;
        weights.open.reset();
        return Status::ok();
      case Opcode::kStep:
        if (it.version != weights.newest + 1)
          return refuse_at(rank, i, "the newest version is ", weights.newest,
                           ", so it makes ", weights.newest + 1);
        if (has_replicas(it.stage) && weights.reduced != it.version)
          return refuse_at(rank, i, "no reduce for this version is before it");
        if (!has_replicas(it.stage)) weights.open.reset();
        weights.newest = it.version;
        return check_versions_kept(rank, i, weights);
      case Opcode::kPush:
        if (schedule_.weights == WeightPolicy::kFlush)
          return refuse_at(rank, i, "with weights flush no version is kept");
        if (it.version != weights.newest)
          return refuse_at(rank, i, "only the newest version can be kept, which is ",
                           weights.newest);
        if (!weights.kept.insert(it.version).second)
          return refuse_at(rank, i, "this version is kept already");
        weights.pushed[it.version] = i;
        return Status::ok();
      default:
        if (weights.kept.erase(it.version) == 0)
          return refuse_at(rank, i, "this version is not kept");
        return Status::ok();
    }
  }

  Status check_versions_kept(int rank, size_t i, const Weights& weights) const {
    if (schedule_.weights == WeightPolicy::kTwoVersions && weights.count() > 2)
      return refuse_at(rank, i, "it makes ", weights.count(),
                       " versions on this rank; 2bw keeps 2");
    return Status::ok();
  }

  Status measure_memory(int rank, size_t i) {
    const Instruction& it = at(rank, i);
    RankMemory& most = result_.ranks[index(rank)];
    const bool is_recomputed =
        is_compute(it.kind) && batch(it.stage, it.micro_batch).is_recomputed;
    if (it.kind == Opcode::kForward)
      ++(is_recomputed ? walk_.inputs : walk_.activations);
    if (it.kind == Opcode::kRecompute) {
      --walk_.inputs;
      ++walk_.activations;
    }
    most.activations = std::max(most.activations, walk_.activations);
    most.inputs = std::max(most.inputs, walk_.inputs);
    if (options_.max_activations && walk_.activations > *options_.max_activations)
      return refuse_at(rank, i, "the rank holds activations of ", walk_.activations,
                       " micro-batches here; the limit is ", *options_.max_activations);
    if (it.kind == Opcode::kBackward || it.kind == Opcode::kWeightGradient)
      --walk_.activations;
    most.versions = std::max(most.versions, walk_.versions);
    return Status::ok();
  }

  Status check_updates() {
    for (int rank = 0; rank < schedule_.num_ranks(); ++rank)
      for (size_t i = 0; i < schedule_.ranks[index(rank)].size(); ++i) {
        const Instruction& it = at(rank, i);
        if (it.kind == Opcode::kStep && !members_[index(it.stage)].contains(it.version))
          return refuse_at(rank, i, "no micro-batch is in this update");
        if (it.kind != Opcode::kBackward && it.kind != Opcode::kWeightGradient)
          continue;
        const int here = batch(it.stage, it.micro_batch).update;
        const int first = batch(0, it.micro_batch).update;
        if (schedule_.weights != WeightPolicy::kStash && here != first)
          return refuse_at(rank, i, "its gradient is in update ", here,
                           " here and in update ", first, " on stage 0; with weights ",
                           name_of(schedule_.weights), " they are the same");
      }
    return Status::ok();
  }

  void measure_lags() {
    for (int s = 0; s < schedule_.num_stages(); ++s) {
      auto& lags = result_.lags.emplace_back();
      for (const auto& [update, micro_batches] : members_[index(s)]) {
        int oldest = update - 1;
        for (const int b : micro_batches)
          oldest = std::min(oldest, batch(s, b).version);
        lags.push_back(update - 1 - oldest);
      }
    }
  }

  struct Walk {
    std::map<std::pair<int, int>, Progress> progress;  // by stage and micro-batch
    std::map<int, Weights> weights;                    // by stage
    int activations = 0, inputs = 0, versions = 0;     // held now
  };

  const Schedule& schedule_;
  const ValidateOptions& options_;
  std::vector<BatchFacts> batches_;
  std::vector<std::map<int, std::vector<int>>> members_;  // micro-batches, by update
  Walk walk_;  // state of the rank being checked
  Validation result_;
};

}  // namespace

Result<Validation> validate(const Schedule& schedule, const ValidateOptions& options) {
  return Validator(schedule, options).run();
}

}  // namespace aikido::pipeline

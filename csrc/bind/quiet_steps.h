// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Steps of a training loop in which nothing is due except the sums of the gradients
// (our design).
//
// Note [quiet steps]
// In most steps of a training nobody is late, and no message has arrived. Then the
// Python part of a handle (aikido_torch/ddp/_handle.py) has nothing to do. To find that
// out takes it about 0.2 ms of processor time per step, because its code leaves the
// caches between two steps. So after a step that it has handled itself, it allows a
// number of quiet steps. In a quiet step, the hook and the top of the loop run here:
// they start the sums, record the step, and check whether anything has arrived. If
// something has, or the allowed steps are over, Python takes the record and goes on as
// if it had handled these steps itself. Only the audit (_step_audit.py) runs in some of
// the quiet steps.

#include <pybind11/pybind11.h>
#include <torch/csrc/distributed/c10d/comm.hpp>

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "bind/step_weight.h"
#include "c10d/aikido_backend.h"

namespace aikido::bind {

// For the thread that trains and the thread of its backward, unless a method says more.
class QuietSteps final : public std::enable_shared_from_this<QuietSteps> {
 public:
  using Backend = c10::intrusive_ptr<adapter::AikidoBackend>;
  using Work = c10::intrusive_ptr<::c10d::Work>;
  using Future = c10::intrusive_ptr<c10::ivalue::Future>;

  // A step that this object handled.
  struct Step {
    double ended_at = 0;  // time of its last bucket, in seconds of the steady clock
    std::vector<std::pair<c10::intrusive_ptr<adapter::AikidoWork>, int64_t>>
        sums;  // with the number of elements of each
  };
  // Steps that this object handled since the last take().
  struct Taken {
    std::vector<Step> steps;
    bool has_begun = false;  // the loop has begun another step since
  };
  struct Plan {
    int64_t first_step = 0;
    int64_t num_steps = 0;
    straggler::PolicyOptions policy;
    uint64_t num_buckets = 1;
    std::vector<Work> awaited;  // messages of other ranks
    int64_t look_each = 0;      // the audit looks at multiples of it; 0: at none
  };

  // `buckets` reduces the gradients, the loop makes its own calls on `calls`. Python:
  // `check()` raises why the training must not go on, if so; `rescue` as in
  // hook_future().
  QuietSteps(Backend buckets, Backend calls, pybind11::object check,
             pybind11::object rescue);
  // Call it before allow(). Python: `call(step)` is called at the end of the
  // backward of each quiet step that Plan::look_each selects. If `rates` is an
  // optimizer and not None, it is also called if the learning rates differ from those
  // at the last top of the loop.
  void look(pybind11::object call, pybind11::object rates);

  // The next steps are quiet, until the hook or pass_top() finds something to do.
  void allow(Plan plan);
  // The hook of a bucket, without Python's lock. Null: the step is not quiet.
  Future start(::c10d::GradBucket& bucket);
  // The top of the loop. False: there is something to do. Never blocks.
  bool pass_top();
  Taken take();
  // Before a step of the optimizer. True: it belongs to one quiet backward, and call()
  // of look() examines neither this step nor the next one. Then the backward counts as
  // counted.
  bool passes_update();
  // The last quiet step that has begun, -1 before the first one, and the backwards of
  // quiet steps since the last count.
  std::pair<int64_t, int64_t> count_backwards();

  // Weight of the means. The hook ends its step after a quiet step.
  const std::shared_ptr<StepWeight>& weight() const { return weight_; }

  // Any thread: no step is quiet while it is on, and check() is called at the end of a
  // backward that is under way.
  void set_alarm(bool is_on) { is_alarmed_ = is_on; }
  // Any thread: the number of the last quiet step that has begun, -1 before the first
  // one, and the calls of the loop before it.
  std::pair<int64_t, uint64_t> place() const { return {last_step_, num_calls_}; }

 private:
  bool may_begin() const;
  bool goes_on(bool is_quiet);
  bool has_come() const;
  c10::intrusive_ptr<adapter::AikidoWork> sum(
      const at::Tensor& buffer, std::shared_ptr<collectives::ResultSlot> slot);
  void queue_end_of_backward();
  void at_end_of_backward() const;
  bool is_looked_at() const {
    return look_ && (have_rates_changed_ || is_due(last_step_));
  }
  bool is_due(int64_t step) const {
    return plan_.look_each > 0 && step % plan_.look_each == 0;
  }

  const Backend buckets_, calls_;
  const std::shared_ptr<pybind11::object> check_, rescue_;
  const std::shared_ptr<StepWeight> weight_ = std::make_shared<StepWeight>();
  std::shared_ptr<pybind11::object> look_;       // null: there is no audit
  std::shared_ptr<pybind11::object> optimizer_;  // null: its rates are not watched
  std::optional<std::vector<double>> rates_;  // at the top of this step, if it passed
  bool have_rates_changed_ = false;
  const ::c10d::ReduceOp mean_{::c10d::ReduceOp::AVG};
  Plan plan_;
  Taken taken_;
  Step present_;
  bool is_in_step_ = false;
  int64_t num_left_ = 0;
  int64_t num_backwards_ = 0;  // since the last count
  std::atomic<int64_t> last_step_ = -1;
  std::atomic<uint64_t> num_calls_ = 0;
  std::atomic<bool> is_alarmed_ = false;
};

}  // namespace aikido::bind

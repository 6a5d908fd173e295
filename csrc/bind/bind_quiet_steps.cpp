// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
//
// Implementation of quiet_steps.h and its Python class.

#include <pybind11/stl.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/csrc/distributed/c10d/python_comm_hook.h>
#include <torch/csrc/distributed/c10d/reducer.hpp>

#include <algorithm>
#include <chrono>

#include "base/clock.h"
#include "bind/errors.h"
#include "bind/hook_work.h"
#include "bind/named_types.h"
#include "bind/quiet_steps.h"
#include "bind/register.h"

namespace aikido::bind {
namespace {

namespace py = pybind11;

constexpr char kCheck[] = "collections.abc.Callable[[], typing.Any]";
constexpr char kLook[] = "collections.abc.Callable[[int], typing.Any]";
constexpr char kRange[] = "range";
constexpr char kHook[] =
    "collections.abc.Callable[[typing.Any, torch._C._distributed_c10d.GradBucket], "
    "torch.futures.Future[torch.Tensor]]";
using Check = Named<py::function, kCheck>;
using Look = Named<py::function, kLook>;
using Range = Named<py::object, kRange>;
using Hook = Named<py::function, kHook>;

// When the last bucket of the step was started, and the sums with their sizes.
using Record =
    std::pair<double,
              std::vector<std::pair<c10::intrusive_ptr<adapter::AikidoWork>, int64_t>>>;

// The same clock as time.monotonic().
double seconds_now() {
  return to_seconds(SystemClock().now().time_since_epoch());
}

// Learning rates that are plain numbers, by parameter group.
std::vector<double> rates_of(const py::object& optimizer) {
  std::vector<double> rates;
  for (const py::handle group : optimizer.attr("param_groups")) {
    const py::object rate = group.attr("get")("lr");
    if (py::isinstance<py::float_>(rate)) rates.push_back(rate.cast<double>());
  }
  return rates;
}

// The error that is being handled, in the form in which torch's engine passes it to the
// thread that called the backward.
[[noreturn]] void rethrow_to_engine(py::error_already_set& raised) {
  raised.restore();
  python_error error;
  error.persist();
  throw std::move(error);
}

// The hook of a registered model. DistributedDataParallel takes the lock of Python for
// a hook in Python and converts the bucket and the future. In a quiet step none of that
// is needed.
class ReducerHook final : public ::c10d::CommHookInterface {
 public:
  ReducerHook(const std::shared_ptr<QuietSteps>& quiet, py::object state,
              py::object hook)
      : quiet_(quiet), in_python_(std::move(state), std::move(hook)) {}

  QuietSteps::Future runHook(::c10d::GradBucket& bucket) override {
    const std::shared_ptr<QuietSteps> quiet = quiet_.lock();
    QuietSteps::Future given = quiet ? quiet->start(bucket) : nullptr;
    return given ? given : run_in_python(bucket);
  }
  at::Tensor parseHookResult(const c10::IValue& result) override {
    return ::c10d::detail::parseCppCommHookResult(result);
  }

 private:
  QuietSteps::Future run_in_python(::c10d::GradBucket& bucket) {
    try {
      return in_python_.runHook(bucket);
    } catch (py::error_already_set& raised) {
      const py::gil_scoped_acquire lock;
      rethrow_to_engine(raised);
    }
  }

  // The reducer belongs to the model, which the handle with the quiet steps refers to.
  const std::weak_ptr<QuietSteps> quiet_;
  ::c10d::PythonCommHook in_python_;
};

}  // namespace

QuietSteps::QuietSteps(Backend buckets, Backend calls, py::object check,
                       py::object rescue)
    : buckets_(std::move(buckets)),
      calls_(std::move(calls)),
      check_(shared(std::move(check))),
      rescue_(shared(std::move(rescue))) {}

void QuietSteps::look(py::object call, py::object rates) {
  look_ = shared(std::move(call));
  if (!rates.is_none()) optimizer_ = shared(std::move(rates));
}

void QuietSteps::allow(Plan plan) {
  plan_ = std::move(plan);
  rates_.reset();
  have_rates_changed_ = false;
  num_calls_ = calls_->communicator()->num_calls();
  num_left_ = plan_.num_steps;
}

// If the loop makes calls on its group, the handle must learn about them.
bool QuietSteps::may_begin() const {
  return num_left_ > 0 && !is_alarmed_ &&
         calls_->communicator()->num_calls() == num_calls_;
}

bool QuietSteps::goes_on(bool is_quiet) {
  if (!is_quiet) num_left_ = 0;
  return is_quiet;
}

QuietSteps::Future QuietSteps::start(::c10d::GradBucket& bucket) {
  if (bucket.getIndex() == 0) {
    is_in_step_ = goes_on(may_begin());
    present_ = {};  // a call of the previous step may have thrown
    if (is_in_step_) weight_->begin_step();
    if (is_in_step_) last_step_ = plan_.first_step + plan_.num_steps - num_left_;
  }
  if (!is_in_step_) return {};
  const at::Tensor& buffer = bucket.getBufferRef();
  // DistributedDataParallel copies the gradients out of any tensor that a hook gives it.
  // So it can read the memory in which the group keeps the result for late ranks.
  auto slot = std::make_shared<collectives::ResultSlot>();
  const auto work = sum(buffer, slot);
  present_.sums.emplace_back(work, buffer.numel());
  Future given = hook_future(work, buffer, std::move(slot), rescue_);
  if (!bucket.isLast()) return given;
  weight_->end_step();
  if (const auto rates = std::exchange(rates_, std::nullopt)) {
    const py::gil_scoped_acquire lock;
    have_rates_changed_ = rates_of(*optimizer_) != *rates;
  } else {
    have_rates_changed_ = false;
  }
  present_.ended_at = seconds_now();
  taken_.steps.push_back(std::exchange(present_, {}));
  taken_.has_begun = false;
  ++num_backwards_;
  --num_left_;
  queue_end_of_backward();
  return given;
}

// A refused call raises the class of errors that it raises in a call of Python.
c10::intrusive_ptr<adapter::AikidoWork> QuietSteps::sum(
    const at::Tensor& buffer, std::shared_ptr<collectives::ResultSlot> slot) {
  try {
    return buckets_->allreduce_with(
        buffer, mean_,
        {plan_.policy, Priority{}, straggler::kAnyDataShard, weight_->value(),
         std::move(slot)},
        std::chrono::milliseconds(-1));
  } catch (...) {
    std::rethrow_exception(as_python_error(std::current_exception()));
  }
}

// DistributedDataParallel waits for its futures in a callback that it queues after its
// last hook. The callback here must run after it, so a first callback queues it.
void QuietSteps::queue_end_of_backward() {
  if (torch::autograd::get_current_graph_task_id() < 0) return;
  torch::autograd::Engine& engine = torch::autograd::Engine::get_default_engine();
  engine.queue_callback([self = shared_from_this(), &engine] {
    engine.queue_callback([self] {
      if (self->is_alarmed_ || self->is_looked_at()) self->at_end_of_backward();
    });
  });
}

void QuietSteps::at_end_of_backward() const {
  const py::gil_scoped_acquire lock;
  try {
    if (is_alarmed_) (*check_)();
    if (is_looked_at()) (*look_)(last_step_.load());
  } catch (py::error_already_set& raised) {
    rethrow_to_engine(raised);
  }
}

bool QuietSteps::has_come() const {
  const uint64_t called = buckets_->called_ahead();
  const uint64_t ahead =
      std::max(buckets_->committed_ahead(), called > 0 ? called - 1 : uint64_t{0});
  return ahead >= plan_.num_buckets ||
         std::any_of(plan_.awaited.begin(), plan_.awaited.end(),
                     [](const Work& work) { return work->isCompleted(); });
}

bool QuietSteps::pass_top() {
  if (!goes_on(may_begin() && !has_come())) return false;
  taken_.has_begun = true;
  if (optimizer_) rates_ = rates_of(*optimizer_);
  return true;
}

QuietSteps::Taken QuietSteps::take() {
  return std::exchange(taken_, {});
}

bool QuietSteps::passes_update() {
  if (num_backwards_ != 1 || is_due(last_step_) || is_due(last_step_ + 1)) return false;
  num_backwards_ = 0;
  return true;
}

std::pair<int64_t, int64_t> QuietSteps::count_backwards() {
  return {last_step_, std::exchange(num_backwards_, 0)};
}

void register_quiet_steps(py::module_& m) {
  py::class_<QuietSteps, std::shared_ptr<QuietSteps>>(
      m, "QuietSteps",
      "Steps in which the gradients are summed without Python code of the handle.")
      .def(py::init<QuietSteps::Backend, QuietSteps::Backend, Check, Rescue>(),
           py::arg("buckets"), py::arg("calls"), py::arg("check"), py::arg("rescue"))
      .def(
          "allow",
          [](QuietSteps& self, const Range& steps,
             const straggler::PolicyOptions& policy, uint64_t num_buckets,
             std::vector<QuietSteps::Work> awaited, int64_t look_each) {
            self.allow({steps.attr("start").cast<int64_t>(),
                        static_cast<int64_t>(py::len(steps)), policy, num_buckets,
                        std::move(awaited), look_each});
          },
          py::arg("steps"), py::arg("policy"), py::arg("num_buckets"),
          py::arg("awaited"), py::arg("look_each"),
          "Allows these steps to be quiet, until the hook or pass_top() finds "
          "something "
          "to do. The call given to look() is made in steps whose number is a multiple "
          "of `look_each` (0: in none).")
      .def(
          "install",
          [](const std::shared_ptr<QuietSteps>& self,
             const std::shared_ptr<::c10d::Reducer>& reducer, py::object state,
             Hook hook) {
            reducer->register_comm_hook(
                std::make_unique<ReducerHook>(self, std::move(state), std::move(hook)));
          },
          py::arg("reducer"), py::arg("state"), py::arg("hook"),
          "Makes quiet steps run as the communication hook of `reducer`, once in its "
          "life. In all other steps the hook is hook(state, bucket). It must not keep "
          "the model alive, because the garbage collector does not see it.")
      .def(
          "pass_top", &QuietSteps::pass_top,
          "Begins a step of the loop. False: Python has something to do. Never blocks.")
      .def(
          "take",
          [](QuietSteps& self) {
            QuietSteps::Taken taken = self.take();
            std::vector<Record> steps;
            for (QuietSteps::Step& step : taken.steps)
              steps.emplace_back(step.ended_at, std::move(step.sums));
            return std::pair(std::move(steps), taken.has_begun);
          },
          "Removes and returns the quiet steps since the last take(), and True if the "
          "loop has begun another step. A step has the time at which its last bucket "
          "was started (time.monotonic()), and its sums with their numbers of "
          "elements.")
      .def(
          "look",
          [](QuietSteps& self, Look call, py::object rates) {
            self.look(std::move(call), std::move(rates));
          },
          py::arg("call"), py::arg("rates"),
          "Calls call(step) at the end of the backward of a quiet step in two cases. "
          "The step is one that `look_each` of allow() selects. Or the learning rates "
          "of the optimizer `rates` (None: not watched) have changed since the top of "
          "the loop. Call look() before allow().")
      .def_property_readonly(
          "weight", &QuietSteps::weight,
          "Weight of the gradients. A quiet step calls its end_step().")
      .def("set_alarm", &QuietSteps::set_alarm, py::arg("is_on"),
           "While it is on, no step is quiet, and `check` is called at the end of a "
           "backward that is in progress. Any thread.")
      .def("passes_update", &QuietSteps::passes_update,
           "Before a step of the optimizer. True: it belongs to one quiet backward, "
           "which then counts as counted, and neither this step nor the next one is "
           "examined.")
      .def("count_backwards", &QuietSteps::count_backwards,
           "The last quiet step that has begun (-1: none), and the number of quiet "
           "backwards since the last count.")
      .def("place", &QuietSteps::place,
           "The last quiet step that has begun (-1: none), and the calls of the loop "
           "before it. Any thread.");
}

}  // namespace aikido::bind

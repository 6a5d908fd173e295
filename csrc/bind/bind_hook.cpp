// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
//
// Works and futures of Python communication hooks for DistributedDataParallel.

#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/utils/pybind.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bind/errors.h"
#include "bind/hook_work.h"
#include "bind/register.h"

namespace aikido::bind {
namespace {

namespace py = pybind11;
using Future = c10::ivalue::Future;

// A tensor as a Python object, the only value that torch accepts from such a hook.
class TensorObject final : public c10::ivalue::PyObjectHolder {
 public:
  // Requires: Python's lock.
  explicit TensorObject(at::Tensor tensor)
      : tensor_(std::move(tensor)), object_(shared(py::cast(tensor_))) {}
  PyObject* getPyObject() override { return object_->ptr(); }
  c10::InferredType tryToInferType() override {
    return c10::InferredType(c10::TensorType::get());
  }
  c10::IValue toIValue(const c10::TypePtr&, std::optional<int32_t>) override {
    return tensor_;
  }
  std::string toStr() override { return tensor_.toString(); }
  std::vector<at::Tensor> extractTensors() override { return {tensor_}; }

 private:
  const at::Tensor tensor_;
  const std::shared_ptr<py::object> object_;
};

// Only a Work gives its future to Python with the class that torch accepts from a hook.
class WorkOfFuture final : public ::c10d::Work {
 public:
  explicit WorkOfFuture(c10::intrusive_ptr<Future> future)
      : future_(std::move(future)) {}
  c10::intrusive_ptr<Future> getFuture() override { return future_; }

 private:
  c10::intrusive_ptr<Future> future_;
};

// Requires: Python's lock.
bool is_rescued(const py::object& rescue, const py::handle& error) {
  try {
    return rescue(error).cast<bool>();
  } catch (py::error_already_set& raised) {
    raised.discard_as_unraisable("the rescue of a call that failed");
    return false;
  }
}

// Requires: `error` is a result of as_python_error().
bool is_rescued(const py::object& rescue, const std::exception_ptr& error) {
  const py::gil_scoped_acquire lock;
  try {
    std::rethrow_exception(error);
  } catch (const python_error& raised) {
    return is_rescued(rescue, py::handle(raised.value));
  } catch (...) {
    return false;  // no error that Python knows
  }
}

// DistributedDataParallel sleeps until the future is marked. It does so in a callback
// at the end of the backward, which it queues after its last hook. A callback from a
// hook usually runs before it, and helps. If the callback runs later, as in the first
// step with a static graph, another thread marks the future.
void help_before_the_end_of_backward(
    const c10::intrusive_ptr<adapter::AikidoWork>& work) {
  const bool is_in_backward = torch::autograd::get_current_graph_task_id() >= 0;
  if (!is_in_backward || !work->may_be_helped_here()) return;
  torch::autograd::Engine::get_default_engine().queue_callback(
      [work] { work->help_here(); });
}

// The result of a sum of tensors like `like`. It shares the memory, which its readers
// must not change.
at::Tensor tensor_of(collectives::ResultSlot& slot, const at::Tensor& like) {
  auto memory = std::exchange(slot.memory, nullptr);
  void* const data = const_cast<std::byte*>(memory.get());
  return at::from_blob(
      data, like.sizes(), [memory = std::move(memory)](void*) mutable { memory.reset(); },
      like.options());
}

// A callback in Python would replace the error of the work by another one. The work may
// be over and call back at once, so the caller does not have Python's lock.
c10::intrusive_ptr<Future> future_of(
    const c10::intrusive_ptr<adapter::AikidoWork>& work, c10::IValue value,
    const c10::TypePtr& type, std::shared_ptr<collectives::ResultSlot> slot,
    std::shared_ptr<py::object> rescue) {
  const auto from = work->getFuture();
  const auto to = c10::make_intrusive<Future>(type, from->devices());
  from->addCallback(
      [to, value = std::move(value), slot = std::move(slot),
       rescue = std::move(rescue)](Future& done) {
        if (!done.hasError()) {
          const bool is_in_slot = slot && slot->memory;
          return to->markCompleted(is_in_slot ? tensor_of(*slot, value.toTensor())
                                              : value);
        }
        const std::exception_ptr error = as_python_error(done.exception_ptr());
        if (!is_rescued(*rescue, error)) return to->setError(error);
        to->markCompleted(value);
      });
  help_before_the_end_of_backward(work);
  return to;
}

// A work whose future has `value` in the form that torch takes from a hook in Python.
c10::intrusive_ptr<::c10d::Work> hook_work(
    const c10::intrusive_ptr<adapter::AikidoWork>& work, const at::Tensor& value,
    std::shared_ptr<py::object> rescue) {
  const c10::intrusive_ptr<c10::ivalue::PyObjectHolder> object =
      c10::make_intrusive<TensorObject>(value);
  const py::gil_scoped_release unlocked;
  return c10::make_intrusive<WorkOfFuture>(future_of(
      work, c10::IValue(object), c10::PyObjectType::get(), nullptr, std::move(rescue)));
}

}  // namespace

std::shared_ptr<py::object> shared(py::object object) {
  return {new py::object(std::move(object)), [](py::object* last) {
            const py::gil_scoped_acquire lock;
            delete last;
          }};
}

c10::intrusive_ptr<Future> hook_future(
    const c10::intrusive_ptr<adapter::AikidoWork>& work, const at::Tensor& value,
    std::shared_ptr<collectives::ResultSlot> slot, std::shared_ptr<py::object> rescue) {
  return future_of(work, value, c10::TensorType::get(), std::move(slot),
                   std::move(rescue));
}

void register_hook(py::module_& m) {
  m.def(
      "hook_work",
      [](const c10::intrusive_ptr<adapter::AikidoWork>& work, const at::Tensor& value,
         Rescue rescue) { return hook_work(work, value, shared(std::move(rescue))); },
      py::arg("work"), py::arg("value"), py::arg("rescue"),
      "A work for a communication hook. When `work` has ended, its future has `value`. "
      "If `work` has failed, the future has the error, unless rescue(error) returns "
      "True.");
}

}  // namespace aikido::bind

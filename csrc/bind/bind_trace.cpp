// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include <pybind11/stl.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/utils/pybind.h>

#include <atomic>
#include <memory>

#include "bind/named_types.h"
#include "bind/register.h"
#include "collectives/call.h"
#include "trace/recorder.h"

namespace aikido::bind {
namespace {

namespace py = pybind11;
using trace::Recorder;

constexpr char kMemberEvent[] = "aikido_torch._rows.MemberEvent";
using MemberEvent = Named<py::dict, kMemberEvent>;

// The spans as they are in memory. Python reads them without copying each
// (trace/record/_dump.py).
std::tuple<py::bytes, uint64_t, std::vector<std::string>> take(Recorder& recorder) {
  Recorder::Taken taken;
  {
    const py::gil_scoped_release release;
    taken = recorder.take();
  }
  const auto* data = reinterpret_cast<const char*>(taken.spans.data());
  return {py::bytes(data, taken.spans.size() * sizeof(trace::Span)), taken.num_dropped,
          std::move(taken.names)};
}

void section(Recorder& recorder, uint16_t name, int64_t begin_ns, int64_t end_ns,
             int64_t step, uint64_t number, int32_t peer) {
  trace::Span span;
  span.kind = trace::SpanKind::kSection;
  span.name = name;
  span.begin_ns = begin_ns;
  span.end_ns = end_ns;
  span.step = step;
  span.number = number;
  span.peer = peer;
  recorder.record(span);
}

void took_over(Recorder& recorder, const std::string& group, int32_t rank,
               int32_t owner) {
  trace::Event event;
  event.kind = trace::EventKind::kTookOver;
  event.group = group;
  event.self = Rank(rank);
  event.member = Rank(owner);
  event.by = {rank};
  recorder.event_log().add(std::move(event));
}

bool next_step(Recorder& recorder) {
  recorder.set_step(recorder.step() + 1);
  return recorder.is_armed();
}

// Section for the backward of a step. In C++, because Python code in the middle of a
// step takes several times as long as in a loop: its data is not in the caches. Hooks
// of outputs may run in any thread, without Python's lock.
class BackwardWatch {
 public:
  BackwardWatch(std::shared_ptr<Recorder> recorder, uint16_t name)
      : recorder_(std::move(recorder)),
        name_(name),
        begun_(std::make_shared<std::atomic<int64_t>>(0)) {}

  // Requires: `output` requires a gradient.
  void add(const at::Tensor& output) const {
    output.register_hook([*this](const at::Tensor&) { on_gradient(); });
  }

  // No backward is in progress any more, even if one has thrown and does not end.
  void end_step() const { begun_->store(0); }

 private:
  void on_gradient() const {
    int64_t before = 0;
    if (!recorder_->is_armed() ||
        !begun_->compare_exchange_strong(before, trace::to_ns(recorder_->now())))
      return;
    // Called when all gradients of this rank are computed; reductions may still go on.
    torch::autograd::Engine::get_default_engine().queue_callback([self = *this] {
      const int64_t begun = self.begun_->exchange(0);
      if (begun == 0) return;  // the step has already ended
      section(*self.recorder_, self.name_, begun, trace::to_ns(self.recorder_->now()),
              self.recorder_->step(), 0, -1);
    });
  }

  std::shared_ptr<Recorder> recorder_;
  uint16_t name_;
  // Nanoseconds; 0: no backward is in progress. Shared by all copies.
  std::shared_ptr<std::atomic<int64_t>> begun_;
};

std::vector<MemberEvent> events(Recorder& recorder, uint64_t after) {
  std::vector<MemberEvent> out;
  for (const trace::Event& event : recorder.event_log().after(after)) {
    MemberEvent each;
    each["number"] = event.number;
    each["kind"] = trace::name_of(event.kind);
    each["group"] = event.group;
    each["rank"] = event.self.value;
    each["member"] = event.member.value;
    each["by"] = event.by;
    each["text"] = event.text;
    out.push_back(each);
  }
  return out;
}

std::map<int, std::string> operation_names() {
  using collectives::CallKind;
  std::map<int, std::string> names;
  for (auto kind = static_cast<int>(CallKind::kAllreduce);
       kind <= static_cast<int>(CallKind::kSparseAllreduce); ++kind)
    names[kind] = collectives::name_of(static_cast<CallKind>(kind));
  return names;
}

}  // namespace

void register_trace(py::module_& m) {
  py::class_<Recorder, std::shared_ptr<Recorder>>(
      m, "Recorder", "Records the calls and steps of a process while it is armed.")
      .def(py::init<size_t>(), py::arg("spans_per_thread") = Recorder::kSpansPerThread)
      .def("arm", &Recorder::arm, "Records from now on, until disarm().")
      .def("arm_steps", &Recorder::arm_steps, py::arg("first"), py::arg("last"),
           "Records the steps from `first` to `last`, both included.")
      .def("disarm", &Recorder::disarm)
      .def_property_readonly("is_armed", &Recorder::is_armed)
      .def_property_readonly("step", &Recorder::step,
                             "The present step of the training loop.")
      .def("set_step", &Recorder::set_step, py::arg("step"))
      .def("next_step", &next_step,
           "Begins the next step. Returns True if it is recorded.")
      .def("name", &Recorder::name, py::arg("text"),
           "Returns the number that stands for a name in spans.")
      .def("section", &section, py::arg("name"), py::arg("begin_ns"), py::arg("end_ns"),
           py::arg("step"), py::arg("number") = 0, py::arg("peer") = -1,
           "Records a section of a step. Times are those of time.monotonic_ns(). "
           "`number` and `peer` are the label and the owner of a micro-batch that was "
           "taken over.")
      .def("took_over", &took_over, py::arg("group"), py::arg("rank"), py::arg("owner"),
           "Adds an event: `rank` computes a micro-batch of `owner`.")
      .def("take", &take,
           "Removes and returns everything recorded: the spans as they are in memory, "
           "the number of dropped spans, and the names by their numbers.")
      .def("events", &events, py::arg("after"),
           "Events of members of groups with a number above `after`. They are recorded "
           "even if the recorder is not armed.");
  py::class_<BackwardWatch>(
      m, "BackwardWatch",
      "Records each backward pass, from the first gradient of an output to the end.")
      .def(py::init<std::shared_ptr<Recorder>, uint16_t>(), py::arg("recorder"),
           py::arg("name"))
      .def("add", &BackwardWatch::add, py::arg("output"),
           "Watches an output of the model. Requires: it requires a gradient.")
      .def("end_step", &BackwardWatch::end_step,
           "Ends the step. A backward that has not ended is not recorded.");
  m.def("operation_names", &operation_names,
        "Names of the kinds of collectives, by their numbers in spans.");
}

}  // namespace aikido::bind

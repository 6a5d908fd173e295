// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include <torch/csrc/utils/pybind.h>

#include <pybind11/stl.h>

#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "bind/register.h"
#include "bind/values.h"
#include "c10d/common/error.h"
#include "pipeline/generate.h"
#include "pipeline/grid.h"
#include "pipeline/simulate.h"
#include "pipeline/validate.h"

namespace aikido::bind {
namespace {

namespace py = pybind11;
using pipeline::BusySpan;
using pipeline::Instruction;
using pipeline::RankMemory;
using pipeline::Schedule;
using pipeline::Simulation;
using pipeline::StageTimes;
using pipeline::Validation;

}  // namespace

template <>
struct Fields<Instruction> {
  static constexpr auto members =
      std::tuple(&Instruction::kind, &Instruction::stage, &Instruction::micro_batch,
                 &Instruction::version, &Instruction::peer);
};

template <>
struct Fields<Schedule> {
  static constexpr auto members =
      std::tuple(&Schedule::name, &Schedule::num_micro_batches, &Schedule::weights,
                 &Schedule::stages, &Schedule::ranks);
};

template <>
struct Fields<RankMemory> {
  static constexpr auto members =
      std::tuple(&RankMemory::activations, &RankMemory::inputs, &RankMemory::versions);
};

template <>
struct Fields<Validation> {
  static constexpr auto members = std::tuple(&Validation::ranks, &Validation::lags);
};

template <>
struct Fields<BusySpan> {
  static constexpr auto members = std::tuple(&BusySpan::rank, &BusySpan::instruction,
                                             &BusySpan::begin, &BusySpan::end);
};

template <>
struct Fields<Simulation> {
  static constexpr auto members =
      std::tuple(&Simulation::makespan, &Simulation::busy, &Simulation::bubbles,
                 &Simulation::spans, &Simulation::period);
};

template <>
struct Fields<StageTimes> {
  static constexpr auto members =
      std::tuple(&StageTimes::forward, &StageTimes::backward,
                 &StageTimes::input_gradient, &StageTimes::weight_gradient,
                 &StageTimes::recompute, &StageTimes::reduce, &StageTimes::step);
};

namespace {

Schedule make_schedule(const std::string& name, int stages, int micro_batches,
                       std::vector<int> replicas, int stages_per_rank,
                       const std::optional<std::string>& weights,
                       std::optional<int> micro_batches_per_step,
                       std::vector<std::vector<int>> turns, std::vector<int> warmups,
                       bool recompute, bool overlap_sums) {
  pipeline::GenerateOptions options;
  options.method = adapter::value_or_raise(pipeline::method_named(name));
  options.stages = stages;
  options.micro_batches = micro_batches;
  options.replicas = std::move(replicas);
  options.stages_per_rank = stages_per_rank;
  if (weights)
    options.weights = adapter::value_or_raise(pipeline::weight_policy_named(*weights));
  options.micro_batches_per_step = micro_batches_per_step;
  options.turns = std::move(turns);
  options.warmups = std::move(warmups);
  options.recompute = recompute;
  options.overlap_sums = overlap_sums;
  const auto made = [&] {
    const py::gil_scoped_release release;
    return pipeline::generate(options);
  };
  return adapter::value_or_raise(made());
}

Validation validate(const Schedule& schedule, std::optional<int> max_activations) {
  const auto made = [&] {
    const py::gil_scoped_release release;
    return pipeline::validate(schedule, {max_activations});
  };
  return adapter::value_or_raise(made());
}

Simulation simulate_schedule(const Schedule& schedule, std::vector<StageTimes> stages,
                             std::vector<double> links, std::vector<double> slowdown) {
  const auto made = [&] {
    const py::gil_scoped_release release;
    return pipeline::simulate(
        schedule, {std::move(stages), std::move(links), std::move(slowdown)});
  };
  return adapter::value_or_raise(made());
}

std::optional<int> unless_negative(int number) {
  return number < 0 ? std::nullopt : std::optional(number);
}

void register_instruction(py::module_& m) {
  py::class_<Instruction> instruction(
      m, "Instruction",
      "One item of the work of a rank of a pipeline. csrc/pipeline/instruction.h has "
      "the text form.");
  make_value(instruction);
  instruction
      .def_property_readonly(
          "kind", [](const Instruction& it) { return std::string(name_of(it.kind)); })
      .def_readonly("stage", &Instruction::stage)
      .def_property_readonly(
          "micro_batch",
          [](const Instruction& it) { return unless_negative(it.micro_batch); })
      .def_property_readonly(
          "version", [](const Instruction& it) { return unless_negative(it.version); })
      .def_property_readonly(
          "peer", [](const Instruction& it) { return unless_negative(it.peer); })
      .def("text", [](const Instruction& it) { return pipeline::to_text(it); })
      .def("__repr__", [](const Instruction& it) {
        return concat("<Instruction ", pipeline::to_text(it), ">");
      });
}

void register_schedule_results(py::module_& m) {
  py::class_<RankMemory> memory(
      m, "RankMemory",
      "Largest amounts that a rank holds at one time: micro-batches with activations, "
      "micro-batches that are recomputed and of which only the input is kept, versions "
      "of weights.");
  make_value(memory);
  memory.def_readonly("activations", &RankMemory::activations)
      .def_readonly("inputs", &RankMemory::inputs)
      .def_readonly("versions", &RankMemory::versions);
  py::class_<Validation> validation(
      m, "Validation",
      "Memory of a valid schedule, by rank. `lags`, by stage and update: the number of "
      "updates that the oldest used weights had missed.");
  make_value(validation);
  validation.def_readonly("ranks", &Validation::ranks)
      .def_readonly("lags", &Validation::lags);
  py::class_<BusySpan> span(m, "Span",
                            "Time in which a rank executes one of its instructions.");
  make_value(span);
  span.def_readonly("rank", &BusySpan::rank)
      .def_readonly("instruction", &BusySpan::instruction)
      .def_readonly("begin", &BusySpan::begin)
      .def_readonly("end", &BusySpan::end);
  py::class_<Simulation> simulation(
      m, "Simulation",
      "Times of a schedule. `busy` and `bubbles` have one value for each rank. "
      "`period` "
      "is None if the schedule flushes, or has too few micro-batches to show it.");
  make_value(simulation);
  simulation.def_readonly("makespan", &Simulation::makespan)
      .def_readonly("busy", &Simulation::busy)
      .def_readonly("bubbles", &Simulation::bubbles)
      .def_readonly("spans", &Simulation::spans)
      .def_readonly("period", &Simulation::period);
  py::class_<StageTimes> times(
      m, "StageTimes",
      "Times of a stage for one micro-batch on one rank, and for an update, in any "
      "unit.");
  make_value(times);
  times.def(
      py::init([](double forward, double backward, double input_gradient,
                  double weight_gradient, double recompute, double reduce,
                  double step) {
        return StageTimes{forward, backward, input_gradient, weight_gradient, recompute,
                          reduce,  step};
      }),
      py::kw_only(), py::arg("forward"), py::arg("backward"), py::arg("input_gradient"),
      py::arg("weight_gradient"), py::arg("recompute"), py::arg("reduce"),
      py::arg("step"));
}

}  // namespace

void register_schedule(py::module_& m) {
  register_instruction(m);
  register_schedule_results(m);
  py::class_<Schedule> type(m, "Schedule",
                            "Instructions of each rank of a pipeline; "
                            "aikido_torch.pipeline.Schedule wraps it.");
  make_value(type);
  type.def_static("make", &make_schedule, py::arg("name"), py::kw_only(),
                  py::arg("stages"), py::arg("micro_batches"), py::arg("replicas"),
                  py::arg("stages_per_rank"), py::arg("weights"),
                  py::arg("micro_batches_per_step"), py::arg("turns"),
                  py::arg("warmups"), py::arg("recompute"), py::arg("overlap_sums"),
                  "aikido_torch.pipeline.schedule without its defaults.")
      .def_static(
          "parse",
          [](const std::string& text) {
            return adapter::value_or_raise(pipeline::parse_schedule(text));
          },
          py::arg("text"), "Reads the text form.")
      .def_readonly("name", &Schedule::name)
      .def_readonly("num_micro_batches", &Schedule::num_micro_batches)
      .def_property_readonly("weights",
                             [](const Schedule& schedule) {
                               return std::string(name_of(schedule.weights));
                             })
      .def_readonly("stages", &Schedule::stages)
      .def_readonly("ranks", &Schedule::ranks)
      .def("text", [](const Schedule& schedule) { return pipeline::to_text(schedule); })
      .def("validate", &validate, py::arg("max_activations"))
      .def("simulate", &simulate_schedule, py::arg("stages"), py::arg("links"),
           py::arg("slowdown"))
      .def(
          "grid",
          [](const Schedule& schedule, const Simulation& simulation, double slot,
             size_t max_slots) {
            return adapter::value_or_raise(
                pipeline::to_grid(schedule, simulation, {slot, max_slots}));
          },
          py::arg("simulation"), py::arg("slot"), py::arg("max_slots"));
}

}  // namespace aikido::bind

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include <torch/csrc/utils/pybind.h>

#include <pybind11/stl.h>

#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/text.h"
#include "bind/named_types.h"
#include "bind/register.h"
#include "bind/values.h"
#include "c10d/common/error.h"
#include "pipeline/partition.h"

namespace aikido::bind {
namespace {

namespace py = pybind11;
using pipeline::Layer;
using pipeline::PartitionOptions;
using pipeline::Profile;

// In Python, layers are identified by their ids.
using NamedEdges = std::vector<std::pair<std::string, std::string>>;

constexpr char kLayers[] = "collections.abc.Sequence[aikido_torch._C.Layer]";
using AnyLayers = Named<py::object, kLayers>;
constexpr char kEdges[] = "collections.abc.Sequence[tuple[str, str]]";
using AnyEdges = Named<py::object, kEdges>;

struct NamedStage {
  std::vector<std::string> layers;
  pipeline::Stage stage;
};

struct NamedPlan {
  std::vector<NamedStage> stages;
  pipeline::Plan plan;
};

}  // namespace

template <>
struct Fields<Layer> {
  static constexpr auto members = std::tuple(
      &Layer::id, &Layer::description, &Layer::forward_ms, &Layer::backward_ms,
      &Layer::activation_bytes, &Layer::parameter_bytes, &Layer::stage);
};

template <>
struct Fields<pipeline::Edge> {
  static constexpr auto members =
      std::tuple(&pipeline::Edge::from, &pipeline::Edge::to);
};

template <>
struct Fields<Profile> {
  static constexpr auto members = std::tuple(&Profile::layers, &Profile::edges);
};

template <>
struct Fields<pipeline::Stage> {
  using Stage = pipeline::Stage;
  static constexpr auto members =
      std::tuple(&Stage::layers, &Stage::replicas, &Stage::machines, &Stage::compute_s,
                 &Stage::sync_s, &Stage::transfer_s, &Stage::period_s,
                 &Stage::parameter_bytes, &Stage::activation_bytes, &Stage::input_bytes,
                 &Stage::versions, &Stage::memory_bytes);
};

template <>
struct Fields<pipeline::Plan> {
  using Plan = pipeline::Plan;
  static constexpr auto members =
      std::tuple(&Plan::period_s, &Plan::stages, &Plan::machines, &Plan::text,
                 &Plan::note, &Plan::one_machine_s, &Plan::data_parallel_s);
};

template <>
struct Fields<NamedStage> {
  static constexpr auto members = std::tuple(&NamedStage::layers, &NamedStage::stage);
};

template <>
struct Fields<NamedPlan> {
  static constexpr auto members = std::tuple(&NamedPlan::stages, &NamedPlan::plan);
};

namespace {

[[noreturn]] void refuse(const std::string& sentence) {
  adapter::raise(Status(Code::kInvalidArgument, sentence));
}

std::string repr_of(const py::handle& value) {
  // Longer texts are cut: an int may have thousands of digits.
  constexpr size_t kMost = 60;
  std::string text;
  try {
    text = py::repr(value).cast<std::string>();
  } catch (const py::error_already_set&) {
    return "a value that cannot be printed";
  }
  return text.size() > kMost ? text.substr(0, kMost) + "..." : text;
}

std::string text_of(const char* name, const py::object& value) {
  if (!py::isinstance<py::str>(value))
    refuse(concat(name, " of a layer has ", repr_of(value), "; it takes a text"));
  return value.cast<std::string>();
}

double number_of(const char* name, const std::string& id, const py::object& value) {
  const char* wanted = "; it takes a number";
  if (!py::isinstance<py::bool_>(value) && !py::isinstance<py::str>(value)) {
    const double number = PyFloat_AsDouble(value.ptr());
    if (PyErr_Occurred() == nullptr) return number;
    if (PyErr_ExceptionMatches(PyExc_OverflowError))
      wanted = ", which is too large; it takes a finite number";
    PyErr_Clear();
  }
  refuse(
      concat(name, " of layer \"", printable(id), "\" has ", repr_of(value), wanted));
}

Layer make_layer(const AnyText& id, const AnyText& description,
                 const AnyNumber& forward_ms, const AnyNumber& backward_ms,
                 const AnyNumber& activation_bytes, const AnyNumber& parameter_bytes) {
  const std::string name = text_of("id", id);
  return {name,
          text_of("description", description),
          number_of("forward_ms", name, forward_ms),
          number_of("backward_ms", name, backward_ms),
          number_of("activation_bytes", name, activation_bytes),
          number_of("parameter_bytes", name, parameter_bytes),
          -1};
}

template <class T>
T cast_or_refuse(const py::object& value, const char* wanted) {
  try {
    return value.cast<T>();
  } catch (const py::cast_error&) {
    refuse(concat(wanted, ", not ", repr_of(value)));
  }
}

Profile make_profile(const AnyLayers& layers, const AnyEdges& edges) {
  auto all = cast_or_refuse<std::vector<Layer>>(layers, "layers is a list of Layer");
  const auto named =
      cast_or_refuse<NamedEdges>(edges, "edges is a list of pairs of ids of layers");
  return adapter::value_or_raise(pipeline::make_profile(std::move(all), named));
}

NamedEdges edges_of(const Profile& profile) {
  NamedEdges named;
  for (const auto& edge : profile.edges)
    named.emplace_back(profile.layers[edge.from].id, profile.layers[edge.to].id);
  return named;
}

// The layers of the plan may be those of another profile, with other numbers.
Profile with_stages(const Profile& profile, const NamedPlan& plan) {
  size_t count = 0;
  for (size_t i = 0; i < plan.stages.size(); ++i) {
    const auto& ids = plan.stages[i].layers;
    const auto& layers = plan.plan.stages[i].layers;
    count += layers.size();
    for (size_t k = 0; k < layers.size(); ++k)
      if (layers[k] >= profile.layers.size() || profile.layers[layers[k]].id != ids[k])
        refuse(concat("the plan has layer \"", ids[k], "\" in stage ", i,
                      ", and the profile does not have it at the same place; pass the "
                      "plan that partition made of this profile"));
  }
  if (count != profile.layers.size())
    refuse(concat("the plan has ", count, " layers and the profile has ",
                  profile.layers.size(),
                  "; pass the plan that partition made of this profile"));
  return pipeline::with_stages(profile, plan.plan);
}

NamedPlan partition(const Profile& profile, std::vector<int> machines,
                    std::vector<double> bandwidths, const std::string& cost_model,
                    bool count_transfers, bool straight, bool fewer_machines,
                    std::optional<double> memory_bytes, size_t max_cuts) {
  PartitionOptions options;
  options.machines = std::move(machines);
  options.bandwidths = std::move(bandwidths);
  options.model = adapter::value_or_raise(pipeline::cost_model_named(cost_model));
  options.count_transfers = count_transfers;
  options.straight = straight;
  options.fewer_machines = fewer_machines;
  options.memory_bytes = memory_bytes;
  options.max_cuts = max_cuts;
  const auto made = [&] {
    const py::gil_scoped_release release;
    return pipeline::partition(profile, options);
  };
  NamedPlan named{{}, adapter::value_or_raise(made())};
  for (const auto& stage : named.plan.stages) {
    named.stages.push_back({{}, stage});
    for (const size_t layer : stage.layers)
      named.stages.back().layers.push_back(profile.layers[layer].id);
  }
  return named;
}

void register_profile(py::module_& m) {
  py::class_<Layer> layer_type(
      m, "Layer", "Measurements of one layer: times and sizes of a mini-batch.");
  layer_type
      .def(py::init(&make_layer), py::arg("id"), py::kw_only(),
           py::arg("description") = "", py::arg("forward_ms") = 0.0,
           py::arg("backward_ms") = 0.0, py::arg("activation_bytes") = 0.0,
           py::arg("parameter_bytes") = 0.0)
      .def_readonly("id", &Layer::id)
      .def_readonly("description", &Layer::description)
      .def_readonly("forward_ms", &Layer::forward_ms)
      .def_readonly("backward_ms", &Layer::backward_ms)
      .def_readonly("activation_bytes", &Layer::activation_bytes)
      .def_readonly("parameter_bytes", &Layer::parameter_bytes)
      .def_property_readonly("stage", [](const Layer& layer) {
        return layer.stage < 0 ? std::nullopt : std::optional(layer.stage);
      });
  make_value(layer_type);
  py::class_<Profile> profile_type(m, "Profile",
                                   "Layers of a model, and their edges: pairs of ids, "
                                   "of which the second layer needs "
                                   "the output of the first.");
  profile_type.def(py::init(&make_profile), py::arg("layers"), py::arg("edges"))
      .def_static(
          "parse",
          [](const AnyText& text) {
            if (!py::isinstance<py::str>(text))
              refuse(
                  concat("the text of a profile is ", repr_of(text), "; pass a str"));
            return adapter::value_or_raise(
                pipeline::parse_profile(text.cast<std::string>()));
          },
          py::arg("text"), "Reads the text form of PipeDream's profiler.")
      .def_readonly("layers", &Profile::layers)
      .def_property_readonly("edges", &edges_of)
      .def("text", &pipeline::to_text, "The text form that parse() reads.")
      .def("with_stages", &with_stages, py::arg("plan"),
           "The profile with the stage of each layer. Requires: `plan` was made from "
           "this profile.");
  make_value(profile_type, [](const Profile& read) {
    adapter::raise_if_failed(pipeline::validate(read));
  });
}

template <auto kField>
auto of_stage() {
  return [](const NamedStage& named) { return named.stage.*kField; };
}

template <auto kField>
auto of_plan() {
  return [](const NamedPlan& named) { return named.plan.*kField; };
}

void register_plan(py::module_& m) {
  using pipeline::Plan;
  using pipeline::Stage;
  py::class_<NamedStage> stage(
      m, "Stage",
      "Layers between two cuts, and their costs. Seconds are for one mini-batch, bytes "
      "for one machine.");
  stage.def_readonly("layers", &NamedStage::layers)
      .def_property_readonly("replicas", of_stage<&Stage::replicas>())
      .def_property_readonly("machines", of_stage<&Stage::machines>())
      .def_property_readonly("compute_s", of_stage<&Stage::compute_s>())
      .def_property_readonly("sync_s", of_stage<&Stage::sync_s>())
      .def_property_readonly("transfer_s", of_stage<&Stage::transfer_s>())
      .def_property_readonly("period_s", of_stage<&Stage::period_s>())
      .def_property_readonly("parameter_bytes", of_stage<&Stage::parameter_bytes>())
      .def_property_readonly("activation_bytes", of_stage<&Stage::activation_bytes>())
      .def_property_readonly("input_bytes", of_stage<&Stage::input_bytes>())
      .def_property_readonly("versions", of_stage<&Stage::versions>())
      .def_property_readonly("memory_bytes", of_stage<&Stage::memory_bytes>());
  make_value(stage);
  py::class_<NamedPlan> plan(m, "Plan",
                             "Stages of a pipeline, in order, and its speed.");
  plan.def_readonly("stages", &NamedPlan::stages)
      .def_property_readonly("period_s", of_plan<&Plan::period_s>())
      .def_property_readonly("machines", of_plan<&Plan::machines>())
      .def_property_readonly("text", of_plan<&Plan::text>())
      .def_property_readonly("note", of_plan<&Plan::note>())
      .def_property_readonly("one_machine_s", of_plan<&Plan::one_machine_s>())
      .def_property_readonly("data_parallel_s", of_plan<&Plan::data_parallel_s>())
      .def("__repr__", [](const NamedPlan& named) {
        return concat("<Plan ", named.plan.text, ", ", named.plan.period_s, " s>");
      });
  make_value(plan);
}

}  // namespace

void register_pipeline(py::module_& m) {
  register_plan(m);
  register_profile(m);
  m.def("partition", &partition, py::arg("profile"), py::kw_only(), py::arg("machines"),
        py::arg("bandwidths"), py::arg("cost_model"), py::arg("count_transfers"),
        py::arg("straight"), py::arg("fewer_machines"), py::arg("memory_bytes"),
        py::arg("max_cuts"), "aikido_torch.pipeline.partition without its defaults.");
}

}  // namespace aikido::bind

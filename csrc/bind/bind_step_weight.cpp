// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include <pybind11/stl.h>

#include <memory>

#include "bind/register.h"
#include "bind/step_weight.h"
#include "c10d/common/error.h"
#include "collectives/weights.h"

namespace aikido::bind {

namespace py = pybind11;

void register_step_weight(py::module_& m) {
  py::class_<StepWeight, std::shared_ptr<StepWeight>>(
      m, "StepWeight",
      "Weight of this rank's gradients in the present step; see "
      "aikido_torch.ddp._step_weight.")
      .def(py::init<>())
      .def_property_readonly("value", &StepWeight::value,
                             "None: the means have no weights.")
      .def(
          "set",
          [](StepWeight& self, double weight) {
            adapter::raise_if_failed(collectives::check_weight(weight));
            self.set(weight);
          },
          py::arg("weight"),
          "Sets the weight of the present step. Raises ConfigError if it is out of "
          "range, and changes nothing then.")
      .def("end_step", &StepWeight::end_step,
           "All buckets of the step are started: the weight is 1.0 again, if the means "
           "have weights.")
      .def("begin_step", &StepWeight::begin_step,
           "The backward of the step starts its first bucket.")
      .def("drop_step", &StepWeight::drop_step,
           "This rank goes past the step without an own contribution: the weight of a "
           "backward that has begun and thrown is dropped.");
}

}  // namespace aikido::bind

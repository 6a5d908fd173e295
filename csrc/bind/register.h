// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Registration functions, one for each part of the module, in the order in which
// module.cpp calls them. Under Python's lock.

#include <pybind11/pybind11.h>

namespace aikido::bind {

void register_errors(pybind11::module_& m);
void register_settings(pybind11::module_& m);
void register_straggler(pybind11::module_& m);
void register_ordering(pybind11::module_& m);
void register_pipeline(pybind11::module_& m);
void register_schedule(pybind11::module_& m);
void register_process_group(pybind11::module_& m);
void register_trace(pybind11::module_& m);
void register_hook(pybind11::module_& m);
void register_step_weight(pybind11::module_& m);
void register_quiet_steps(pybind11::module_& m);
void register_digest(pybind11::module_& m);
void register_devices(pybind11::module_& m);
void register_reassign(pybind11::module_& m);

}  // namespace aikido::bind

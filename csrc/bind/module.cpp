// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
// The native module of aikido_torch.
#include <pybind11/pybind11.h>

#include "bind/named_types.h"
#include "bind/register.h"
#include "kernels/reduce.h"

namespace {

namespace py = pybind11;

constexpr char kBuildInfo[] = "aikido_torch._rows.BuildInfo";
using BuildInfo = aikido::bind::Named<py::dict, kBuildInfo>;

// Facts that are fixed at compile time, and the instruction sets of this CPU.
BuildInfo build_info() {
  BuildInfo info;
  info["version"] = AIKIDO_VERSION;
  info["torch"] = AIKIDO_TORCH_MINOR;
  info["compiler"] = AIKIDO_COMPILER;
  info["cuda"] = static_cast<bool>(AIKIDO_HAS_CUDA);
  info["cxx11_abi"] = static_cast<bool>(_GLIBCXX_USE_CXX11_ABI);
  py::list sets;
  for (const auto set : aikido::kernels::available_sets()) {
    sets.append(aikido::kernels::name_of(set));
  }
  info["instruction_sets"] = sets;
  return info;
}

}  // namespace

PYBIND11_MODULE(_C, m) {
  m.doc() = "Native half of aikido_torch.";
  m.def("build_info", &build_info,
        "Version, torch minor, compiler, CUDA and C++ ABI of this build, and the "
        "instruction sets of its kernels that this CPU has, fastest last.");
  aikido::bind::register_errors(m);
  aikido::bind::register_settings(m);
  aikido::bind::register_straggler(m);
  aikido::bind::register_ordering(m);
  aikido::bind::register_pipeline(m);
  aikido::bind::register_schedule(m);
  aikido::bind::register_trace(m);
  aikido::bind::register_process_group(m);
  aikido::bind::register_hook(m);
  aikido::bind::register_step_weight(m);
  aikido::bind::register_quiet_steps(m);
  aikido::bind::register_digest(m);
  aikido::bind::register_devices(m);
  aikido::bind::register_reassign(m);
}

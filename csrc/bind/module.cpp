// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
// The native module of aikido_torch.
#include <pybind11/pybind11.h>

#include "bind/register.h"
#include "kernels/reduce.h"

namespace {

namespace py = pybind11;

// Facts that are fixed at compile time, and the instruction sets of this CPU.
py::dict build_info() {
  py::dict info;
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
  m.def(
      "build_info", &build_info,
      "Version, torch minor, compiler, CUDA and C++ ABI this module was built for, and "
      "the instruction sets of its kernels that run here, fastest last.");
  aikido::bind::register_errors(m);
  aikido::bind::register_settings(m);
  aikido::bind::register_straggler(m);
  aikido::bind::register_ordering(m);
  aikido::bind::register_pipeline(m);
  aikido::bind::register_schedule(m);
  aikido::bind::register_trace(m);
  aikido::bind::register_process_group(m);
  aikido::bind::register_hook(m);
  aikido::bind::register_quiet_steps(m);
  aikido::bind::register_digest(m);
  aikido::bind::register_devices(m);
}

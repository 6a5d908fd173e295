// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
// Digests of tensors in host memory.

#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include <cstdint>
#include <vector>

#include "bind/register.h"
#include "kernels/digest.h"

namespace aikido::bind {
namespace {

namespace py = pybind11;

std::vector<uint64_t> digests(const std::vector<at::Tensor>& tensors) {
  const py::gil_scoped_release unlocked;
  std::vector<uint64_t> found;
  found.reserve(tensors.size());
  for (const at::Tensor& tensor : tensors) {
    TORCH_CHECK_VALUE(tensor.is_cpu() && tensor.is_non_overlapping_and_dense(),
                      "digests: a tensor does not lie in one piece of host memory");
    found.push_back(kernels::digest(tensor.const_data_ptr(), tensor.nbytes()));
  }
  return found;
}

}  // namespace

void register_digest(py::module_& m) {
  m.def("digests", &digests, py::arg("tensors"),
        "A 64-bit digest of the bytes of each tensor. Releases Python's lock. Raises "
        "ValueError for a tensor that is not dense or not in host memory.");
}

}  // namespace aikido::bind

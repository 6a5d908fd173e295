// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
//
// Calls with tensors on devices beside the host: the finders that Python installs to
// decide with all ranks, and the functions that they try for that.

#include <pybind11/chrono.h>
#include <pybind11/functional.h>
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include <cstring>
#include <string_view>

#include "bind/named_types.h"
#include "bind/register.h"
#include "c10d/common/device_memory.h"
#include "c10d/common/error.h"
#include "c10d/device/ipc.h"
#include "c10d/device/nccl_route.h"
#if AIKIDO_HAS_CUDA
#include "c10d/device/cuda_memory.h"
#endif

namespace aikido::bind {
namespace {

namespace py = pybind11;
using adapter::DeviceMemory;
using adapter::Ipc;
using adapter::NcclRoute;

constexpr char kInnerFinder[] =
    "collections.abc.Callable[[torch._C._distributed_c10d.Backend, str, torch.device, "
    "torch._C._distributed_c10d.Store | None, datetime.timedelta], "
    "torch._C._distributed_c10d.Backend | None]";
// May return None, and may get None as the store.
using InnerFinder = Named<py::function, kInnerFinder>;

// The class of capsules has a name in Python from 3.13 on only.
constexpr char kCapsule[] = "typing.Any";
using Capsule = Named<py::capsule, kCapsule>;

std::shared_ptr<DeviceMemory> memory_of(c10::Device device) {
  if (auto memory = DeviceMemory::of(device.type())) return memory;
  adapter::raise({Code::kUnsupported,
                  "its aikido was built without what shares memory of such devices "
                  "(AIKIDO_CUDA)"});
}

py::bytes share(const at::Tensor& tensor) {
  const auto handle = memory_of(tensor.device())->share(tensor);
  return {reinterpret_cast<const char*>(handle.data()), handle.size()};
}

// Adds up shared memory of a few ranks, in the way of real calls.
void try_sum(const at::Tensor& own, const std::vector<py::bytes>& handles) {
  const auto memory = memory_of(own.device());
  std::vector<void*> buffers{own.mutable_data_ptr()};
  for (const std::string_view given : handles) {
    DeviceMemory::IpcHandle handle;
    if (given.size() != handle.size()) {
      adapter::raise(
          {Code::kInvalidArgument, concat("a handle of memory has ", handle.size(),
                                          " bytes and not ", given.size())});
    }
    std::memcpy(handle.data(), given.data(), given.size());
    buffers.push_back(memory->open(own.device(), handle));
  }
  const c10::Stream stream = adapter::current_stream(own.device());
  memory->reduce_to_all(ReduceOp::kSum, DType::kFloat32, buffers, 1, 1.0, stream);
  stream.synchronize();
}

}  // namespace

void register_devices(py::module_& m) {
#if AIKIDO_HAS_CUDA
  DeviceMemory::offer(c10::kCUDA, adapter::make_cuda_memory());
#endif
  m.def(
      "set_inner_finder",
      [](const InnerFinder& finder) {
        NcclRoute::set_finder(finder.cast<NcclRoute::Finder>());
      },
      py::arg("finder"),
      "Sets the function that returns the backend for strict calls with tensors on "
      "devices. None: the tensors are staged in host memory.");
  m.def("set_ipc_finder", &Ipc::set_finder, py::arg("finder"),
        "Sets the function that decides whether all_reduces of tensors on devices use "
        "the shared memory of the devices.");
  m.def("share_device_memory", &share, py::arg("tensor"),
        "A handle by which other processes of this host can open the memory of a "
        "contiguous tensor on a device, as long as the tensor exists.");
  m.def("try_device_memory", &try_sum, py::arg("tensor"), py::arg("handles"),
        "Adds up a float32 tensor of one element and the shared ones of other "
        "processes, and writes the sum to all of them. Raises if that is impossible.");
  m.def(
      "offer_device_memory",
      [](const std::string& type, const Capsule& memory) {
        DeviceMemory::offer(c10::Device(type).type(),
                            *memory.get_pointer<std::shared_ptr<DeviceMemory>>());
      },
      py::arg("type"), py::arg("memory"),
      "Registers the way in which processes share memory of a type of device. "
      "memory: a capsule with a std::shared_ptr<DeviceMemory> "
      "(csrc/c10d/common/device_memory.h).");
}

}  // namespace aikido::bind

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
//
// Access to the memory of the fake device from other processes: the interface of
// csrc/c10d/common/device_memory.h. Its kernels are tasks of the device's streams.

#include "fake_ipc.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>

#include <chrono>
#include <cstring>
#include <thread>

#include "c10d/common/device_memory.h"
#include "fake_device.h"

namespace {

using aikido::DType;
using aikido::ReduceOp;
using aikido::adapter::DeviceMemory;

at::ScalarType scalar_type(DType dtype) {
  switch (dtype) {
    case DType::kUint8:
      return at::kByte;
    case DType::kInt8:
      return at::kChar;
    case DType::kInt16:
      return at::kShort;
    case DType::kInt32:
      return at::kInt;
    case DType::kInt64:
      return at::kLong;
    case DType::kBool:
      return at::kBool;
    case DType::kFloat16:
      return at::kHalf;
    case DType::kBFloat16:
      return at::kBFloat16;
    case DType::kFloat32:
      return at::kFloat;
    case DType::kFloat64:
      return at::kDouble;
    case DType::kComplex64:
      return at::kComplexFloat;
    case DType::kComplex128:
      return at::kComplexDouble;
  }
  TORCH_CHECK(false, "fake device: no such dtype");
}

at::Tensor fold(ReduceOp op, const at::Tensor& a, const at::Tensor& b) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kAvg:
      return a + b;
    case ReduceOp::kProduct:
      return a * b;
    case ReduceOp::kMin:
      return a.minimum(b);
    case ReduceOp::kMax:
      return a.maximum(b);
    case ReduceOp::kBand:
      return a.bitwise_and(b);
    case ReduceOp::kBor:
      return a.bitwise_or(b);
    case ReduceOp::kBxor:
      return a.bitwise_xor(b);
  }
  TORCH_CHECK(false, "fake device: no such op");
}

class FakeMemory final : public DeviceMemory {
 public:
  IpcHandle share(const at::Tensor& tensor) override {
    TORCH_CHECK(!fake::is_due(fake::ipc_faults().shares),
                "fake device: this memory cannot be shared");
    const fake::Place place = fake::place_of(tensor.const_data_ptr());
    IpcHandle handle{};
    std::memcpy(handle.data(), &place, sizeof place);
    return handle;
  }

  void* open(c10::Device, const IpcHandle& handle) override {
    TORCH_CHECK(!fake::is_due(fake::ipc_faults().opens),
                "fake device: this memory cannot be reached");
    fake::Place place{};
    std::memcpy(&place, handle.data(), sizeof place);
    return fake::open(place);
  }

  void reduce_to_all(ReduceOp op, DType dtype, const std::vector<void*>& buffers,
                     size_t count, double scale, const c10::Stream& stream) override {
    const bool fails = fake::is_due(fake::ipc_faults().kernels);
    fake::enqueue(stream, [=] {
      std::this_thread::sleep_for(
          std::chrono::milliseconds(fake::ipc_faults().kernel_ms));
      if (fails) return fake::fail(stream);
      std::vector<at::Tensor> all;
      for (void* buffer : buffers)
        all.push_back(at::from_blob(buffer, {static_cast<int64_t>(count)},
                                    at::TensorOptions().dtype(scalar_type(dtype))));
      at::Tensor sum = all[0];
      for (size_t k = 1; k < all.size(); ++k) sum = fold(op, sum, all[k]);
      if (scale != 1.0) sum = sum * scale;
      const at::Tensor result = sum.clone();
      for (at::Tensor& tensor : all) tensor.copy_(result);
    });
  }

  bool is_capturing(const c10::Stream&) override { return false; }
};

}  // namespace

fake::IpcFaults& fake::ipc_faults() {
  static auto* faults = new IpcFaults;
  return *faults;
}

pybind11::capsule fake::make_memory() {
  using Pointer = std::shared_ptr<DeviceMemory>;
  return {new Pointer(std::make_shared<FakeMemory>()),
          [](void* made) { delete static_cast<Pointer*>(made); }};
}

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "cuda/reduce.h"

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "cuda/check.h"
#include "harness/catch.h"
#include "harness/reduce_data.h"
#include "kernels/reduce.h"

namespace aikido::cuda {
namespace {

using testing::all_dtypes;
using testing::all_ops;
using testing::Bytes;
using testing::first_difference;
using testing::is_pair_defined;
using testing::random_elements;

constexpr size_t kCounts[] = {0, 1, 7, 63, 64, 65, 1000, 5000};

void require_ok(const Status& status) {
  INFO(status.message());
  REQUIRE(status.is_ok());
}

class DeviceBuffer {
 public:
  // Starts `offset` bytes past an aligned address.
  DeviceBuffer(size_t bytes, size_t offset) : bytes_(bytes), offset_(offset) {
    require_ok(
        check_cuda(cudaMalloc(&base_, bytes + offset + 16), "cudaMalloc", bytes));
  }
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;
  ~DeviceBuffer() { static_cast<void>(cudaFree(base_)); }

  unsigned char* data() { return static_cast<unsigned char*>(base_) + offset_; }
  void upload(const unsigned char* from) {
    require_ok(check_cuda(cudaMemcpy(data(), from, bytes_, cudaMemcpyHostToDevice),
                          "cudaMemcpy", bytes_));
  }
  Bytes download() {
    Bytes to(bytes_);
    require_ok(check_cuda(cudaMemcpy(to.data(), data(), bytes_, cudaMemcpyDeviceToHost),
                          "cudaMemcpy", bytes_));
    return to;
  }

 private:
  void* base_ = nullptr;
  size_t bytes_;
  size_t offset_;
};

struct Case {
  size_t num_sources;
  size_t count;
  double scale;
  size_t offset;   // of every device buffer, in bytes
  ptrdiff_t into;  // index of the source that is also `out`; -1: none
  bool with_nan;
};

// Checks that a reduction into all of its sources gives the same bits as a reduction
// into a separate buffer.
void compare_in_all(ReduceOp op, DType dtype, const Case& c) {
  std::vector<std::unique_ptr<DeviceBuffer>> device;
  std::vector<void*> buffers;
  for (size_t k = 0; k < c.num_sources; ++k) {
    device.push_back(
        std::make_unique<DeviceBuffer>(c.count * size_of(dtype), c.offset));
    device.back()->upload(random_elements(dtype, c.count, 99 * c.count + k).data());
    buffers.push_back(device.back()->data());
  }
  DeviceBuffer separate(c.count * size_of(dtype), c.offset);
  const std::vector<const void*> sources(buffers.begin(), buffers.end());
  require_ok(reduce(op, dtype, separate.data(), sources.data(), c.num_sources, c.count,
                    c.scale, nullptr));
  require_ok(reduce_to_all(op, dtype, buffers.data(), c.num_sources, c.count, c.scale,
                           nullptr));
  const Bytes expected = separate.download();
  INFO(name_of(op) << " of " << name_of(dtype) << ", " << c.num_sources
                   << " sources of " << c.count << ", offset " << c.offset);
  for (const auto& buffer : device)
    REQUIRE(first_difference(dtype, buffer->download().data(), expected.data(),
                             c.count) == -1);
}

// Runs one case on host and device and compares all bits.
void compare(ReduceOp op, DType dtype, const Case& c) {
  const size_t bytes = c.count * size_of(dtype);
  std::vector<Bytes> host;
  for (size_t k = 0; k < c.num_sources; ++k)
    host.push_back(random_elements(dtype, c.count, 77 * c.count + k));
  if (c.with_nan && is_floating(dtype) && c.count > 2)
    std::memset(host.back().data() + size_of(dtype), 0xff, size_of(dtype));
  std::vector<const void*> host_sources;
  for (const Bytes& source : host) host_sources.push_back(source.data());
  Bytes expected(bytes);
  kernels::find_reduce(op, dtype)(expected.data(), host_sources.data(), c.num_sources,
                                  c.count, c.scale);

  std::vector<std::unique_ptr<DeviceBuffer>> device;
  std::vector<const void*> sources;
  for (const Bytes& source : host) {
    device.push_back(std::make_unique<DeviceBuffer>(bytes, c.offset));
    device.back()->upload(source.data());
    sources.push_back(device.back()->data());
  }
  DeviceBuffer separate(bytes, c.offset);
  DeviceBuffer& out = c.into < 0 ? separate : *device[static_cast<size_t>(c.into)];
  require_ok(reduce(op, dtype, out.data(), sources.data(), c.num_sources, c.count,
                    c.scale, nullptr));
  const Bytes got = out.download();
  INFO(name_of(op) << " of " << name_of(dtype) << ", " << c.num_sources
                   << " sources of " << c.count << ", scale " << c.scale << ", offset "
                   << c.offset << ", into " << c.into);
  REQUIRE(first_difference(dtype, got.data(), expected.data(), c.count) == -1);
}

void compare_all(const Case& c) {
  for (const DType dtype : all_dtypes())
    for (const ReduceOp op : all_ops())
      if (is_pair_defined(op, dtype)) compare(op, dtype, c);
}

TEST_CASE("the device refuses what it cannot do before it looks at a pointer") {
  const std::vector<const void*> sources(kMaxReduceSources + 1, nullptr);
  const auto call = [&](ReduceOp op, DType dtype, size_t num_sources) {
    return reduce(op, dtype, nullptr, sources.data(), num_sources, 0, 1.0, nullptr);
  };
  for (const DType dtype : all_dtypes())
    for (const ReduceOp op : all_ops()) {
      const Status status = call(op, dtype, 2);
      INFO(name_of(op) << " of " << name_of(dtype) << ": " << status.message());
      REQUIRE(status.is_ok() == is_pair_defined(op, dtype));
      if (!status.is_ok()) REQUIRE(status.code() == Code::kUnsupported);
    }
  REQUIRE(call(ReduceOp::kSum, DType::kFloat32, 0).code() == Code::kInvalidArgument);
  const Status many = call(ReduceOp::kSum, DType::kFloat32, kMaxReduceSources + 1);
  REQUIRE(many.code() == Code::kUnsupported);
  REQUIRE(many.message().find("129 sources") != std::string::npos);
}

TEST_CASE("the device gives the bits of the host at every count", "[gpu]") {
  for (const size_t count : kCounts)
    for (const size_t num_sources : {1u, 2u, 5u})
      compare_all({num_sources, count, 1.0, 0, -1, false});
}

TEST_CASE("all of the buffers get the result", "[gpu]") {
  for (const size_t count : kCounts)
    for (const size_t offset : {0u, 1u, 8u})
      for (const DType dtype : all_dtypes())
        for (const ReduceOp op : all_ops())
          if (is_pair_defined(op, dtype))
            compare_in_all(op, dtype, {3, count, 0.5, offset, -1, false});
}

TEST_CASE("the device works at addresses without any alignment", "[gpu]") {
  for (const size_t offset : {1u, 2u, 4u, 8u}) {
    compare_all({3, 1000, 1.0, offset, -1, false});
    compare_all({1, 65, 0.5, offset, -1, false});
  }
}

TEST_CASE("the device result may take the place of any source", "[gpu]") {
  for (const ptrdiff_t into : {0, 1, 2}) {
    compare_all({3, 1000, 1.0, 0, into, false});
    compare_all({3, 65, 0.25, 1, into, false});
  }
  compare_all({1, 1000, 1.0, 0, 0, false});
}

TEST_CASE("the device scales and carries NaN as the host does", "[gpu]") {
  for (const double scale : {1.0 / 3.0, -2.0, 0.0}) {
    compare_all({1, 1000, scale, 0, -1, false});
    compare_all({3, 1000, scale, 0, -1, true});
  }
  compare_all({4, 70, 1.0, 0, -1, true});
}

TEST_CASE("the device takes as many sources as one launch can name", "[gpu]") {
  for (const DType dtype : {DType::kFloat16, DType::kFloat32, DType::kInt64})
    compare(ReduceOp::kSum, dtype, {kMaxReduceSources, 100, 1.0, 0, 3, false});
}

TEST_CASE("device threads loop over elements beyond a full grid", "[gpu]") {
  compare(ReduceOp::kSum, DType::kUint8,
          {2, 4096u * 256u * 16u + 5u, 1.0, 0, -1, false});
  compare(ReduceOp::kSum, DType::kUint8, {2, 4096u * 256u + 5u, 1.0, 1, -1, false});
}

}  // namespace
}  // namespace aikido::cuda

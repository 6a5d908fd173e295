// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
//
// A backend for the fake device that behaves like NCCL. Calls are queued on a stream of
// the backend, after the work of the caller's stream. A work blocks streams and not the
// host. The backend keeps no tensor alive. Calls must have the same order on all ranks.
// Gloo moves the data, called from the thread of the stream.

#include <ATen/ATen.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <pybind11/stl.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <map>
#include <mutex>
#include <thread>

#include "fake_device.h"
#include "fake_ipc.h"

namespace py = pybind11;

namespace {

using Tensors = std::vector<at::Tensor>;
using WorkPtr = c10::intrusive_ptr<::c10d::Work>;
using BackendPtr = c10::intrusive_ptr<::c10d::Backend>;

class FakeWork final : public ::c10d::Work {
 public:
  explicit FakeWork(const c10::Stream& stream)
      : device_(stream.device()), end_(device_.type()) {
    end_.record(stream);
  }
  bool wait(std::chrono::milliseconds) override {
    end_.block(c10::impl::VirtualGuardImpl(device_.type()).getStream(device_));
    return true;
  }

 private:
  const c10::Device device_;
  c10::Event end_;
};

using Flag = std::shared_ptr<std::atomic<bool>>;

// Waits until the work is complete or its backend is aborted.
void finish(const WorkPtr& work, const Flag& aborted) {
  while (!work->isCompleted()) {
    TORCH_CHECK(!*aborted, "fake nccl: aborted");
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  work->wait();
}

class FakeNccl final : public ::c10d::Backend {
 public:
  explicit FakeNccl(BackendPtr gloo)
      : ::c10d::Backend(gloo->getRank(), gloo->getSize()), gloo_(std::move(gloo)) {}

  const std::string getBackendName() const override { return "fake nccl"; }
  void setTimeout(std::chrono::milliseconds timeout) override {
    note("set_timeout");
    gloo_->setTimeout(timeout);
  }
  void abort() override {
    note("abort");
    *aborted_ = true;
  }
  void shutdown() override { note("shutdown"); }

  WorkPtr allreduce(Tensors& tensors, const ::c10d::AllreduceOptions& opts) override {
    return queue("allreduce", tensors[0], [=, host = hosts(tensors)]() mutable {
      return gloo_->allreduce(host, opts);
    });
  }
  WorkPtr reduce(Tensors& tensors, const ::c10d::ReduceOptions& opts) override {
    // Gloo writes to the tensors of all ranks, NCCL only to the tensor of the root.
    const bool is_root = getRank() == opts.rootRank;
    return queue("reduce", tensors[0], [=, host = hosts(tensors)]() mutable {
      if (!is_root) host[0] = host[0].clone();
      return gloo_->reduce(host, opts);
    });
  }
  WorkPtr broadcast(Tensors& tensors, const ::c10d::BroadcastOptions& opts) override {
    return queue("broadcast", tensors[0], [=, host = hosts(tensors)]() mutable {
      return gloo_->broadcast(host, opts);
    });
  }
  WorkPtr allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                    const ::c10d::AllgatherOptions& opts) override {
    return queue("allgather", inputs[0],
                 [=, out = lists(outputs), in = hosts(inputs)]() mutable {
                   return gloo_->allgather(out, in, opts);
                 });
  }
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input,
                          const ::c10d::AllgatherOptions& opts) override {
    return queue("allgather_base", input,
                 [=, out = fake::on_host(output).view(-1),
                  in = fake::on_host(input).view(-1)]() mutable {
                   return gloo_->_allgather_base(out, in, opts);
                 });
  }
  WorkPtr gather(std::vector<Tensors>& outputs, Tensors& inputs,
                 const ::c10d::GatherOptions& opts) override {
    return queue("gather", inputs[0],
                 [=, out = lists(outputs), in = hosts(inputs)]() mutable {
                   return gloo_->gather(out, in, opts);
                 });
  }
  WorkPtr scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                  const ::c10d::ScatterOptions& opts) override {
    return queue("scatter", outputs[0],
                 [=, out = hosts(outputs), in = lists(inputs)]() mutable {
                   return gloo_->scatter(out, in, opts);
                 });
  }
  // Older versions of Gloo have no reduce_scatter of lists. Each rank sums all blocks
  // and keeps its own.
  WorkPtr reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                         const ::c10d::ReduceScatterOptions& opts) override {
    return scatter_sum("reduce_scatter", outputs[0], inputs[0], opts.reduceOp);
  }
  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                               const ::c10d::ReduceScatterOptions& opts) override {
    return scatter_sum("reduce_scatter_base", output, input.chunk(getSize()),
                       opts.reduceOp);
  }
  WorkPtr alltoall(Tensors& outputs, Tensors& inputs,
                   const ::c10d::AllToAllOptions& opts) override {
    return queue(
        "alltoall", inputs[0], [=, out = hosts(outputs), in = hosts(inputs)]() mutable {
          at::Tensor flat_in = at::cat(flat(in));
          at::Tensor flat_out = at::empty_like(at::cat(flat(out)));
          std::vector<int64_t> from, to;
          for (const auto& t : in) to.push_back(t.numel());
          for (const auto& t : out) from.push_back(t.numel());
          finish(gloo_->alltoall_base(flat_out, flat_in, from, to, opts), aborted_);
          int64_t done = 0;
          for (at::Tensor& t : out) {
            t.copy_(flat_out.narrow(0, done, t.numel()).view(t.sizes()));
            done += t.numel();
          }
          return WorkPtr();
        });
  }
  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input,
                        std::vector<int64_t>& output_splits,
                        std::vector<int64_t>& input_splits,
                        const ::c10d::AllToAllOptions& opts) override {
    return queue("alltoall_base", input,
                 [=, out = fake::on_host(output), in = fake::on_host(input)]() mutable {
                   return gloo_->alltoall_base(out, in, output_splits, input_splits,
                                               opts);
                 });
  }

  // ---- for tests ----
  std::map<std::string, int> counts() {
    const std::lock_guard lock(mutex_);
    return counts_;
  }
  // Makes the next call throw.
  void fail_next() { fails_next_ = true; }

 private:
  static Tensors hosts(const Tensors& tensors) {
    Tensors out;
    for (const auto& t : tensors) out.push_back(fake::on_host(t));
    return out;
  }
  static std::vector<Tensors> lists(const std::vector<Tensors>& given) {
    std::vector<Tensors> out;
    for (const auto& list : given) out.push_back(hosts(list));
    return out;
  }
  static Tensors flat(const Tensors& tensors) {
    Tensors out;
    for (const auto& t : tensors) out.push_back(t.reshape(-1));
    return out;
  }
  void note(const std::string& what) {
    const std::lock_guard lock(mutex_);
    ++counts_[what];
  }

  WorkPtr scatter_sum(const char* name, const at::Tensor& output, const Tensors& blocks,
                      const ::c10d::ReduceOp& op) {
    return queue(name, output,
                 [=, out = fake::on_host(output), in = hosts(blocks)]() mutable {
                   Tensors sum{at::stack(flat(in))};
                   ::c10d::AllreduceOptions opts;
                   opts.reduceOp = op;
                   finish(gloo_->allreduce(sum, opts), aborted_);
                   out.copy_(sum[0][getRank()].view(out.sizes()));
                   return WorkPtr();
                 });
  }

  WorkPtr queue(const char* name, const at::Tensor& tensor,
                std::function<WorkPtr()> call) {
    TORCH_CHECK(!std::exchange(fails_next_, false), "fake nccl: it takes no call");
    TORCH_CHECK(tensor.is_contiguous(), "fake nccl: ", name, " of a strided tensor");
    note(name);
    const c10::Device device = tensor.device();
    const c10::impl::VirtualGuardImpl guard(device.type());
    if (!stream_) stream_ = guard.getStreamFromGlobalPool(device);
    c10::Event begin(device.type());
    begin.record(guard.getStream(device));
    begin.block(*stream_);
    fake::enqueue(*stream_, [call = std::move(call), aborted = aborted_] {
      try {
        if (const WorkPtr work = call()) finish(work, aborted);
      } catch (const std::exception& error) {
        if (!*aborted) std::fprintf(stderr, "fake nccl: %s\n", error.what());
      }
    });
    return c10::make_intrusive<FakeWork>(*stream_);
  }

  const BackendPtr gloo_;
  std::optional<c10::Stream> stream_;
  std::mutex mutex_;
  std::map<std::string, int> counts_;  // guarded by mutex_
  bool fails_next_ = false;
  const Flag aborted_ = std::make_shared<std::atomic<bool>>(false);
};

}  // namespace

PYBIND11_MODULE(fake_nccl, m) {
  py::class_<FakeNccl, c10::intrusive_ptr<FakeNccl>, ::c10d::Backend>(m, "FakeNccl")
      .def(py::init([](BackendPtr gloo) {
        return c10::make_intrusive<FakeNccl>(std::move(gloo));
      }))
      .def("counts", &FakeNccl::counts)
      .def("fail_next", &FakeNccl::fail_next);
  m.def("make_memory", &fake::make_memory);
}

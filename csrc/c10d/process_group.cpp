// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "c10d/process_group.h"

#include <cstring>
#include <utility>

#include "c10d/error.h"
#include "c10d/staging.h"
#include "c10d/store_adapter.h"
#include "c10d/tensor_check.h"

namespace aikido::adapter {

using ::c10d::OpType;
using collectives::Call;
using collectives::CallKind;
using collectives::LocalCall;

namespace {

const std::byte* bytes_of(const at::Tensor& t) {
  return static_cast<const std::byte*>(t.const_data_ptr());
}
std::byte* mutable_bytes_of(const at::Tensor& t) {
  return static_cast<std::byte*>(t.mutable_data_ptr());
}

// For copies, a dtype that only we do not know travels as bytes.
uint64_t count_for_copy(const at::Tensor& t) {
  return t.nbytes() / size_of(dtype_for_copy(t));
}

}  // namespace

AikidoBackend::AikidoBackend(std::shared_ptr<engine::Engine> engine,
                             std::shared_ptr<Finisher> finisher,
                             c10::intrusive_ptr<::c10d::Store> store, int rank,
                             int size, Config config)
    : ::c10d::Backend(rank, size),
      finisher_(std::move(finisher)),
      linger_(config.settings.shutdown_linger_ms),
      group_name_(config.group_name),
      timeout_(config.timeout) {
  engine::GroupOptions options;
  options.name = config.group_name;
  options.self = Rank(rank);
  options.size = size;
  const Settings& s = config.settings;
  options.operation.chunk_bytes = static_cast<size_t>(s.transport_chunk_bytes);
  options.operation.eager_bytes = static_cast<size_t>(s.transport_eager_bytes);
  options.operation.min_shard_bytes =
      static_cast<size_t>(s.collectives_min_shard_bytes);
  options.log_bytes = static_cast<uint64_t>(s.straggler_log_bytes);
  options.pool_bytes = static_cast<size_t>(s.memory_pool_bytes);
  StoreAdapter adapter(std::move(store));
  auto connected = engine::Communicator::connect(std::move(engine), adapter, options,
                                                 agreed_text(s), config.timeout);
  raise_if_failed(connected.status());
  communicator_ = *connected;
}

AikidoBackend::~AikidoBackend() {
  // In a forked child the inner backend would wait for its threads, which are not here.
  if (communicator_ && communicator_->engine().is_forked()) {
    [[maybe_unused]] const auto* leaked = fallback_.release();
  }
}

c10::intrusive_ptr<::c10d::Backend::Options> AikidoBackend::getBackendOptions() {
  auto options = c10::make_intrusive<Options>("aikido", timeout());
  options->group_name = group_name_;
  return options;
}

Milliseconds AikidoBackend::timeout() const {
  const std::lock_guard lock(mutex_);
  return timeout_;
}

void AikidoBackend::setTimeout(Milliseconds timeout) {
  const std::lock_guard lock(mutex_);
  timeout_ = timeout;
  if (fallback_) fallback_->setTimeout(timeout);
}

void AikidoBackend::set_fallback(c10::intrusive_ptr<::c10d::Backend> fallback) {
  const std::lock_guard lock(mutex_);
  fallback_ = std::move(fallback);
}

c10::intrusive_ptr<::c10d::Backend> AikidoBackend::fallback() const {
  const std::lock_guard lock(mutex_);
  return fallback_;
}

void AikidoBackend::abort() {
  if (communicator_->engine().is_forked()) return;
  communicator_->abort(
      {Code::kAborted,
       concat("group \"", group_name_, "\" was aborted by rank ", getRank()),
       Rank(getRank())});
  if (const auto inner = fallback()) inner->abort();
}

void AikidoBackend::shutdown() {
  if (communicator_->engine().is_forked()) return;
  communicator_->shutdown(linger_);
  if (const auto inner = fallback()) inner->shutdown();
}

std::map<std::string, uint64_t> AikidoBackend::fallback_calls() const {
  const std::lock_guard lock(mutex_);
  return fallback_calls_;
}

// ---- submitting ----

c10::intrusive_ptr<AikidoWork> AikidoBackend::submit(Call call, OpType type,
                                                     const char* title, LocalCall local,
                                                     const Tensors& inputs,
                                                     AikidoWork::Memory memory,
                                                     Milliseconds timeout) {
  check_process();
  raise_if_failed(collectives::validate(call, getSize()));
  auto work = c10::make_intrusive<AikidoWork>(getRank(), type, title, inputs,
                                              std::move(memory), finisher_);
  local.keep_alive = keep_alive(work);
  local.on_done = [work](const Status& status,
                         const collectives::Outcome& outcome) mutable {
    AikidoWork::complete(std::move(work), status, outcome);
  };
  work->set_sequence_number(communicator_->call(std::move(call), std::move(local),
                                                timeout_or(timeout, this->timeout())));
  return work;
}

// A child has no progress thread: a call of it would never end.
void AikidoBackend::check_process() const {
  if (!communicator_->engine().is_forked()) return;
  raise({Code::kInvalidArgument,
         concat("this process was forked from rank ", getRank(), " of group \"",
                group_name_, "\" and is no member of it; call from rank ", getRank(),
                " itself, or start the process with spawn and make a group in it")});
}

AikidoBackend::WorkPtr AikidoBackend::allreduce(Tensors& tensors,
                                                const ::c10d::AllreduceOptions& opts) {
  const CallSite site{"all_reduce", getRank()};
  return allreduce_with(check_single(site, "tensor", tensors), opts.reduceOp, {},
                        opts.timeout);
}

c10::intrusive_ptr<AikidoWork> AikidoBackend::allreduce_with(
    at::Tensor tensor, const ::c10d::ReduceOp& op, const AllreduceExtras& extras,
    Milliseconds timeout) {
  const CallSite site{"all_reduce", getRank()};
  check_tensor(site, "tensor", tensor);
  Call call;
  call.kind = CallKind::kAllreduce;
  call.dtype = dtype_for_reduction(site, tensor);
  call.op = reduce_op(site, op, call.dtype);
  call.count = static_cast<uint64_t>(tensor.numel());
  call.policy = extras.policy;
  check_policy(site, call.policy, call.op, call.dtype, getSize());
  AikidoWork::Copies copies;
  const at::Tensor host = stage_in_out(tensor, copies);
  LocalCall local;
  local.input = bytes_of(host);
  local.output = mutable_bytes_of(host);
  local.priority = extras.priority;
  return submit(std::move(call), OpType::ALLREDUCE, "aikido:all_reduce",
                std::move(local), {tensor}, {{tensor}, std::move(copies), {host}},
                timeout);
}

AikidoBackend::WorkPtr AikidoBackend::broadcast(Tensors& tensors,
                                                const ::c10d::BroadcastOptions& opts) {
  const CallSite site{"broadcast", getRank()};
  const at::Tensor& tensor = check_single(site, "tensor", tensors);
  check_rank(site, "src", opts.rootRank, getSize());
  Call call;
  call.kind = CallKind::kBroadcast;
  call.dtype = dtype_for_copy(tensor);
  call.count = count_for_copy(tensor);
  call.root = Rank(static_cast<int32_t>(opts.rootRank));
  AikidoWork::Copies copies;
  const bool is_root = getRank() == opts.rootRank;
  const at::Tensor host = is_root ? stage_in(tensor) : stage_out(tensor, copies);
  LocalCall local;
  if (is_root) {
    for (int r = 0; r < getSize(); ++r) {
      if (r != getRank())
        local.out_blocks.push_back({Rank(r), bytes_of(host), host.nbytes()});
    }
  } else {
    local.in_blocks.push_back({call.root, mutable_bytes_of(host), host.nbytes()});
  }
  return submit(std::move(call), OpType::BROADCAST, "aikido:broadcast",
                std::move(local), {tensor}, {{tensor}, std::move(copies), {host}},
                opts.timeout);
}

// Everybody's `input` into `blocks`, one per rank.
AikidoBackend::WorkPtr AikidoBackend::gather_all(const char* name, OpType type,
                                                 const at::Tensor& input,
                                                 const Tensors& blocks,
                                                 AikidoWork::Memory memory,
                                                 Milliseconds timeout) {
  Call call;
  call.kind = CallKind::kAllgather;
  call.dtype = dtype_for_copy(input);
  call.count = count_for_copy(input);
  LocalCall local;
  for (int r = 0; r < getSize(); ++r) {
    const at::Tensor& block = blocks[static_cast<size_t>(r)];
    if (r == getRank()) {
      if (bytes_of(block) != bytes_of(input) && block.nbytes() > 0) {
        std::memmove(mutable_bytes_of(block), bytes_of(input), block.nbytes());
      }
      continue;
    }
    local.out_blocks.push_back({Rank(r), bytes_of(input), input.nbytes()});
    local.in_blocks.push_back({Rank(r), mutable_bytes_of(block), block.nbytes()});
  }
  return submit(std::move(call), type, name, std::move(local), {input},
                std::move(memory), timeout);
}

AikidoBackend::WorkPtr AikidoBackend::allgather(std::vector<Tensors>& outputs,
                                                Tensors& inputs,
                                                const ::c10d::AllgatherOptions& opts) {
  const CallSite site{"all_gather", getRank()};
  const at::Tensor& input = check_single(site, "tensor", inputs);
  if (outputs.size() != 1 || outputs[0].size() != static_cast<size_t>(getSize())) {
    raise({Code::kInvalidArgument,
           concat("all_gather on rank ", getRank(), ": argument tensor_list has ",
                  outputs.size() == 1 ? outputs[0].size() : outputs.size(),
                  " tensors; it takes one per rank, ", getSize())});
  }
  AikidoWork::Copies copies;
  Tensors blocks;
  const at::Tensor host = stage_in(input);
  Tensors held{host};
  for (const at::Tensor& output : outputs[0]) {
    check_tensor(site, "tensor_list", output);
    check_same(site, "tensor", input, "tensor_list", output);
    blocks.push_back(stage_out(output, copies));
    held.push_back(blocks.back());
  }
  return gather_all("aikido:all_gather", OpType::ALLGATHER, host, blocks,
                    {outputs[0], std::move(copies), std::move(held)}, opts.timeout);
}

AikidoBackend::WorkPtr AikidoBackend::_allgather_base(
    at::Tensor& output, at::Tensor& input, const ::c10d::AllgatherOptions& opts) {
  const CallSite site{"all_gather_into_tensor", getRank()};
  check_tensor(site, "input_tensor", input);
  check_tensor(site, "output_tensor", output);
  if (output.scalar_type() != input.scalar_type() ||
      output.numel() != input.numel() * getSize()) {
    raise({Code::kInvalidArgument,
           concat("all_gather_into_tensor on rank ", getRank(), ": output_tensor is ",
                  output.scalar_type(), output.sizes(), " but ", getSize(),
                  " times input_tensor ", input.scalar_type(), input.sizes(),
                  " is needed")});
  }
  AikidoWork::Copies copies;
  const at::Tensor host_in = stage_in(input);
  const at::Tensor host_out = stage_out(output, copies);
  Tensors blocks;
  const at::Tensor flat = host_out.view({-1});
  for (int r = 0; r < getSize(); ++r) {
    blocks.push_back(flat.narrow(0, r * input.numel(), input.numel()));
  }
  return gather_all("aikido:all_gather_into_tensor", OpType::_ALLGATHER_BASE, host_in,
                    blocks, {{output}, std::move(copies), {host_in, host_out}},
                    opts.timeout);
}

AikidoBackend::WorkPtr AikidoBackend::barrier(const ::c10d::BarrierOptions& opts) {
  Call call;
  call.kind = CallKind::kBarrier;
  return submit(std::move(call), OpType::BARRIER, "aikido:barrier", {}, {}, {},
                opts.timeout);
}

// ---- point to point ----

AikidoBackend::WorkPtr AikidoBackend::send(Tensors& tensors, int to, int tag) {
  const CallSite site{"send", getRank()};
  const at::Tensor& tensor = check_single(site, "tensor", tensors);
  check_rank(site, "dst", to, getSize());
  check_process();
  const at::Tensor host = stage_in(tensor);
  auto work =
      c10::make_intrusive<AikidoWork>(getRank(), OpType::SEND, "aikido:send", tensors,
                                      AikidoWork::Memory{{}, {}, {host}}, finisher_);
  collectives::SendCall call;
  call.to = Rank(to);
  call.tag = tag;
  call.data = bytes_of(host);
  call.bytes = host.nbytes();
  call.deadline = SystemClock().now() + timeout();
  call.keep_alive = keep_alive(work);
  call.on_done = [work](const Status& status, Rank peer) mutable {
    AikidoWork::complete_message(std::move(work), status, peer);
  };
  communicator_->send(std::move(call));
  return work;
}

AikidoBackend::WorkPtr AikidoBackend::recv(Tensors& tensors, int from, int tag) {
  return receive(tensors, from, tag);
}

AikidoBackend::WorkPtr AikidoBackend::recvAnysource(Tensors& tensors, int tag) {
  return receive(tensors, std::nullopt, tag);
}

AikidoBackend::WorkPtr AikidoBackend::receive(Tensors& tensors, std::optional<int> from,
                                              int tag) {
  const CallSite site{"recv", getRank()};
  const at::Tensor& tensor = check_single(site, "tensor", tensors);
  if (from) check_rank(site, "src", *from, getSize());
  check_process();
  AikidoWork::Copies copies;
  const at::Tensor host = stage_out(tensor, copies);
  auto work = c10::make_intrusive<AikidoWork>(
      getRank(), from ? OpType::RECV : OpType::RECVANYSOURCE, "aikido:recv", tensors,
      AikidoWork::Memory{tensors, std::move(copies), {host}}, finisher_);
  collectives::ReceiveCall call;
  if (from) call.from = Rank(*from);
  call.tag = tag;
  call.data = mutable_bytes_of(host);
  call.bytes = host.nbytes();
  call.deadline = SystemClock().now() + timeout();
  call.keep_alive = keep_alive(work);
  call.on_done = [work](const Status& status, Rank peer) mutable {
    AikidoWork::complete_message(std::move(work), status, peer);
  };
  communicator_->receive(std::move(call));
  return work;
}

}  // namespace aikido::adapter

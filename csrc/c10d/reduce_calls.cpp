// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
//
// Calls of AikidoBackend that fold contributions with an op.

#include <algorithm>
#include <utility>

#include "c10d/aikido_backend.h"
#include "c10d/common/blocks.h"
#include "c10d/common/call_of.h"
#include "c10d/common/error.h"
#include "c10d/common/overlap.h"
#include "c10d/common/premultiplied.h"
#include "c10d/device/staging.h"

namespace aikido::adapter {

using ::c10d::OpType;
using collectives::Call;
using collectives::CallKind;
using collectives::LocalCall;
using collectives::Shape;

namespace {

// Other algorithms begin only when the whole input is there.
bool may_go_in_parts(const Call& call, const at::Tensor& tensor) {
  return !tensor.device().is_cpu() && !call.is_partial() &&
         call.algorithm == Algorithm::kDirect;
}

// Reduce_scatter to `size` ranks that each get as many elements as `output`.
Call even_scatter(const CallSite& site, const at::Tensor& output,
                  const ::c10d::ReduceOp& op, const ReductionExtras& extras, int size) {
  Call call = call_of(CallKind::kReduceScatter, site, output, op);
  call.policy = extras.policy;
  call.is_weighted = extras.weight.has_value();
  check_weight(site, extras.weight);
  check_policy(site, call.policy, call.op, call.dtype, size);
  check_no_backups(site, call.policy);
  call.count *= static_cast<uint64_t>(size);
  return call;
}

// `blocks`: contributions of this rank to the result of each rank.
OwnWork scatter_reduced(CallPath& calls, const CallScope& site, Call call,
                        const Title& title, const at::Tensor& output, OutBlocks blocks,
                        AikidoWork::Memory memory, const ReductionExtras& extras,
                        Milliseconds timeout) {
  const InBlock result = in_block(calls.rank(), output);
  set_apart(blocks, {result}, calls.rank(), memory.held);
  LocalCall local = calls.local_call();
  local.output = result.data;
  local.out_blocks = std::move(blocks);
  if (extras.priority) local.priority = *extras.priority;
  local.weight = extras.weight.value_or(1.0);
  return calls.submit(site, std::move(call), title, std::move(local), {output},
                      std::move(memory), timeout);
}

}  // namespace

WorkPtr AikidoBackend::allreduce(Tensors& tensors,
                                 const ::c10d::AllreduceOptions& opts) {
  if (tensors.size() == 1 && tensors[0].defined() && tensors[0].is_sparse())
    return allreduce_sparse(tensors, opts);
  if (tensors.size() != 1)
    check_single(calls_.collective("all_reduce"), "tensor", tensors,
                 Use::kWrite);  // throws
  return allreduce_with(tensors[0], opts.reduceOp, {}, opts.timeout);
}

OwnWork AikidoBackend::allreduce_with(at::Tensor tensor, const ::c10d::ReduceOp& op,
                                      const ReductionExtras& extras,
                                      Milliseconds timeout) {
  const CallScope site = calls_.collective("all_reduce");
  check_tensor(site, "tensor", tensor, Use::kWrite);
  Call call = call_of(CallKind::kAllreduce, site, tensor, op);
  call.policy = extras.policy;
  call.is_weighted = extras.weight.has_value();
  check_weight(site, extras.weight);
  call.algorithm = selector_.choose(call, getSize());
  check_policy(site, call.policy, call.op, call.dtype, getSize());
  const int32_t data_shard =
      check_data_shard(site, call.policy, getRank(), getSize(), extras.data_shard);
  const Route route = calls_.route_of(site, call, {tensor}, &op, timeout);
  if (route.nccl) {
    return calls_.submit_nccl(site,
                              {std::move(call),
                               OpType::ALLREDUCE,
                               "aikido:all_reduce",
                               {tensor},
                               {tensor},
                               timeout},
                              [&](NcclTensors& stand_ins) {
                                Tensors given{stand_ins.in_out(tensor)};
                                ::c10d::AllreduceOptions opts;
                                opts.reduceOp = op;
                                return route.nccl->allreduce(given, opts);
                              });
  }
  if (route.is_ipc)
    return calls_.submit_ipc(site, std::move(call), tensor, extras.priority, timeout);
  const bool is_multiplied = is_premultiplied(op);
  Staging staging(site, calls_.transfers());
  const auto min_shard_bytes =
      static_cast<size_t>(group_.settings.values.collectives_min_shard_bytes);
  const at::Tensor product =
      is_multiplied ? staging.in(premultiplied(op, tensor)) : at::Tensor();
  const at::Tensor host =
      is_multiplied ? staging.out(tensor)
      : may_go_in_parts(call, tensor)
          ? staging.in_out(
                tensor, {call.count, size_of(call.dtype), getSize(), min_shard_bytes},
                group_.services->callback_thread)
          : staging.in_out(tensor);
  const bool fills_slot = extras.result_slot && call.is_partial() && !is_multiplied &&
                          tensor.device().is_cpu() && getSize() > 1;
  LocalCall local = calls_.local_call();
  local.input = bytes_of(is_multiplied ? product : host);
  if (fills_slot)
    local.result_slot = extras.result_slot;
  else
    local.output = mutable_bytes_of(host);
  if (extras.priority) local.priority = *extras.priority;
  local.data_shard = data_shard;
  local.weight = extras.weight.value_or(1.0);
  return calls_.submit(site, std::move(call), {OpType::ALLREDUCE, "aikido:all_reduce"},
                       std::move(local), {tensor},
                       {{tensor}, staging.take(), {host, product}}, timeout);
}

WorkPtr AikidoBackend::allreduce_coalesced(
    Tensors& tensors, const ::c10d::AllreduceCoalescedOptions& opts) {
  const CallScope site = calls_.collective("all_reduce_coalesced", tensors.size());
  check_list(site, "tensors", tensors, std::nullopt, Use::kWrite);
  for (const at::Tensor& t : tensors)
    reduce_op(site, opts.reduceOp, dtype_for_reduction(site, t));
  return calls_.coalesced({OpType::ALLREDUCE_COALESCED, "aikido:all_reduce"}, tensors,
                          [&] {
                            for (const at::Tensor& t : tensors)
                              allreduce_with(t, opts.reduceOp, {}, opts.timeout);
                          });
}

WorkPtr AikidoBackend::reduce(Tensors& tensors, const ::c10d::ReduceOptions& opts) {
  const CallScope site = calls_.collective("reduce");
  const bool is_root = getRank() == opts.rootRank;
  const at::Tensor& tensor =
      check_single(site, "tensor", tensors, is_root ? Use::kWrite : Use::kRead);
  check_rank(site, "dst", opts.rootRank, getSize());
  Call call = call_of(CallKind::kReduce, site, tensor, opts.reduceOp);
  call.root = Rank(static_cast<int32_t>(opts.rootRank));
  const Route route =
      calls_.route_of(site, call, {tensor}, &opts.reduceOp, opts.timeout);
  if (route.nccl) {
    return calls_.submit_nccl(
        site,
        {std::move(call),
         OpType::REDUCE,
         "aikido:reduce",
         {tensor},
         {tensor},
         opts.timeout},
        [&](NcclTensors& stand_ins) {
          // NCCL keeps the tensors of the other ranks unchanged; Gloo does not.
          Tensors given{is_root ? stand_ins.in_out(tensor) : stand_ins.in(tensor)};
          ::c10d::ReduceOptions there;
          there.reduceOp = opts.reduceOp;
          there.rootRank = opts.rootRank;
          return route.nccl->reduce(given, there);
        });
  }
  Staging staging(site, calls_.transfers());
  const bool is_in_place = is_root && !is_premultiplied(opts.reduceOp);
  const at::Tensor input = is_in_place
                               ? staging.in_out(tensor)
                               : staging.in(premultiplied(opts.reduceOp, tensor));
  const at::Tensor output = is_root && !is_in_place ? staging.out(tensor) : input;
  LocalCall local = calls_.local_call();
  local.input = bytes_of(input);
  local.output = is_root ? mutable_bytes_of(output) : nullptr;
  return calls_.submit(site, std::move(call), {OpType::REDUCE, "aikido:reduce"},
                       std::move(local), {tensor},
                       {{tensor}, staging.take(), {input, output}}, opts.timeout);
}

WorkPtr AikidoBackend::reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                      const ::c10d::ReduceScatterOptions& opts) {
  if (outputs.size() != 1 || inputs.size() != 1) {
    const CallScope site = calls_.collective("reduce_scatter");
    check_single(site, "output", outputs, Use::kWrite);
    check_single_list(site, "input_list", inputs);  // throws, if the other does not
  }
  return reduce_scatter_with(outputs[0], inputs[0], opts.reduceOp, {}, opts.timeout);
}

OwnWork AikidoBackend::reduce_scatter_with(const at::Tensor& output,
                                           const Tensors& list,
                                           const ::c10d::ReduceOp& op,
                                           const ReductionExtras& extras,
                                           Milliseconds timeout) {
  const CallScope site = calls_.collective("reduce_scatter");
  check_tensor(site, "output", output, Use::kWrite);
  check_list(site, "input_list", list, getSize(), Use::kRead);
  check_all_same_kind(site, "output", output, "input_list", list);
  const auto own = static_cast<size_t>(getRank());
  check_same(site, "output", output, Argument("input_list")[own], list[own]);
  Tensors given = list;
  given.push_back(output);
  Call call = even_scatter(site, output, op, extras, getSize());
  const bool is_even = std::all_of(list.begin(), list.end(), [&](const at::Tensor& t) {
    return t.numel() == output.numel();
  });
  Route route;
  if (is_even) {
    route = calls_.route_of(site, call, given, &op, timeout);
  } else {
    // Blocks of different sizes go through the host. They have no common shape to
    // compare.
    call.shape = Shape();
    call.count = 0;
    for (const at::Tensor& t : list) call.count += static_cast<uint64_t>(t.numel());
    check_call(site, call, getSize());
  }
  if (route.nccl) {
    return calls_.submit_nccl(
        site,
        {std::move(call),
         OpType::REDUCE_SCATTER,
         "aikido:reduce_scatter",
         {output},
         {output},
         timeout},
        [&](NcclTensors& stand_ins) {
          Tensors result{stand_ins.out(output)};
          std::vector<Tensors> lists(1);
          for (const at::Tensor& t : list)
            lists[0].push_back(stand_ins.in(t, result, kNoOutput));
          ::c10d::ReduceScatterOptions opts;
          opts.reduceOp = op;
          return route.nccl->reduce_scatter(result, lists, opts);
        });
  }
  Staging staging(site, calls_.transfers());
  const at::Tensor host = staging.out(output);
  Tensors held;
  for (const at::Tensor& t : list) held.push_back(staging.in(premultiplied(op, t)));
  OutBlocks blocks = out_blocks(held);
  held.push_back(host);
  return scatter_reduced(calls_, site, std::move(call),
                         {OpType::REDUCE_SCATTER, "aikido:reduce_scatter"}, host,
                         std::move(blocks), {{output}, staging.take(), std::move(held)},
                         extras, timeout);
}

WorkPtr AikidoBackend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                            const ::c10d::ReduceScatterOptions& opts) {
  return reduce_scatter_tensor_with(output, input, opts.reduceOp, {}, opts.timeout);
}

OwnWork AikidoBackend::reduce_scatter_tensor_with(const at::Tensor& output,
                                                  const at::Tensor& input,
                                                  const ::c10d::ReduceOp& op,
                                                  const ReductionExtras& extras,
                                                  Milliseconds timeout) {
  const CallScope site = calls_.collective("reduce_scatter_tensor");
  check_tensor(site, "output", output, Use::kWrite);
  check_tensor(site, "input", input, Use::kRead);
  check_times(site, "output", output, "input", input, getSize());
  Call call = even_scatter(site, output, op, extras, getSize());
  const Route route = calls_.route_of(site, call, {output, input}, &op, timeout);
  if (route.nccl) {
    return calls_.submit_nccl(
        site,
        {std::move(call),
         OpType::_REDUCE_SCATTER_BASE,
         "aikido:reduce_scatter_tensor",
         {output},
         {output},
         timeout},
        [&](NcclTensors& stand_ins) {
          at::Tensor result = stand_ins.out(output);
          at::Tensor given = stand_ins.in(input, {result}, kNoOutput);
          ::c10d::ReduceScatterOptions opts;
          opts.reduceOp = op;
          return route.nccl->_reduce_scatter_base(result, given, opts);
        });
  }
  Staging staging(site, calls_.transfers());
  const at::Tensor host_in = staging.in(premultiplied(op, input));
  const at::Tensor host_out = staging.out(output);
  return scatter_reduced(calls_, site, std::move(call),
                         {OpType::_REDUCE_SCATTER_BASE, "aikido:reduce_scatter_tensor"},
                         host_out, out_blocks(host_in, {}, getSize()),
                         {{output}, staging.take(), {host_in, host_out}}, extras,
                         timeout);
}

WorkPtr AikidoBackend::reduce_scatter_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const ::c10d::ReduceScatterOptions& opts) {
  const CallScope site =
      calls_.collective("reduce_scatter_tensor_coalesced", inputs.size());
  check_pairs(site, inputs, outputs);
  for (size_t i = 0; i < inputs.size(); ++i) {
    check_times(site, "outputs", outputs[i], "inputs", inputs[i], getSize());
    reduce_op(site, opts.reduceOp, dtype_for_reduction(site, inputs[i]));
  }
  return calls_.coalesced({OpType::COALESCED, "aikido:reduce_scatter_tensor"}, inputs,
                          [&] {
                            for (size_t i = 0; i < inputs.size(); ++i)
                              _reduce_scatter_base(outputs[i], inputs[i], opts);
                          });
}

}  // namespace aikido::adapter

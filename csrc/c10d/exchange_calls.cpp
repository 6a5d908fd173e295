// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
//
// Calls of AikidoBackend that move blocks between ranks without folding them.

#include <utility>

#include "c10d/aikido_backend.h"
#include "c10d/common/blocks.h"
#include "c10d/common/call_of.h"
#include "c10d/common/error.h"
#include "c10d/common/overlap.h"
#include "c10d/device/staging.h"

namespace aikido::adapter {

using ::c10d::OpType;
using collectives::Call;
using collectives::CallKind;
using collectives::LocalCall;

namespace {

std::vector<at::Tensor> with(std::vector<at::Tensor> list, const at::Tensor& last) {
  list.push_back(last);
  return list;
}

Call call_with_root(CallKind kind, const at::Tensor& tensor, int64_t root) {
  Call call = call_of(kind, tensor);
  call.root = Rank(static_cast<int32_t>(root));
  return call;
}

// Members compare the dtype only, because the sizes may differ between any two members.
Call alltoall_of(const at::Tensor& tensor) {
  Call call;
  call.kind = CallKind::kAlltoall;
  call.dtype = dtype_for_copy(tensor);
  return call;
}

// Removes the blocks of rank `own`, which are copied without a message.
void drop_own(LocalCall& local, int own) {
  std::erase_if(local.out_blocks, [&](const OutBlock& b) { return b.to == Rank(own); });
  std::erase_if(local.in_blocks, [&](const InBlock& b) { return b.from == Rank(own); });
}

// Gathers the `given` of each rank into `blocks`, one per rank.
WorkPtr gather_all(CallPath& calls, const CallScope& site, Call call,
                   const Title& title, const at::Tensor& given, InBlocks blocks,
                   AikidoWork::Memory memory, Milliseconds timeout) {
  const int own = calls.rank();
  OutBlocks mine{out_block(own, given)};
  set_apart(mine, blocks, own, memory.held);
  copy_own(memory.staged, mine.front(), blocks[static_cast<size_t>(own)], memory.held);
  LocalCall local = calls.local_call();
  local.out_blocks.reserve(blocks.size());
  for (const InBlock& block : blocks)
    local.out_blocks.push_back({block.from, mine.front().data, mine.front().bytes});
  local.in_blocks = std::move(blocks);
  drop_own(local, own);
  return calls.submit(site, std::move(call), title, std::move(local), {given},
                      std::move(memory), timeout);
}

// Gathers the `input` of each rank into the root's `blocks`, one per rank. Other ranks
// have no blocks.
WorkPtr gather_to_root(CallPath& calls, const CallScope& site, Call call,
                       const char* title, const at::Tensor& input, InBlocks blocks,
                       AikidoWork::Memory memory, Milliseconds timeout) {
  const int own = calls.rank();
  const OutBlock mine = out_block(own, input);
  LocalCall local = calls.local_call();
  if (Rank(own) == call.root) {
    copy_own(memory.staged, mine, blocks[static_cast<size_t>(own)], memory.held);
    local.in_blocks = std::move(blocks);
    drop_own(local, own);
  } else {
    local.out_blocks.push_back({call.root, mine.data, mine.bytes});
  }
  return calls.submit(site, std::move(call), {OpType::GATHER, title}, std::move(local),
                      {input}, std::move(memory), timeout);
}

// Sends one of `outs` to each rank, and receives one of `ins` from each.
WorkPtr exchange_all(CallPath& calls, const CallScope& site, Call call,
                     const Title& title, const Tensors& given, OutBlocks outs,
                     InBlocks ins, AikidoWork::Memory memory, Milliseconds timeout) {
  const int own = calls.rank();
  const InBlock& into = ins[static_cast<size_t>(own)];
  check_own_bytes(site, outs[static_cast<size_t>(own)].bytes, into.bytes);
  set_apart(outs, ins, own, memory.held);
  copy_own(memory.staged, outs[static_cast<size_t>(own)], into, memory.held);
  LocalCall local = calls.local_call();
  local.out_blocks = std::move(outs);
  local.in_blocks = std::move(ins);
  drop_own(local, own);
  return calls.submit(site, std::move(call), title, std::move(local), given,
                      std::move(memory), timeout);
}

}  // namespace

WorkPtr AikidoBackend::broadcast(Tensors& tensors,
                                 const ::c10d::BroadcastOptions& opts) {
  const CallScope site = calls_.collective("broadcast");
  const bool is_root = getRank() == opts.rootRank;
  const at::Tensor& tensor =
      check_single(site, "tensor", tensors, is_root ? Use::kRead : Use::kWrite);
  check_rank(site, "src", opts.rootRank, getSize());
  Call call = call_with_root(CallKind::kBroadcast, tensor, opts.rootRank);
  const Route route = calls_.route_of(site, call, {tensor}, nullptr, opts.timeout);
  if (route.nccl) {
    return calls_.submit_nccl(
        site,
        {std::move(call),
         OpType::BROADCAST,
         "aikido:broadcast",
         {tensor},
         {tensor},
         opts.timeout},
        [&](NcclTensors& stand_ins) {
          Tensors given{is_root ? stand_ins.in(tensor) : stand_ins.out(tensor)};
          ::c10d::BroadcastOptions there;
          there.rootRank = opts.rootRank;
          return route.nccl->broadcast(given, there);
        });
  }
  Staging staging(site, calls_.transfers());
  const at::Tensor host = is_root ? staging.in(tensor) : staging.out(tensor);
  LocalCall local = calls_.local_call();
  if (is_root) {
    for (int r = 0; r < getSize(); ++r) {
      if (r != getRank()) local.out_blocks.push_back(out_block(r, host));
    }
  } else {
    local.in_blocks.push_back(in_block(static_cast<int>(opts.rootRank), host));
  }
  return calls_.submit(site, std::move(call), {OpType::BROADCAST, "aikido:broadcast"},
                       std::move(local), {tensor}, {{tensor}, staging.take(), {host}},
                       opts.timeout);
}

WorkPtr AikidoBackend::allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                                 const ::c10d::AllgatherOptions& opts) {
  const CallScope site = calls_.collective("all_gather");
  const at::Tensor& input = check_single(site, "tensor", inputs, Use::kRead);
  const Tensors& list = check_single_list(site, "tensor_list", outputs);
  check_list(site, "tensor_list", list, getSize(), Use::kWrite);
  check_all_same(site, "tensor", input, "tensor_list", list);
  Call call = call_of(CallKind::kAllgather, input);
  const Route route =
      calls_.route_of(site, call, with(list, input), nullptr, opts.timeout);
  if (route.nccl) {
    return calls_.submit_nccl(
        site,
        {std::move(call),
         OpType::ALLGATHER,
         "aikido:all_gather",
         {input},
         list,
         opts.timeout},
        [&](NcclTensors& stand_ins) {
          std::vector<Tensors> results(1);
          for (const at::Tensor& output : list)
            results[0].push_back(stand_ins.out(output));
          Tensors given{stand_ins.in(input, results[0], kNoOutput)};
          return route.nccl->allgather(results, given);
        });
  }
  Staging staging(site, calls_.transfers());
  const at::Tensor host = staging.in(input);
  Tensors held;
  for (const at::Tensor& output : list) held.push_back(staging.out(output));
  InBlocks blocks = in_blocks(held);
  held.push_back(host);
  return gather_all(calls_, site, std::move(call),
                    {OpType::ALLGATHER, "aikido:all_gather"}, host, std::move(blocks),
                    {list, staging.take(), std::move(held)}, opts.timeout);
}

WorkPtr AikidoBackend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                       const ::c10d::AllgatherOptions& opts) {
  const CallScope site = calls_.collective("all_gather_into_tensor");
  check_tensor(site, "input_tensor", input, Use::kRead);
  check_tensor(site, "output_tensor", output, Use::kWrite);
  check_times(site, "input_tensor", input, "output_tensor", output, getSize());
  Call call = call_of(CallKind::kAllgather, input);
  const Route route =
      calls_.route_of(site, call, {output, input}, nullptr, opts.timeout);
  if (route.nccl) {
    return calls_.submit_nccl(site,
                              {std::move(call),
                               OpType::_ALLGATHER_BASE,
                               "aikido:all_gather_into_tensor",
                               {input},
                               {output},
                               opts.timeout},
                              [&](NcclTensors& stand_ins) {
                                at::Tensor result = stand_ins.out(output);
                                at::Tensor given =
                                    stand_ins.in(input, equal_blocks(result, getSize()),
                                                 static_cast<size_t>(getRank()));
                                return route.nccl->_allgather_base(result, given);
                              });
  }
  Staging staging(site, calls_.transfers());
  const at::Tensor host_in = staging.in(input);
  const at::Tensor host_out = staging.out(output);
  return gather_all(calls_, site, std::move(call),
                    {OpType::_ALLGATHER_BASE, "aikido:all_gather_into_tensor"}, host_in,
                    in_blocks(host_out, {}, getSize()),
                    {{output}, staging.take(), {host_in, host_out}}, opts.timeout);
}

// outputs[r][i] is input i of rank r.
WorkPtr AikidoBackend::allgather_coalesced(std::vector<Tensors>& outputs,
                                           Tensors& inputs,
                                           const ::c10d::AllgatherOptions& opts) {
  const CallScope site = calls_.collective("all_gather_coalesced", inputs.size());
  check_list(site, "input_tensor_list", inputs, std::nullopt, Use::kRead);
  check_count(site, "output_tensor_lists", outputs.size(), getSize());
  const Argument own = "input_tensor_list";
  const Argument lists = "output_tensor_lists";
  for (size_t r = 0; r < outputs.size(); ++r) {
    check_list(site, lists[r], outputs[r], static_cast<int>(inputs.size()),
               Use::kWrite);
    for (size_t i = 0; i < inputs.size(); ++i)
      check_same(site, own[i], inputs[i], lists[r][i], outputs[r][i]);
  }
  return calls_.coalesced({OpType::ALLGATHER_COALESCED, "aikido:all_gather"}, inputs,
                          [&] {
                            for (size_t i = 0; i < inputs.size(); ++i) {
                              std::vector<Tensors> one(1);
                              for (const Tensors& list : outputs)
                                one[0].push_back(list[i]);
                              Tensors input{inputs[i]};
                              allgather(one, input, opts);
                            }
                          });
}

WorkPtr AikidoBackend::allgather_into_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const ::c10d::AllgatherOptions& opts) {
  const CallScope site =
      calls_.collective("all_gather_into_tensor_coalesced", inputs.size());
  check_pairs(site, inputs, outputs);
  for (size_t i = 0; i < inputs.size(); ++i)
    check_times(site, "inputs", inputs[i], "outputs", outputs[i], getSize());
  return calls_.coalesced(
      {OpType::ALLGATHER_COALESCED, "aikido:all_gather_into_tensor"}, inputs, [&] {
        for (size_t i = 0; i < inputs.size(); ++i)
          _allgather_base(outputs[i], inputs[i], opts);
      });
}

WorkPtr AikidoBackend::gather(std::vector<Tensors>& outputs, Tensors& inputs,
                              const ::c10d::GatherOptions& opts) {
  const CallScope site = calls_.collective("gather");
  const at::Tensor& input = check_single(site, "tensor", inputs, Use::kRead);
  check_rank(site, "dst", opts.rootRank, getSize());
  const bool is_root = getRank() == opts.rootRank;
  Tensors results;
  if (is_root) {
    results = check_single_list(site, "gather_list", outputs);
    check_list(site, "gather_list", results, getSize(), Use::kWrite);
    check_all_same(site, "tensor", input, "gather_list", results);
  } else if (!outputs.empty()) {
    check_count(site, "gather_list", outputs[0].size(), 0);
  }
  Call call = call_with_root(CallKind::kGather, input, opts.rootRank);
  const Route route =
      calls_.route_of(site, call, with(results, input), nullptr, opts.timeout);
  if (route.nccl) {
    return calls_.submit_nccl(
        site,
        {std::move(call),
         OpType::GATHER,
         "aikido:gather",
         {input},
         results,
         opts.timeout},
        [&](NcclTensors& stand_ins) {
          std::vector<Tensors> lists(is_root ? 1 : 0);
          for (const at::Tensor& output : results)
            lists[0].push_back(stand_ins.out(output));
          Tensors given{stand_ins.in(input, is_root ? lists[0] : Tensors(), kNoOutput)};
          ::c10d::GatherOptions there;
          there.rootRank = opts.rootRank;
          return route.nccl->gather(lists, given, there);
        });
  }
  Staging staging(site, calls_.transfers());
  Tensors held;
  for (const at::Tensor& output : results) held.push_back(staging.out(output));
  InBlocks blocks = in_blocks(held);
  const at::Tensor host = held.emplace_back(staging.in(input));
  return gather_to_root(
      calls_, site, std::move(call), "aikido:gather", host, std::move(blocks),
      {std::move(results), staging.take(), std::move(held)}, opts.timeout);
}

WorkPtr AikidoBackend::gather_into_tensor(at::Tensor& output, at::Tensor& input,
                                          const ::c10d::GatherOptions& opts) {
  const CallScope site = calls_.collective("gather_single");
  check_contiguous(site, "input", input);
  check_rank(site, "dst", opts.rootRank, getSize());
  Tensors results;
  if (getRank() == opts.rootRank) {
    check_contiguous(site, "output", output);
    check_times(site, "input", input, "output", output, getSize());
    results = {output};
  }
  Call call = call_with_root(CallKind::kGather, input, opts.rootRank);
  const Route route =
      calls_.route_of(site, call, with(results, input), nullptr, opts.timeout);
  if (route.nccl) {
    return calls_.submit_nccl(
        site,
        {std::move(call),
         OpType::GATHER,
         "aikido:gather_single",
         {input},
         results,
         opts.timeout},
        [&](NcclTensors& stand_ins) {
          std::vector<Tensors> lists;
          for (const at::Tensor& t : results)
            lists.push_back(equal_blocks(stand_ins.out(t), getSize()));
          Tensors given{
              stand_ins.in(input, lists.empty() ? Tensors() : lists[0], kNoOutput)};
          ::c10d::GatherOptions there;
          there.rootRank = opts.rootRank;
          return route.nccl->gather(lists, given, there);
        });
  }
  Staging staging(site, calls_.transfers());
  Tensors held{staging.in(input)};
  InBlocks blocks;
  if (getRank() == opts.rootRank)
    blocks = in_blocks(held.emplace_back(staging.out(output)), {}, getSize());
  const at::Tensor host = held.front();
  return gather_to_root(
      calls_, site, std::move(call), "aikido:gather_single", host, std::move(blocks),
      {std::move(results), staging.take(), std::move(held)}, opts.timeout);
}

WorkPtr AikidoBackend::scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                               const ::c10d::ScatterOptions& opts) {
  const CallScope site = calls_.collective("scatter");
  const at::Tensor& output = check_single(site, "tensor", outputs, Use::kWrite);
  check_rank(site, "src", opts.rootRank, getSize());
  Call call = call_with_root(CallKind::kScatter, output, opts.rootRank);
  Tensors list;
  if (getRank() == opts.rootRank) {
    list = check_single_list(site, "scatter_list", inputs);
    check_list(site, "scatter_list", list, getSize(), Use::kRead);
    check_all_same(site, "tensor", output, "scatter_list", list);
  } else if (!inputs.empty()) {
    check_count(site, "scatter_list", inputs[0].size(), 0);
  }
  const Route route =
      calls_.route_of(site, call, with(list, output), nullptr, opts.timeout);
  if (route.nccl) {
    return calls_.submit_nccl(
        site,
        {std::move(call),
         OpType::SCATTER,
         "aikido:scatter",
         {output},
         {output},
         opts.timeout},
        [&](NcclTensors& stand_ins) {
          Tensors result{stand_ins.out(output)};
          std::vector<Tensors> lists(list.empty() ? 0 : 1);
          for (const at::Tensor& t : list)
            lists[0].push_back(stand_ins.in(t, result, kNoOutput));
          ::c10d::ScatterOptions there;
          there.rootRank = opts.rootRank;
          return route.nccl->scatter(result, lists, there);
        });
  }
  Staging staging(site, calls_.transfers());
  LocalCall local = calls_.local_call();
  AikidoWork::Memory memory{{output}, {}, {staging.out(output)}};
  local.in_blocks = {in_block(static_cast<int>(opts.rootRank), memory.held.front())};
  if (getRank() == opts.rootRank) {
    for (const at::Tensor& input : list) memory.held.push_back(staging.in(input));
    local.out_blocks = out_blocks({memory.held.begin() + 1, memory.held.end()});
    set_apart(local.out_blocks, local.in_blocks, getRank(), memory.held);
  }
  memory.staged = staging.take();
  if (getRank() == opts.rootRank) {
    copy_own(memory.staged, local.out_blocks[static_cast<size_t>(getRank())],
             local.in_blocks.front(), memory.held);
    drop_own(local, getRank());
  }
  return calls_.submit(site, std::move(call), {OpType::SCATTER, "aikido:scatter"},
                       std::move(local), {output}, std::move(memory), opts.timeout);
}

WorkPtr AikidoBackend::alltoall(Tensors& outputs, Tensors& inputs,
                                const ::c10d::AllToAllOptions& opts) {
  const CallScope site = calls_.collective("all_to_all");
  check_list(site, "input_tensor_list", inputs, getSize(), Use::kRead);
  check_list(site, "output_tensor_list", outputs, getSize(), Use::kWrite);
  check_all_same_kind(site, "input_tensor_list[0]", inputs[0], "input_tensor_list",
                      inputs);
  check_all_same_kind(site, "input_tensor_list[0]", inputs[0], "output_tensor_list",
                      outputs);
  Tensors both = inputs;
  both.insert(both.end(), outputs.begin(), outputs.end());
  Call call = alltoall_of(inputs[0]);
  const Route route = calls_.route_of(site, call, both, nullptr, opts.timeout);
  if (route.nccl) {
    return calls_.submit_nccl(site,
                              {std::move(call), OpType::ALLTOALL, "aikido:all_to_all",
                               inputs, outputs, opts.timeout},
                              [&](NcclTensors& stand_ins) {
                                Tensors results;
                                Tensors given;
                                for (const at::Tensor& t : outputs)
                                  results.push_back(stand_ins.out(t));
                                for (const at::Tensor& t : inputs)
                                  given.push_back(stand_ins.in(t, results, kNoOutput));
                                return route.nccl->alltoall(results, given);
                              });
  }
  Staging staging(site, calls_.transfers());
  Tensors host_in;
  Tensors host_out;
  for (const at::Tensor& t : inputs) host_in.push_back(staging.in(t));
  for (const at::Tensor& t : outputs) host_out.push_back(staging.out(t));
  Tensors held = host_in;
  held.insert(held.end(), host_out.begin(), host_out.end());
  return exchange_all(calls_, site, std::move(call),
                      {OpType::ALLTOALL, "aikido:all_to_all"}, inputs,
                      out_blocks(host_in), in_blocks(host_out),
                      {outputs, staging.take(), std::move(held)}, opts.timeout);
}

WorkPtr AikidoBackend::alltoall_base(at::Tensor& output, at::Tensor& input,
                                     std::vector<int64_t>& output_splits,
                                     std::vector<int64_t>& input_splits,
                                     const ::c10d::AllToAllOptions& opts) {
  const CallScope site = calls_.collective("all_to_all_single");
  check_contiguous(site, "input", input);
  check_contiguous(site, "output", output);
  check_same_kind(site, "input", input, "output", output);
  check_splits(site, "input", input, "input_split_sizes", input_splits, getSize());
  check_splits(site, "output", output, "output_split_sizes", output_splits, getSize());
  Call call = alltoall_of(input);
  const Route route =
      calls_.route_of(site, call, {output, input}, nullptr, opts.timeout);
  if (route.nccl) {
    return calls_.submit_nccl(
        site,
        {std::move(call),
         OpType::ALLTOALL_BASE,
         "aikido:all_to_all_single",
         {input},
         {output},
         opts.timeout},
        [&](NcclTensors& stand_ins) {
          at::Tensor result = stand_ins.out(output);
          at::Tensor given = stand_ins.in(input, {result}, kNoOutput);
          return route.nccl->alltoall_base(result, given, output_splits, input_splits);
        });
  }
  Staging staging(site, calls_.transfers());
  const at::Tensor host_in = staging.in(input);
  const at::Tensor host_out = staging.out(output);
  return exchange_all(calls_, site, std::move(call),
                      {OpType::ALLTOALL_BASE, "aikido:all_to_all_single"}, {input},
                      out_blocks(host_in, input_splits, getSize()),
                      in_blocks(host_out, output_splits, getSize()),
                      {{output}, staging.take(), {host_in, host_out}}, opts.timeout);
}

}  // namespace aikido::adapter

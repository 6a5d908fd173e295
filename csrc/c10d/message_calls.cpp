// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
//
// Calls of AikidoBackend between two ranks.

#include <utility>

#include "c10d/aikido_backend.h"
#include "c10d/common/call_of.h"
#include "c10d/common/error.h"
#include "c10d/device/pending_copies.h"
#include "c10d/device/staging.h"

namespace aikido::adapter {

using ::c10d::OpType;

namespace {

// `keep_alive` of the call holds the work until its completion. It holds it longer if a
// part of a failed message is still being sent from the tensor.
collectives::MessageCompletion completion(const c10::intrusive_ptr<AikidoWork>& work) {
  return [work = work.get()](const Status& status, Rank peer) {
    AikidoWork::complete_message(c10::intrusive_ptr<AikidoWork>::reclaim_copy(work),
                                 status, peer);
  };
}

OwnWork send_checked(CallPath& calls, const CallSite& site, const Tensors& tensors,
                     int to, int tag, std::optional<Priority> priority,
                     Milliseconds timeout) {
  check_rank(site, "dst", to, calls.size());
  const at::Tensor& tensor = tensors[0];
  const Title title{OpType::SEND, "aikido:send"};
  const auto limit = timeout_or(timeout, calls.timeout());
  const auto call_of = [&](const CallPath::Slot& slot, const at::Tensor& host) {
    collectives::SendCall call;
    call.to = Rank(to);
    call.tag = tag;
    call.data = bytes_of(host);
    call.bytes = host.nbytes();
    call.priority = priority.value_or(calls.local_call().priority);
    call.deadline = slot.called_at + limit;
    call.keep_alive = keep_alive(slot.work);
    call.on_done = completion(slot.work);
    return call;
  };
  if (stands_for_itself(tensor)) {
    CallPath::Slot slot = calls.slot(title, tensors);
    collectives::SendCall call = call_of(slot, tensor);
    slot.work->open_message(tensor, /*is_received=*/false);
    slot.communicator->send(std::move(call));
    return CallPath::close(std::move(slot));
  }
  calls.check_process();
  Staging staging(site, calls.transfers());
  const at::Tensor host = staging.in(tensor);
  Staged staged = staging.take();
  CallPath::Slot slot = calls.slot(title, tensors);
  collectives::SendCall call = call_of(slot, host);
  const TimePoint deadline = call.deadline;
  PendingCopies pending_copies(staged);
  call.hold = pending_copies.hold();
  slot.work->open({{}, std::move(staged), {host}});
  slot.communicator->send(std::move(call));
  if (pending_copies.hold())
    pending_copies.follow(*calls.transfers(), slot.communicator, deadline);
  return CallPath::close(std::move(slot));
}

WorkPtr receive(CallPath& calls, Tensors& tensors, std::optional<int> from, int tag) {
  const CallScope site = calls.message("recv");
  const at::Tensor& tensor = check_single(site, "tensor", tensors, Use::kWrite);
  if (from) check_rank(site, "src", *from, calls.size());
  const Title title = from ? Title{OpType::RECV, "aikido:recv"}
                           : Title{OpType::RECVANYSOURCE, "aikido:recvAnySource"};
  const auto call_of = [&](const CallPath::Slot& slot, std::byte* data) {
    collectives::ReceiveCall call;
    if (from) call.from = Rank(*from);
    call.tag = tag;
    call.data = data;
    call.bytes = tensor.nbytes();
    call.deadline = slot.called_at + calls.timeout();
    call.keep_alive = keep_alive(slot.work);
    call.on_done = completion(slot.work);
    return call;
  };
  if (stands_for_itself(tensor)) {
    std::byte* const data = mutable_bytes_of(tensor);
    CallPath::Slot slot = calls.slot(title, tensors);
    collectives::ReceiveCall call = call_of(slot, data);
    slot.work->open_message(tensor, /*is_received=*/true);
    slot.communicator->receive(std::move(call));
    return CallPath::close(std::move(slot));
  }
  calls.check_process();
  Staging staging(site, calls.transfers());
  const at::Tensor host = staging.out(tensor);
  CallPath::Slot slot = calls.slot(title, tensors);
  collectives::ReceiveCall call = call_of(slot, mutable_bytes_of(host));
  slot.work->open({tensors, staging.take(), {}});
  slot.communicator->receive(std::move(call));
  return CallPath::close(std::move(slot));
}

}  // namespace

WorkPtr AikidoBackend::send(Tensors& tensors, int to, int tag) {
  const CallScope site = calls_.message("send");
  check_single(site, "tensor", tensors, Use::kRead);
  return send_checked(calls_, site, tensors, to, tag, std::nullopt, timeout());
}

OwnWork AikidoBackend::send_with(const at::Tensor& tensor, int to, int tag,
                                 std::optional<Priority> priority,
                                 Milliseconds timeout) {
  const CallScope site = calls_.message("send");
  check_tensor(site, "tensor", tensor, Use::kRead);
  return send_checked(calls_, site, {tensor}, to, tag, priority, timeout);
}

WorkPtr AikidoBackend::recv(Tensors& tensors, int from, int tag) {
  return receive(calls_, tensors, from, tag);
}

WorkPtr AikidoBackend::recvAnysource(Tensors& tensors, int tag) {
  return receive(calls_, tensors, std::nullopt, tag);
}

}  // namespace aikido::adapter

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
//
// Calls of AikidoBackend between two ranks.

#include <utility>

#include "c10d/aikido_backend.h"
#include "c10d/call_scope.h"
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

}  // namespace

AikidoBackend::WorkPtr AikidoBackend::send(Tensors& tensors, int to, int tag) {
  const CallScope site = message("send");
  check_single(site, "tensor", tensors, Use::kRead);
  return send_checked(site, tensors, to, tag, std::nullopt, timeout());
}

AikidoBackend::OwnWork AikidoBackend::send_with(const at::Tensor& tensor, int to,
                                                int tag,
                                                std::optional<Priority> priority,
                                                Milliseconds timeout) {
  const CallScope site = message("send");
  check_tensor(site, "tensor", tensor, Use::kRead);
  return send_checked(site, {tensor}, to, tag, priority, timeout);
}

AikidoBackend::OwnWork AikidoBackend::send_checked(const CallSite& site,
                                                   const Tensors& tensors, int to,
                                                   int tag,
                                                   std::optional<Priority> priority,
                                                   Milliseconds timeout) {
  check_rank(site, "dst", to, getSize());
  const at::Tensor& tensor = tensors[0];
  const Title title{OpType::SEND, "aikido:send"};
  const auto limit = timeout_or(timeout, this->timeout());
  const auto call_of = [&](const Slot& slot, const at::Tensor& host) {
    collectives::SendCall call;
    call.to = Rank(to);
    call.tag = tag;
    call.data = bytes_of(host);
    call.bytes = host.nbytes();
    call.priority =
        priority.value_or(static_cast<Priority>(settings_.values.transport_priority));
    call.deadline = slot.called_at + limit;
    call.keep_alive = keep_alive(slot.work);
    call.on_done = completion(slot.work);
    return call;
  };
  if (stands_for_itself(tensor)) {
    Slot slot = this->slot(title, tensors);
    collectives::SendCall call = call_of(slot, tensor);
    slot.work->open_message(tensor, /*is_received=*/false);
    slot.communicator->send(std::move(call));
    return close(std::move(slot));
  }
  check_process();
  Staging staging(site, services_->transfers);
  const at::Tensor host = staging.in(tensor);
  Staged staged = staging.take();
  Slot slot = this->slot(title, tensors);
  collectives::SendCall call = call_of(slot, host);
  const TimePoint deadline = call.deadline;
  PendingCopies pending_copies(staged);
  call.hold = pending_copies.hold();
  slot.work->open({{}, std::move(staged), {host}});
  slot.communicator->send(std::move(call));
  if (pending_copies.hold())
    pending_copies.follow(*services_->transfers, slot.communicator, deadline);
  return close(std::move(slot));
}

AikidoBackend::WorkPtr AikidoBackend::recv(Tensors& tensors, int from, int tag) {
  return receive(tensors, from, tag);
}

AikidoBackend::WorkPtr AikidoBackend::recvAnysource(Tensors& tensors, int tag) {
  return receive(tensors, std::nullopt, tag);
}

AikidoBackend::WorkPtr AikidoBackend::receive(Tensors& tensors, std::optional<int> from,
                                              int tag) {
  const CallScope site = message("recv");
  const at::Tensor& tensor = check_single(site, "tensor", tensors, Use::kWrite);
  if (from) check_rank(site, "src", *from, getSize());
  const Title title = from ? Title{OpType::RECV, "aikido:recv"}
                           : Title{OpType::RECVANYSOURCE, "aikido:recvAnySource"};
  const auto call_of = [&](const Slot& slot, std::byte* data) {
    collectives::ReceiveCall call;
    if (from) call.from = Rank(*from);
    call.tag = tag;
    call.data = data;
    call.bytes = tensor.nbytes();
    call.deadline = slot.called_at + timeout();
    call.keep_alive = keep_alive(slot.work);
    call.on_done = completion(slot.work);
    return call;
  };
  if (stands_for_itself(tensor)) {
    std::byte* const data = mutable_bytes_of(tensor);
    Slot slot = this->slot(title, tensors);
    collectives::ReceiveCall call = call_of(slot, data);
    slot.work->open_message(tensor, /*is_received=*/true);
    slot.communicator->receive(std::move(call));
    return close(std::move(slot));
  }
  check_process();
  Staging staging(site, services_->transfers);
  const at::Tensor host = staging.out(tensor);
  Slot slot = this->slot(title, tensors);
  collectives::ReceiveCall call = call_of(slot, mutable_bytes_of(host));
  slot.work->open({tensors, staging.take(), {}});
  slot.communicator->receive(std::move(call));
  return close(std::move(slot));
}

}  // namespace aikido::adapter

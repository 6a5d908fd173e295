// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
// The calls of AikidoBackend between two ranks.

#include <utility>

#include "c10d/attempt.h"
#include "c10d/call_of.h"
#include "c10d/departure.h"
#include "c10d/error.h"
#include "c10d/process_group.h"
#include "c10d/staging.h"

namespace aikido::adapter {

using ::c10d::OpType;

namespace {

// `keep_alive` of the call holds the work until it is told.
collectives::MessageCompletion completion(const c10::intrusive_ptr<AikidoWork>& work) {
  return [work = work.get()](const Status& status, Rank peer) {
    AikidoWork::complete_message(c10::intrusive_ptr<AikidoWork>::reclaim_copy(work),
                                 status, peer);
  };
}

}  // namespace

AikidoBackend::WorkPtr AikidoBackend::send(Tensors& tensors, int to, int tag) {
  const Attempt site = message("send");
  check_single(site, "tensor", tensors, Use::kRead);
  return send_checked(site, tensors, to, tag, std::nullopt, timeout());
}

AikidoBackend::OwnWork AikidoBackend::send_with(const at::Tensor& tensor, int to,
                                                int tag,
                                                std::optional<Priority> priority,
                                                Milliseconds timeout) {
  const Attempt site = message("send");
  check_tensor(site, "tensor", tensor, Use::kRead);
  return send_checked(site, {tensor}, to, tag, priority, timeout);
}

AikidoBackend::OwnWork AikidoBackend::send_checked(const CallSite& site,
                                                   const Tensors& tensors, int to,
                                                   int tag,
                                                   std::optional<Priority> priority,
                                                   Milliseconds timeout) {
  check_rank(site, "dst", to, getSize());
  check_process();
  Staging staging(site, services_->transfers);
  const at::Tensor host = staging.in(tensors[0]);
  Staged staged = staging.take();
  Slot of_call = slot({OpType::SEND, "aikido:send"}, tensors);
  collectives::SendCall call;
  call.to = Rank(to);
  call.tag = tag;
  call.data = bytes_of(host);
  call.bytes = host.nbytes();
  call.priority =
      priority.value_or(static_cast<Priority>(settings_.values.transport_priority));
  call.deadline = of_call.called_at + timeout_or(timeout, this->timeout());
  call.keep_alive = keep_alive(of_call.work);
  call.on_done = completion(of_call.work);
  Departure departure(staged);
  call.hold = departure.hold();
  of_call.work->open({{}, std::move(staged), {host}});
  const Current::Pointer communicator = communicator_.operator->();
  const TimePoint deadline = call.deadline;
  communicator->send(std::move(call));
  if (departure.hold()) departure.follow(*services_->transfers, communicator, deadline);
  return close(std::move(of_call));
}

AikidoBackend::WorkPtr AikidoBackend::recv(Tensors& tensors, int from, int tag) {
  return receive(tensors, from, tag);
}

AikidoBackend::WorkPtr AikidoBackend::recvAnysource(Tensors& tensors, int tag) {
  return receive(tensors, std::nullopt, tag);
}

AikidoBackend::WorkPtr AikidoBackend::receive(Tensors& tensors, std::optional<int> from,
                                              int tag) {
  const Attempt site = message("recv");
  const at::Tensor& tensor = check_single(site, "tensor", tensors, Use::kWrite);
  if (from) check_rank(site, "src", *from, getSize());
  check_process();
  Staging staging(site, services_->transfers);
  const at::Tensor host = staging.out(tensor);
  Slot of_call = from ? slot({OpType::RECV, "aikido:recv"}, tensors)
                      : slot({OpType::RECVANYSOURCE, "aikido:recvAnySource"}, tensors);
  collectives::ReceiveCall call;
  if (from) call.from = Rank(*from);
  call.tag = tag;
  call.data = mutable_bytes_of(host);
  call.bytes = host.nbytes();
  call.deadline = of_call.called_at + timeout();
  call.keep_alive = keep_alive(of_call.work);
  call.on_done = completion(of_call.work);
  of_call.work->open({tensors, staging.take(), {}});
  communicator_->receive(std::move(call));
  return close(std::move(of_call));
}

}  // namespace aikido::adapter

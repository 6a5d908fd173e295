// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "c10d/call_path.h"

#include <exception>
#include <utility>

#include "c10d/common/call_of.h"
#include "c10d/common/error.h"
#include "c10d/device/pending_copies.h"

namespace aikido::adapter {
namespace {

// Sequence numbers taken by calls of this thread, in any group.
uint64_t& numbers_taken() {
  thread_local uint64_t taken = 0;
  return taken;
}

}  // namespace

CallScope::CallScope(CallPath& path, const char* name, size_t num_calls)
    : CallSite{name, path.rank()},
      path_(path),
      num_calls_(num_calls),
      is_message_alone_(num_calls == 0 && path.batches_.is_empty()),
      numbers_before_(numbers_taken()),
      exceptions_before_(is_message_alone_ ? 0 : std::uncaught_exceptions()) {
  if (num_calls == 0) return;
  on_refused = [&path, num_calls](const Status& why) {
    for (size_t i = 1; i < num_calls; ++i) path.refuse(why);
    return path.refuse(why);  // a batch has the number of its last call
  };
}

CallScope::~CallScope() {
  if (is_message_alone_) return;
  if (std::uncaught_exceptions() == exceptions_before_) return;
  path_.batches_.refuse();
  while (numbers_taken() - numbers_before_ < num_calls_) {
    const Status why(Code::kAborted,
                     concat(call, " on rank ", rank,
                            ": it failed there before any of its data was sent; the "
                            "error of that rank says why"),
                     Rank(rank));
    if (path_.refuse(why) == 0) return;
  }
}

CallsBeside::CallsBeside()
    : numbers_before_(numbers_taken()),
      exceptions_before_(std::uncaught_exceptions()) {}

CallsBeside::~CallsBeside() {
  if (std::uncaught_exceptions() == exceptions_before_)
    numbers_taken() = numbers_before_;
}

uint64_t CallPath::refuse(const Status& why) {
  const auto communicator = group_.communicator.get();
  if (!communicator || group_.engine->is_forked()) return 0;
  ++numbers_taken();
  return communicator->refuse(why);
}

CallPath::Slot CallPath::slot(const Title& title, const Tensors& inputs) {
  check_process();
  ActiveCommunicator::Pointer communicator = group_.communicator.operator->();
  OwnWork work = batches_.current(rank());
  if (work.defined())
    return {std::move(work), true, SystemClock().now(), std::move(communicator)};
  work = c10::make_intrusive<AikidoWork>(rank(), title.type, title.text, inputs,
                                         group_.services);
  const TimePoint called_at = work->started();
  return {std::move(work), false, called_at, std::move(communicator)};
}

OwnWork CallPath::close(Slot slot) {
  if (!slot.is_batch) AikidoWork::close(slot.work);
  return std::move(slot.work);
}

OwnWork CallPath::submit(const CallScope& /*scope*/, collectives::Call call,
                         const Title& title, collectives::LocalCall local,
                         const Tensors& inputs, AikidoWork::Memory memory,
                         Milliseconds timeout) {
  Slot of_call = slot(title, inputs);
  local.keep_alive = keep_alive(of_call.work);
  local.on_done = [work = of_call.work, told = std::move(local.on_done)](
                      const Status& status,
                      const collectives::Outcome& outcome) mutable {
    if (told) told(status, outcome);
    AikidoWork::complete(std::move(work), status, outcome);
  };
  PendingCopies pending_copies(memory.staged);
  local.hold = pending_copies.hold();
  local.parts = pending_copies.parts();
  of_call.work->open(std::move(memory));
  const ActiveCommunicator::Pointer& communicator = of_call.communicator;
  const Milliseconds limit = timeout_or(timeout, this->timeout());
  of_call.work->set_sequence_number(
      communicator->call(std::move(call), std::move(local), limit));
  ++numbers_taken();
  if (pending_copies.hold())
    pending_copies.follow(*group_.services->transfers, communicator,
                          SystemClock().now() + limit);
  return close(std::move(of_call));
}

collectives::LocalCall CallPath::local_call() const {
  collectives::LocalCall local;
  local.priority = static_cast<Priority>(group_.settings.values.transport_priority);
  return local;
}

// A forked child has no progress thread, so its calls would never end.
void CallPath::check_process() const {
  if (!group_.engine->is_forked()) return;
  raise({Code::kInvalidArgument,
         concat("this process was forked from rank ", rank(), " of group \"",
                group_.name, "\" and is no member of it; call from rank ", rank(),
                " itself, or start the process with spawn and make a group in it")});
}

OwnWork CallPath::end_batch() {
  if (OwnWork work = batches_.end()) return work;
  raise({Code::kInvalidArgument,
         concat("rank ", rank(), " of group \"", group_.name,
                "\" has not started to coalesce calls of this thread, or one of them "
                "was refused, which ended the batch: those after it are works of their "
                "own; wait for each, and start the batch again")});
}

WorkPtr CallPath::coalesced(const Title& title, const Tensors& inputs,
                            const std::function<void()>& calls) {
  if (const OwnWork work = batches_.current(rank())) {
    calls();
    return work;
  }
  batches_.start(rank(), title, inputs);
  try {
    calls();
  } catch (...) {
    end_batch();  // sent calls end by themselves
    throw;
  }
  return end_batch();
}

}  // namespace aikido::adapter

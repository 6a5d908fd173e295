// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "c10d/process_group.h"

#include <utility>

#include "c10d/error.h"
#include "c10d/store_adapter.h"

namespace aikido::adapter {

using ::c10d::OpType;
using collectives::Call;
using collectives::LocalCall;

namespace {
constexpr const char* kCoalesced = "aikido:coalesced";
}  // namespace

AikidoBackend::AikidoBackend(std::shared_ptr<engine::Engine> engine,
                             std::shared_ptr<Finisher> finisher,
                             c10::intrusive_ptr<::c10d::Store> store, int rank,
                             int size, Config config)
    : ChangingBackend(rank, size),
      engine_(std::move(engine)),
      services_{finisher, std::make_shared<Listeners>(finisher)},
      settings_(config.settings),
      group_name_(config.group_name),
      handle_(membership::Handle::random(engine_->address())),
      communicator_(config.group_name),
      timeout_(bounded(config.timeout)) {
  if (!config.connect) return;
  engine::GroupOptions options = group_options();
  options.self = Rank(rank);
  options.size = size;
  StoreAdapter adapter(store);
  auto connected = engine::Communicator::connect(engine_, adapter, options,
                                                 agreed_text(settings_), timeout());
  raise_if_failed(connected.status());
  communicator_.exchange(*connected);
  store_ = std::move(store);
}

engine::GroupOptions AikidoBackend::group_options() const {
  const Settings& s = settings_;
  engine::GroupOptions options;
  options.name = group_name_;
  options.operation.chunk_bytes = static_cast<size_t>(s.transport_chunk_bytes);
  options.operation.eager_bytes = static_cast<size_t>(s.transport_eager_bytes);
  options.operation.window_bytes = static_cast<uint64_t>(s.transport_window_bytes);
  options.operation.min_shard_bytes =
      static_cast<size_t>(s.collectives_min_shard_bytes);
  options.heartbeat = {std::chrono::milliseconds(s.heartbeat_interval_ms),
                       std::chrono::milliseconds(s.heartbeat_timeout_ms)};
  options.log_bytes = static_cast<uint64_t>(s.straggler_log_bytes);
  options.pool_bytes = static_cast<size_t>(s.memory_pool_bytes);
  return options;
}

uint64_t AikidoBackend::getSequenceNumberForGroup() {
  const auto communicator = communicator_.get();
  return communicator ? communicator->num_calls() : 0;
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
  timeout_ = bounded(timeout);
}

// ---- submitting ----

AikidoBackend::OwnWork AikidoBackend::batch() {
  if (num_batches_ == 0) return {};
  OwnWork work;
  {
    const std::lock_guard lock(mutex_);
    const auto it = batches_.find(AikidoWork::this_thread_number());
    if (it == batches_.end()) return {};
    work = it->second;
  }
  if (work->is_open_batch()) return work;
  work = make_batch(OpType::COALESCED, kCoalesced, {});
  const std::lock_guard lock(mutex_);
  batches_[AikidoWork::this_thread_number()] = work;
  return work;
}

CallSite AikidoBackend::collective(const char* call, size_t num_calls) {
  return {call, getRank(), [this, num_calls](const Status& why) -> uint64_t {
            const auto communicator = communicator_.get();
            if (!communicator || engine_->is_forked()) return 0;
            for (size_t i = 1; i < num_calls; ++i) communicator->refuse(why);
            return communicator->refuse(why);  // a batch has the number of its last
          }};
}

AikidoBackend::Slot AikidoBackend::open(OpType type, const char* title,
                                        const Tensors& inputs,
                                        AikidoWork::Memory memory) {
  check_process();
  communicator_.check();
  OwnWork work = batch();
  const bool is_batch = work.defined();
  if (!is_batch)
    work = c10::make_intrusive<AikidoWork>(getRank(), type, title, inputs, services_);
  work->open(std::move(memory));
  return {std::move(work), is_batch};
}

AikidoBackend::OwnWork AikidoBackend::close(Slot slot) {
  if (!slot.is_batch) AikidoWork::close(slot.work);
  return slot.work;
}

AikidoBackend::OwnWork AikidoBackend::submit(Call call, OpType type, const char* title,
                                             LocalCall local, const Tensors& inputs,
                                             AikidoWork::Memory memory,
                                             Milliseconds timeout) {
  if (const Status valid = collectives::validate(call, getSize()); !valid) {
    const Status why(valid.code(), valid.message(), Rank(getRank()));
    raise(why, {}, collective(title).on_refused(why));
  }
  Slot slot = open(type, title, inputs, std::move(memory));
  local.keep_alive = keep_alive(slot.work);
  local.on_done = [work = slot.work](const Status& status,
                                     const collectives::Outcome& outcome) mutable {
    AikidoWork::complete(std::move(work), status, outcome);
  };
  slot.work->set_sequence_number(communicator_->call(
      std::move(call), std::move(local), timeout_or(timeout, this->timeout())));
  return close(std::move(slot));
}

// A child has no progress thread: a call of it would never end.
void AikidoBackend::check_process() const {
  if (!engine_->is_forked()) return;
  raise({Code::kInvalidArgument,
         concat("this process was forked from rank ", getRank(), " of group \"",
                group_name_, "\" and is no member of it; call from rank ", getRank(),
                " itself, or start the process with spawn and make a group in it")});
}

void AikidoBackend::startCoalescing() {
  start_batch(OpType::COALESCED, kCoalesced, {});
}

AikidoBackend::OwnWork AikidoBackend::make_batch(OpType type, const char* title,
                                                 const Tensors& inputs) {
  auto work =
      c10::make_intrusive<AikidoWork>(getRank(), type, title, inputs, services_);
  work->begin_batch();
  return work;
}

// One that is open was left by an exception: torch's manager does not end it then.
void AikidoBackend::start_batch(OpType type, const char* title, const Tensors& inputs) {
  OwnWork work = make_batch(type, title, inputs);
  {
    const std::lock_guard lock(mutex_);
    OwnWork& of_thread = batches_[AikidoWork::this_thread_number()];
    of_thread.swap(work);
    if (!work) ++num_batches_;
  }
  if (work) AikidoWork::end_batch(std::move(work));
}

AikidoBackend::WorkPtr AikidoBackend::endCoalescing() {
  OwnWork work;
  {
    const std::lock_guard lock(mutex_);
    const auto it = batches_.find(AikidoWork::this_thread_number());
    if (it == batches_.end()) {
      raise({Code::kInvalidArgument,
             concat("rank ", getRank(), " of group \"", group_name_,
                    "\" has not started to coalesce calls of this thread")});
    }
    work = std::move(it->second);
    batches_.erase(it);
    --num_batches_;
  }
  AikidoWork::end_batch(work);
  return work;
}

AikidoBackend::WorkPtr AikidoBackend::coalesced(OpType type, const char* title,
                                                const Tensors& inputs,
                                                const std::function<void()>& calls) {
  if (const OwnWork work = batch()) {
    calls();
    return work;
  }
  start_batch(type, title, inputs);
  try {
    calls();
  } catch (...) {
    endCoalescing();  // what was sent ends by itself
    throw;
  }
  return endCoalescing();
}

// ---- hearing of the end of calls ----

void AikidoBackend::registerOnCompletionHook(Listeners::InfoHook&& hook) {
  services_.listeners->set_info_hook(hook);
  onCompletionHook_ = std::move(hook);  // what hasHooks() looks at
}

void AikidoBackend::waitForPendingWorks() {
  if (services_.listeners->wait_until_idle(timeout())) return;
  raise({Code::kTimedOut,
         concat("Timed out on rank ", getRank(), " of group \"", group_name_,
                "\": calls are still under way after ", timeout().count(), " ms")});
}

#if AIKIDO_TORCH_SINCE(15)
void AikidoBackend::registerCompletionHook(int64_t id, ::c10d::CompletionHook hook) {
  services_.listeners->add(
      id, [hook = std::move(hook)](uint64_t key, std::optional<float> ms) {
        hook({key, ms});
      });
}

void AikidoBackend::unregisterCompletionHook(int64_t id) {
  services_.listeners->remove(id);
}
#endif

}  // namespace aikido::adapter

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "c10d/aikido_backend.h"

#include <exception>
#include <utility>

#include "c10d/call_scope.h"
#include "c10d/common/call_of.h"
#include "c10d/common/error.h"
#include "c10d/device/pending_copies.h"
#include "c10d/store_adapter.h"

namespace aikido::adapter {

using ::c10d::OpType;
using collectives::Call;
using collectives::LocalCall;

namespace {
// Largest all_reduce with one owner, if ranks share memory and cores
// (collectives/README.md).
constexpr uint64_t kOneOwnerBytes = 128 << 10;

// Sequence numbers taken by calls of this thread, in any group.
uint64_t& numbers_taken() {
  thread_local uint64_t taken = 0;
  return taken;
}

std::shared_ptr<AikidoWork::Services> services_of(
    const std::shared_ptr<CallbackThread>& callback_thread,
    const std::shared_ptr<engine::Engine>& engine, const Settings& settings) {
  return std::make_shared<AikidoWork::Services>(AikidoWork::Services{
      .callback_thread = callback_thread,
      .hooks = std::make_shared<CompletionHooks>(callback_thread),
      .engine = engine,
      .spin = std::chrono::microseconds(settings.transport_spin_us),
      .recorder = engine->recorder()});
}

// Empty if each call uses the cheapest algorithm.
std::optional<Algorithm> fixed_algorithm(const ResolvedSettings& settings) {
  const std::string& name = settings.values.collectives_algorithm;
  if (name == kAutoAlgorithm) return std::nullopt;
  auto algorithm = cost::algorithm_named(name);
  raise_if_failed(algorithm.status());
  return *algorithm;
}
}  // namespace

AikidoBackend::AikidoBackend(std::shared_ptr<engine::Engine> engine,
                             std::shared_ptr<CallbackThread> callback_thread,
                             c10::intrusive_ptr<::c10d::Store> store, int rank,
                             int size, Config config)
    : ChangingBackend(rank, size),
      engine_(std::move(engine)),
      services_(services_of(callback_thread, engine_, config.settings.values)),
      settings_(config.settings),
      selector_(fixed_algorithm(config.settings)),
      group_name_(config.group_name),
      handle_(membership::MemberHandle::random(engine_->address())),
      communicator_(config.group_name),
      timeout_(bounded(config.timeout)),
      batches_(services_),
      routes_(config.settings.values.devices_nccl, config.settings.values.devices_ipc,
              callback_thread) {
  if (!config.connect) return;
  engine::GroupOptions options = group_options();
  options.self = Rank(rank);
  options.size = size;
  StoreAdapter adapter(store);
  auto connected = engine::Communicator::connect(
      engine_, adapter, options, agreed_text(settings_.values),
      bounded(config.connect_timeout.value_or(config.timeout)));
  raise_if_failed(connected.status());
  communicator_.exchange(*connected);
  services_->is_crowded = (*connected)->is_crowded();
  // If the user changes the shard size, that size is used. All ranks have changed it
  // alike.
  const int64_t shard_bytes = settings_.values.collectives_min_shard_bytes;
  if ((*connected)->is_crowded() &&
      shard_bytes == Settings{}.collectives_min_shard_bytes)
    selector_.set_one_owner(2 * static_cast<uint64_t>(shard_bytes), kOneOwnerBytes);
  store_ = std::move(store);
}

engine::GroupOptions AikidoBackend::group_options() const {
  const Settings& s = settings_.values;
  engine::GroupOptions options;
  options.name = group_name_;
  options.operation.timeout = timeout();
  options.operation.chunk_bytes = static_cast<size_t>(s.transport_chunk_bytes);
  options.operation.eager_bytes = static_cast<size_t>(s.transport_eager_bytes);
  options.operation.window_bytes = static_cast<uint64_t>(s.transport_window_bytes);
  options.operation.min_shard_bytes =
      static_cast<size_t>(s.collectives_min_shard_bytes);
  options.operation.lead_bytes = static_cast<size_t>(s.collectives_lead_bytes);
  options.heartbeat = {std::chrono::milliseconds(s.heartbeat_interval_ms),
                       std::chrono::milliseconds(s.heartbeat_timeout_ms)};
  options.log_bytes = static_cast<uint64_t>(s.straggler_log_bytes);
  options.pool_bytes = static_cast<size_t>(s.memory_pool_bytes);
  options.keeps_order = settings_.is_given("transport_priority");
  return options;
}

void AikidoBackend::set_hosts(const std::vector<int32_t>& hosts) {
  if (const auto num_hosts = static_cast<int>(hosts.size()); num_hosts != getSize())
    raise({Code::kInvalidArgument, concat(num_hosts, " hosts for the ", getSize(),
                                          " ranks of group \"", group_name_, "\"")});
  communicator_->set_hosts(hosts);
  // After this barrier all ranks know the hosts, so calls may use two_level.
  barrier(::c10d::BarrierOptions())->wait();
  selector_.set_hosts(hosts);
}

Status AikidoBackend::set_link(const cost::LinkCost& link, double message_s,
                               const cost::LinkCost& local) {
  const auto shard_bytes =
      static_cast<double>(settings_.values.collectives_min_shard_bytes);
  return selector_.set_costs({link, 0, message_s, shard_bytes, {}, local});
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
  return timeout_;
}

void AikidoBackend::setTimeout(Milliseconds timeout) {
  const std::lock_guard lock(mutex_);
  timeout_ = bounded(timeout);
  routes_.nccl()->set_timeout(timeout_);
}

// ---- submitting ----

AikidoBackend::CallScope::CallScope(AikidoBackend& backend, const char* name,
                                    size_t num_calls)
    : CallSite{name, backend.getRank()},
      backend_(backend),
      num_calls_(num_calls),
      is_message_alone_(num_calls == 0 && backend.batches_.is_empty()),
      numbers_before_(numbers_taken()),
      exceptions_before_(is_message_alone_ ? 0 : std::uncaught_exceptions()) {
  if (num_calls == 0) return;
  on_refused = [&backend, num_calls](const Status& why) {
    for (size_t i = 1; i < num_calls; ++i) backend.refuse(why);
    return backend.refuse(why);  // a batch has the number of its last call
  };
}

AikidoBackend::CallScope::~CallScope() {
  if (is_message_alone_) return;
  if (std::uncaught_exceptions() == exceptions_before_) return;
  backend_.batches_.refuse();
  while (numbers_taken() - numbers_before_ < num_calls_) {
    const Status why(Code::kAborted,
                     concat(call, " on rank ", rank,
                            ": it failed there before any of its data was sent; the "
                            "error of that rank says why"),
                     Rank(rank));
    if (backend_.refuse(why) == 0) return;
  }
}

CallsBeside::CallsBeside()
    : numbers_before_(numbers_taken()),
      exceptions_before_(std::uncaught_exceptions()) {}

CallsBeside::~CallsBeside() {
  if (std::uncaught_exceptions() == exceptions_before_)
    numbers_taken() = numbers_before_;
}

void AikidoBackend::refuse_call(const std::string& call, const std::string& why) {
  const CallScope site = collective(call.c_str());
  raise_refusal(
      site, {Code::kInvalidArgument, concat(call, " on rank ", site.rank, ": ", why),
             Rank(site.rank)});
}

void AikidoBackend::leave_out_call(const std::string& why, bool tells) {
  check_process();
  const Status status(Code::kInvalidArgument, why, Rank(getRank()));
  if (const auto communicator = communicator_.get())
    communicator->refuse(status, tells);
}

uint64_t AikidoBackend::refuse(const Status& why) {
  const auto communicator = communicator_.get();
  if (!communicator || engine_->is_forked()) return 0;
  ++numbers_taken();
  return communicator->refuse(why);
}

AikidoBackend::Slot AikidoBackend::slot(const Title& title, const Tensors& inputs) {
  check_process();
  ActiveCommunicator::Pointer communicator = communicator_.operator->();
  OwnWork work = batches_.current(getRank());
  if (work.defined())
    return {std::move(work), true, SystemClock().now(), std::move(communicator)};
  work = c10::make_intrusive<AikidoWork>(getRank(), title.type, title.text, inputs,
                                         services_);
  const TimePoint called_at = work->started();
  return {std::move(work), false, called_at, std::move(communicator)};
}

AikidoBackend::OwnWork AikidoBackend::close(Slot slot) {
  if (!slot.is_batch) AikidoWork::close(slot.work);
  return std::move(slot.work);
}

AikidoBackend::OwnWork AikidoBackend::submit(const CallScope& /*scope*/, Call call,
                                             const Title& title, LocalCall local,
                                             const Tensors& inputs,
                                             AikidoWork::Memory memory,
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
    pending_copies.follow(*services_->transfers, communicator,
                          SystemClock().now() + limit);
  return close(std::move(of_call));
}

collectives::LocalCall AikidoBackend::local_call() const {
  collectives::LocalCall local;
  local.priority = static_cast<Priority>(settings_.values.transport_priority);
  return local;
}

// A forked child has no progress thread, so its calls would never end.
void AikidoBackend::check_process() const {
  if (!engine_->is_forked()) return;
  raise({Code::kInvalidArgument,
         concat("this process was forked from rank ", getRank(), " of group \"",
                group_name_, "\" and is no member of it; call from rank ", getRank(),
                " itself, or start the process with spawn and make a group in it")});
}

void AikidoBackend::startCoalescing() {
  batches_.start(getRank(), kCoalesced, {});
}

AikidoBackend::WorkPtr AikidoBackend::endCoalescing() {
  if (OwnWork work = batches_.end()) return work;
  raise({Code::kInvalidArgument,
         concat("rank ", getRank(), " of group \"", group_name_,
                "\" has not started to coalesce calls of this thread, or one of them "
                "was refused, which ended the batch: those after it are works of their "
                "own; wait for each, and start the batch again")});
}

AikidoBackend::WorkPtr AikidoBackend::coalesced(const Title& title,
                                                const Tensors& inputs,
                                                const std::function<void()>& calls) {
  if (const OwnWork work = batches_.current(getRank())) {
    calls();
    return work;
  }
  batches_.start(getRank(), title, inputs);
  try {
    calls();
  } catch (...) {
    endCoalescing();  // sent calls end by themselves
    throw;
  }
  return endCoalescing();
}

// ---- hearing of the end of calls ----

void AikidoBackend::registerOnCompletionHook(CompletionHooks::InfoHook&& hook) {
  services_->hooks->set_info_hook(hook);
  onCompletionHook_ = std::move(hook);  // hasHooks() checks this
}

void AikidoBackend::waitForPendingWorks() {
  if (services_->hooks->wait_until_idle(timeout())) return;
  raise({Code::kTimedOut,
         concat("Timed out on rank ", getRank(), " of group \"", group_name_,
                "\": calls are still under way after ", timeout().count(), " ms")});
}

#if AIKIDO_TORCH_SINCE(15)
void AikidoBackend::registerCompletionHook(int64_t id, ::c10d::CompletionHook hook) {
  services_->hooks->add(
      id, [hook = std::move(hook)](uint64_t key, std::optional<float> ms) {
        hook({key, ms});
      });
}

void AikidoBackend::unregisterCompletionHook(int64_t id) {
  services_->hooks->remove(id);
}
#endif

}  // namespace aikido::adapter

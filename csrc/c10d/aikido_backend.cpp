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
      group_{
          .engine = engine,
          .services = services_of(callback_thread, engine, config.settings.values),
          .settings = config.settings,
          .name = config.group_name,
          .communicator = ActiveCommunicator(config.group_name),
          .routes = DeviceRoutes(config.settings.values.devices_nccl,
                                 config.settings.values.devices_ipc, callback_thread),
          .timeout = bounded(config.timeout)},
      calls_(*this, group_),
      selector_(fixed_algorithm(config.settings)),
      handle_(membership::MemberHandle::random(
          engine->address(), config.settings.values.role == kReliable)) {
  if (!config.connect) return;
  engine::GroupOptions options = group_options();
  options.self = Rank(rank);
  options.size = size;
  StoreAdapter adapter(store);
  auto connected = engine::Communicator::connect(
      engine, adapter, options, agreed_text(group_.settings.values),
      bounded(config.connect_timeout.value_or(config.timeout)));
  raise_if_failed(connected.status());
  group_.communicator.exchange(*connected);
  group_.services->is_crowded = (*connected)->is_crowded();
  // If the user changes the shard size, that size is used. All ranks have changed it
  // alike.
  const int64_t shard_bytes = group_.settings.values.collectives_min_shard_bytes;
  if ((*connected)->is_crowded() &&
      shard_bytes == Settings{}.collectives_min_shard_bytes)
    selector_.set_one_owner(2 * static_cast<uint64_t>(shard_bytes), kOneOwnerBytes);
  group_.store = std::move(store);
}

engine::GroupOptions AikidoBackend::group_options() const {
  const Settings& s = group_.settings.values;
  engine::GroupOptions options;
  options.name = group_.name;
  options.is_reliable = handle_.is_reliable;
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
  options.keeps_order = group_.settings.is_given("transport_priority");
  return options;
}

void AikidoBackend::set_hosts(const std::vector<int32_t>& hosts) {
  if (const auto num_hosts = static_cast<int>(hosts.size()); num_hosts != getSize())
    raise({Code::kInvalidArgument, concat(num_hosts, " hosts for the ", getSize(),
                                          " ranks of group \"", group_.name, "\"")});
  group_.communicator->set_hosts(hosts);
  // After this barrier all ranks know the hosts, so calls may use two_level.
  barrier(::c10d::BarrierOptions())->wait();
  selector_.set_hosts(hosts);
}

Status AikidoBackend::set_link(const cost::LinkCost& link, double message_s,
                               const cost::LinkCost& local) {
  const auto shard_bytes =
      static_cast<double>(group_.settings.values.collectives_min_shard_bytes);
  return selector_.set_costs({link, 0, message_s, shard_bytes, {}, local});
}

uint64_t AikidoBackend::getSequenceNumberForGroup() {
  const auto communicator = group_.communicator.get();
  return communicator ? communicator->num_calls() : 0;
}

c10::intrusive_ptr<::c10d::Backend::Options> AikidoBackend::getBackendOptions() {
  auto options = c10::make_intrusive<Options>("aikido", timeout());
  options->group_name = group_.name;
  return options;
}

void AikidoBackend::setTimeout(Milliseconds timeout) {
  const std::lock_guard lock(group_.mutex);
  group_.timeout = bounded(timeout);
  group_.routes.nccl()->set_timeout(group_.timeout);
}

// ---- submitting ----

void AikidoBackend::refuse_call(const std::string& call, const std::string& why) {
  const CallScope site = calls_.collective(call.c_str());
  raise_refusal(
      site, {Code::kInvalidArgument, concat(call, " on rank ", site.rank, ": ", why),
             Rank(site.rank)});
}

void AikidoBackend::leave_out_call(const std::string& why, bool tells) {
  calls_.check_process();
  const Status status(Code::kInvalidArgument, why, Rank(getRank()));
  if (const auto communicator = group_.communicator.get())
    communicator->refuse(status, tells);
}

// ---- hearing of the end of calls ----

void AikidoBackend::registerOnCompletionHook(CompletionHooks::InfoHook&& hook) {
  group_.services->hooks->set_info_hook(hook);
  onCompletionHook_ = std::move(hook);  // hasHooks() checks this
}

void AikidoBackend::waitForPendingWorks() {
  if (group_.services->hooks->wait_until_idle(timeout())) return;
  raise({Code::kTimedOut,
         concat("Timed out on rank ", getRank(), " of group \"", group_.name,
                "\": calls are still under way after ", timeout().count(), " ms")});
}

#if AIKIDO_TORCH_SINCE(15)
void AikidoBackend::registerCompletionHook(int64_t id, ::c10d::CompletionHook hook) {
  group_.services->hooks->add(
      id, [hook = std::move(hook)](uint64_t key, std::optional<float> ms) {
        hook({key, ms});
      });
}

void AikidoBackend::unregisterCompletionHook(int64_t id) {
  group_.services->hooks->remove(id);
}
#endif

}  // namespace aikido::adapter

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
//
// End of a group, orderly or forced, and the report of its failures.

#include <algorithm>
#include <exception>
#include <utility>

#include "c10d/aikido_backend.h"
#include "c10d/device/ipc.h"

namespace aikido::adapter {
namespace {

// Time that rank 0 may take from the end of its group to the end of its store.
constexpr Duration kStoreGrace = std::chrono::milliseconds(500);

}  // namespace

void AikidoBackend::abort() {
  if (group_.engine->is_forked()) return;
  if (state_.is_shut_down()) return;
  // Before anything is lost, because hooks may inspect the group. They may call back.
  for (const auto& [id, hook] : hooks_.abort_hooks()) {
    try {
      hook();
    } catch (const std::exception& error) {
      TORCH_WARN("abort hook ", id, " of group \"", group_.name, "\" on rank ",
                 getRank(), " raised: ", error.what());
    }
  }
  const auto next = state_.abort();
  const Status why(
      Code::kAborted,
      concat("group \"", group_.name, "\" was aborted by rank ", getRank()),
      Rank(getRank()));
  if (next) next->abort(why);
  if (const auto communicator = group_.communicator.get()) communicator->abort(why);
  group_.routes.nccl()->abort(why);
}

// Note [two threads end one group]
// If a handle of aikido_torch.ddp is freed, a separate thread ends the group of its
// buckets. Meanwhile the user's thread may end all groups and then the process. The
// group stays for members that are late. So the second thread waits for the first.
// Otherwise the process could end while others still need results from it.
void AikidoBackend::shutdown() {
  if (group_.engine->is_forked()) return;
  const Milliseconds linger(group_.settings.values.shutdown_linger_ms);
  // After that time it continues without the lock, which a hanging hook may hold.
  const std::unique_lock only(ending_, linger);
  const EndHooks::EndHook hook = hooks_.take_end_hook();
  std::exception_ptr failure;
  try {
    if (hook && !state_.is_aborted()) hook(linger);
  } catch (...) {
    failure = std::current_exception();  // thrown below
  }
  if (const auto next = state_.shut_down()) {
    next->abort({Code::kAborted,
                 concat("group \"", group_.name, "\" was shut down by rank ", getRank(),
                        " while its members were changing"),
                 Rank(getRank())});
  }
  const TimePoint end = SystemClock().now() + linger;
  group_.routes.ipc()->wait_for_calls(linger);
  IpcCall::purge();
  if (const auto communicator = group_.communicator.get())
    communicator->shutdown(std::max(Duration::zero(), end - SystemClock().now()));
  group_.routes.nccl()->shutdown();
  if (store_end_.port != 0 && !state_.is_aborted())
    store_end_.wait(std::min<Duration>(linger, kStoreGrace));
  if (failure) std::rethrow_exception(failure);
}

// Note [the end of the store]
// Rank 0 serves the store of most jobs, and ends it with the default group. If another
// rank made the next group at the same port before that, it would connect to the ending
// store and fail with it. So it leaves after rank 0, and then waits until its
// connection to the store is closed. It does not wait for long, because the program of
// rank 0 may keep the store.
void AikidoBackend::leave_after_rank_0(uint16_t port) {
  store_end_ = {port};
  if (const auto communicator = group_.communicator.get())
    communicator->leave_after(Rank(0));
}

void AikidoBackend::shut_down_family() {
  for (const auto& child : children_.all()) child->shut_down_family();
  // The process ends: it makes no further group and need not wait for the store.
  store_end_ = {};
  set_end_hook({});
  if (const auto communicator = group_.communicator.get())
    communicator->leave_after(kNoRank);
  shutdown();
}

::c10d::ErrorType AikidoBackend::getError() {
  using ::c10d::ErrorType;
  const auto communicator = group_.communicator.get();
  // Actions of this rank itself are no error.
  if (!communicator || state_.is_over() || group_.engine->is_forked())
    return ErrorType::SUCCESS;
  if (communicator->counters().timed_out.load() > 0) return ErrorType::TIMEOUT;
  const Status failure = communicator->failure();
  switch (failure.code()) {
    case Code::kOk:
      return ErrorType::SUCCESS;
    case Code::kTimedOut:
      return ErrorType::TIMEOUT;
    case Code::kPeerLost:
    case Code::kAborted:
      return ErrorType::REMOTE_ERROR;
    default:
      return ErrorType::COMM_ERROR;
  }
}

}  // namespace aikido::adapter

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
//
// Change of the members of a group.
//
// Note [changing the members of a group]
// The new view is made beside the present one, on the same progress thread and
// listener. Each member replaces its present view only when all new members are
// connected to all. So if anything fails before (a uuid that was used, an invalid
// handle, a member that never comes), every member keeps its former view. Another
// attempt needs only a new uuid.

#include <utility>

#include "c10d/aikido_backend.h"
#include "c10d/call_scope.h"
#include "membership/roster.h"

namespace aikido::adapter {
namespace {

// Time for the notice that ends the former view. Its links are not needed otherwise,
// and some of its members may be gone.
constexpr Milliseconds kFarewell{100};

}  // namespace

uint64_t AikidoBackend::epoch() const {
  const auto communicator = group_.communicator.get();
  return communicator ? communicator->epoch().value : 0;
}

WorkPtr AikidoBackend::change_members(const Reconfiguration& wanted) {
  calls_.check_process();
  const std::string what = concat("reconfigure of group \"", group_.name,
                                  "\" with uuid ", wanted.uuid, " on rank ", getRank());
  const std::unique_lock changing(changing_, std::try_to_lock);
  if (!changing.owns_lock()) {
    raise({Code::kInvalidArgument,
           what + ": another thread is reconfiguring it; wait for that one to return"});
  }
  auto roster = membership::Roster::make(
      wanted.uuid, wanted.handles,
      wanted.is_ordered ? membership::Order::kGiven : membership::Order::kCommon,
      handle_);
  raise_if_failed(roster.status().with_context(what));
  const auto next = engine::Communicator::make(group_.engine, *roster, group_options(),
                                               agreed_text(group_.settings.values));
  switch (state_.begin_change(wanted.uuid, next)) {
    case GroupState::Refusal::kNone:
      break;
    case GroupState::Refusal::kShutDown:
      raise({Code::kInvalidArgument, what + ": the group is shut down"});
    case GroupState::Refusal::kUsedUuid:
      raise({Code::kInvalidArgument,
             what +
                 ": this uuid was already used by this rank; the group is as it was; "
                 "agree with all members on a fresh one"});
  }
  const Status joined =
      next->join(*roster, Epoch(epoch()), bounded(wanted.timeout.value_or(timeout())));
  if (joined.has_failed()) {
    state_.give_up_change();
    raise({joined.code(),
           concat(what, " failed: ", joined.message(),
                  " (ranks here are those of the view to be); the group is as it was, "
                  "and the next attempt needs a fresh uuid"),
           joined.culprit()});
  }
  adopt(*roster, next);
  auto work =
      c10::make_intrusive<AikidoWork>(getRank(), ::c10d::OpType::UNKNOWN,
                                      "aikido:reconfigure", Tensors{}, group_.services);
  AikidoWork::close(work);
  return work;
}

// Replaces the present view by `next`, and ends it.
void AikidoBackend::adopt(const membership::Roster& roster,
                          const ActiveCommunicator::Pointer& next) {
  ActiveCommunicator::Pointer former;
  std::shared_ptr<NcclRoute> former_inner;
  {
    const std::lock_guard lock(group_.mutex);
    selector_.forget();  // new members do not know the measured costs
    former = group_.communicator.exchange(next);
    former_inner = group_.routes.renew();
    set_place(roster.self().value, roster.size());
    group_.store.reset();  // knows the former members only
  }
  state_.end_change();
  // The shutdown came between the end of joining and here.
  if (state_.is_shut_down()) next->shutdown(kFarewell);
  if (!former) return;
  const Status why(Code::kAborted,
                   concat("group \"", group_.name, "\" was reconfigured (uuid ",
                          roster.uuid(), ", now ", roster.size(),
                          " members) and this call belongs to the members of before; "
                          "call again as a member of the new ones"));
  former->abort(why);
  former_inner->abort(why);
  former->shutdown(kFarewell);
}

}  // namespace aikido::adapter

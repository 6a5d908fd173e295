// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "engine/votes.h"

#include <condition_variable>
#include <memory>
#include <mutex>
#include <utility>

#include "base/mutation.h"
#include "base/text.h"
#include "engine/communicator.h"

namespace aikido::engine {

namespace {

using Answer = std::optional<Result<membership::Agreement>>;

// Interval at which a waiting thread looks for the agreement.
constexpr Duration kAgreementLook = std::chrono::milliseconds(1);

// Runs `work` on the progress thread and waits for its result.
template <class Work>
auto ask_group(Communicator& communicator, Work work) {
  struct Slot {
    std::mutex mutex;
    std::condition_variable changed;
    std::optional<decltype(work(std::declval<Votes>()))> value;
  };
  const auto slot = std::make_shared<Slot>();
  communicator.post([slot, work](Group& group) {
    auto value = work(group.votes());
    group.end_turn();
    const std::lock_guard lock(slot->mutex);
    slot->value = std::move(value);
    slot->changed.notify_all();
  });
  std::unique_lock lock(slot->mutex);
  slot->changed.wait(lock, [&] { return slot->value.has_value(); });
  return *std::move(slot->value);
}

}  // namespace

void Votes::agree(const std::vector<Rank>& lost) {
  membership::ViewChange& change = *parts_.view_change;
  const TimePoint now = parts_.clock->now();
  change.agree(now);
  const int32_t size = change.view().members.world_size();
  for (int32_t r = 0; r < size; ++r) {
    const Rank rank(r);
    if (rank == parts_.self) continue;
    // Without a policy, losses did not matter to the view.
    if ((*parts_.peers)[rank].is_lost()) change.on_lost(rank, now);
    if (parts_.peers->heartbeats().is_silent(rank)) change.on_silent(rank, now);
  }
  for (const Rank rank : lost) change.on_silent(rank, now);
}

std::optional<Result<membership::Agreement>> Votes::agreement() {
  membership::ViewChange& change = *parts_.view_change;
  if (auto agreed = change.agreement().take(change.view())) {
    if (mutated(Mutation::kAgreesAlone))
      agreed->ranks = change.doubts().reachable(change.view());
    if (agreed->ranks.contains(parts_.self)) return Answer(*std::move(agreed));
    return Answer(Status(
        Code::kPeerLost,
        concat("agreement ", agreed->number, " excludes rank ", parts_.self.value,
               ", which did not answer in time; it may join again "
               "with the state of another rank"),
        parts_.self));
  }
  if (parts_.life->has_ended()) return Answer(parts_.life->reason());
  if (parts_.own_state->refusal()) return Answer(*parts_.own_state->refusal());
  if (change.is_removed() || change.has_majority()) return std::nullopt;
  const membership::View& view = change.view();
  const RankSet left = change.doubts().reachable(view);
  Rank culprit = kNoRank;
  view.members.for_each([&](Rank r) {
    if (culprit == kNoRank && view.votes(r) && !left.contains(r)) culprit = r;
  });
  return Answer(Status(Code::kPeerLost,
                       concat(no_majority_text(view, left),
                              ", so the members cannot agree; start again from a "
                              "checkpoint"),
                       culprit));
}

Status Votes::give_up(Duration after) {
  parts_.view_change->agreement().give_up();
  std::string voters;
  const membership::View& view = parts_.view_change->view();
  view.members.for_each([&](Rank r) {
    if (view.votes(r)) voters += concat(voters.empty() ? "" : ", ", "rank ", r.value);
  });
  return {Code::kTimedOut,
          concat("Timed out after ", to_ms(after),
                 " ms: more than half of the voters (", voters,
                 ") have not answered in this time; pass a longer timeout, or start "
                 "again from a checkpoint")};
}

Result<membership::Agreement> agree_on_members(Communicator& communicator,
                                               const std::vector<Rank>& lost,
                                               Duration timeout) {
  const SystemClock clock;
  const TimePoint deadline = clock.now() + timeout;
  Answer answer = ask_group(communicator, [lost](Votes votes) {
    votes.agree(lost);
    return votes.agreement();
  });
  std::mutex mutex;
  std::condition_variable pause;
  while (!answer && clock.now() < deadline) {
    std::unique_lock lock(mutex);
    pause.wait_for(lock, kAgreementLook);
    answer = ask_group(communicator, [](Votes votes) { return votes.agreement(); });
  }
  if (answer) return *std::move(answer);
  return ask_group(communicator,
                   [timeout](Votes votes) { return votes.give_up(timeout); });
}

}  // namespace aikido::engine

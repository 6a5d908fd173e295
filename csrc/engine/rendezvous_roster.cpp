// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
//
// Rendezvous by roster: the members know each other's handles, and need no store.

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "base/message_tags.h"
#include "engine/communicator.h"

namespace aikido::engine {
namespace {

// A member that has not called yet does not know the token and closes the connection.
// It is dialled again after this pause, which doubles up to the longest.
constexpr Duration kShortestPause = std::chrono::milliseconds(1);
constexpr Duration kLongestPause = std::chrono::milliseconds(20);
// Time that a failing member allows for its reason to reach the others.
constexpr Duration kGoodbye = std::chrono::seconds(1);
constexpr int32_t kTag = kRosterTags.first;

// Exchange of all connected members: the epoch that each comes from.
struct EpochExchange {
  using Text = std::array<std::byte, sizeof(uint64_t)>;

  EpochExchange(Epoch last, int32_t size)
      : texts(static_cast<size_t>(size)), num_open(2 * (size - 1)) {
    std::memcpy(own.data(), &last.value, own.size());
  }
  void end_one(const Status& status) {
    const std::lock_guard lock(mutex);
    --num_open;
    if (failure.is_ok()) failure = status;
    changed.notify_all();
  }

  Text own{};
  std::vector<Text> texts;  // by rank
  std::mutex mutex;
  std::condition_variable changed;
  int32_t num_open;  // guarded by mutex
  Status failure;    // guarded by mutex
};

}  // namespace

std::shared_ptr<Communicator> Communicator::make(std::shared_ptr<Engine> engine,
                                                 const membership::Roster& roster,
                                                 GroupOptions options,
                                                 const std::string& agreed) {
  options.self = roster.self();
  options.size = roster.size();
  options.reliable = roster.reliable();
  return std::shared_ptr<Communicator>(
      new Communicator(std::move(engine), std::move(options), agreed));
}

Status Communicator::join(const membership::Roster& roster, Epoch last,
                          Duration timeout) {
  const TimePoint deadline = clock_.now() + timeout;
  token_ = roster.token(options_.self);
  engine_->run_and_wait([this] {
    engine_->add(group_.get());
    engine_->listener().add(this);
  });
  Status joined = find_members(roster, deadline);
  if (joined.is_ok()) joined = wait_for_links(deadline);
  // No member continues before all are connected to all. Until then each member can
  // return to its former view.
  if (joined.is_ok()) joined = agree_on_epoch(last, deadline);
  if (joined.is_ok()) return joined;
  // Connected members need not wait for the deadline, and learn the reason.
  abort(joined);
  shutdown(kGoodbye);
  return joined;
}

// Dials all lower ranks, repeatedly if they are not there yet.
Status Communicator::find_members(const membership::Roster& roster,
                                  TimePoint deadline) {
  std::vector<int32_t> missing(static_cast<size_t>(options_.self.value));
  for (size_t i = 0; i < missing.size(); ++i) missing[i] = static_cast<int32_t>(i);
  Duration pause = kShortestPause;
  Status last_try;  // the last that was no time-out, which has no reason
  while (true) {
    AIKIDO_TRY(failure());
    Status result;
    std::erase_if(missing, [&](int32_t r) {
      if (result.code() == Code::kTimedOut) return false;
      const Status dialled = dial_member(Rank(r), roster.member(Rank(r)).address,
                                         roster.token(Rank(r)), deadline);
      if (dialled.has_failed() &&
          (result.is_ok() || dialled.code() != Code::kRetryLater)) {
        result = dialled.with_context(
            concat("connecting to rank ", r, " of group \"", options_.name, "\""));
      }
      return dialled.is_ok();
    });
    if (missing.empty()) return Status::ok();
    const bool is_late = result.code() == Code::kTimedOut && last_try.has_failed();
    if (result.code() != Code::kRetryLater && !is_late) return result;
    if (!is_late) last_try = result;
    if (const auto refused = links_.refusal()) return *refused;
    if (is_late || clock_.now() + pause >= deadline) {
      const Status missed = wait_for_links(clock_.now());
      return {missed.code(),
              concat(missed.message(), " with the same uuid and handles (last try: ",
                     last_try.message(), ")"),
              missed.culprit()};
    }
    links_.await_change(pause);
    pause = std::min(2 * pause, kLongestPause);
  }
}

Status Communicator::agree_on_epoch(Epoch last, TimePoint deadline) {
  const auto exchange = std::make_shared<EpochExchange>(last, options_.size);
  for (int32_t r = 0; r < options_.size; ++r) {
    if (Rank(r) == options_.self) continue;
    collectives::ReceiveCall receive_call;
    receive_call.from = Rank(r);
    receive_call.tag = kTag;
    receive_call.data = exchange->texts[static_cast<size_t>(r)].data();
    receive_call.bytes = sizeof(EpochExchange::Text);
    receive_call.deadline = deadline;
    receive_call.on_done = [exchange](const Status& s, Rank) { exchange->end_one(s); };
    receive(std::move(receive_call));
    collectives::SendCall send_call;
    send_call.to = Rank(r);
    send_call.tag = kTag;
    send_call.data = exchange->own.data();
    send_call.bytes = sizeof(EpochExchange::Text);
    send_call.deadline = deadline;
    send_call.on_done = [exchange](const Status& s, Rank) { exchange->end_one(s); };
    send(std::move(send_call));
  }
  // Each send and receive ends by its own deadline.
  std::unique_lock lock(exchange->mutex);
  exchange->changed.wait(
      lock, [&] { return exchange->num_open == 0 || exchange->failure.has_failed(); });
  if (exchange->failure.has_failed()) {
    return exchange->failure.with_context(
        concat("not all members of group \"", options_.name, "\" are connected"));
  }
  uint64_t highest = last.value;
  for (const EpochExchange::Text& text : exchange->texts) {
    uint64_t epoch = 0;
    std::memcpy(&epoch, text.data(), sizeof epoch);
    highest = std::max(highest, epoch);
  }
  lock.unlock();
  const Epoch agreed(highest + 1);
  engine_->run_and_wait([&] { group_->set_epoch(agreed); });
  const std::lock_guard own_lock(mutex_);
  epoch_ = agreed;
  return Status::ok();
}

}  // namespace aikido::engine

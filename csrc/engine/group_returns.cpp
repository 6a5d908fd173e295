// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
//
// Part of Group for members that are excluded for a full log, and for the return of a
// member that has copied the state of another member.

#include <algorithm>
#include <utility>

#include "base/mutation.h"
#include "engine/group.h"

namespace aikido::engine {

using collectives::Operation;

namespace {

// Message of a seal, as aikido_torch/recovery/_state_transfer.py reads it.
constexpr int64_t kSealed = 1;
constexpr int64_t kNotSealed = -1;

// True if the others go on without this member, and it misses no data of its own.
bool is_passable(const collectives::Call& call) {
  return call.is_agreed() && call.policy.kind == straggler::Kind::kSkip;
}

}  // namespace

// ---- skipping through ----

Status Group::check_passable(uint64_t seq) const {
  const auto wrong = [&](const std::string& why) {
    return Status(Code::kInvalidArgument,
                  concat("rank ", options_.self.value,
                         " cannot skip through the collectives of group \"",
                         options_.name, "\" up to ", seq, ": ", why));
  };
  if (seq > membership::kMaxSeq) return wrong("there is none of that number");
  if (seq < marks_.called)
    return wrong(concat("it has called ", marks_.called,
                        "; copy the state of a rank that has called as many"));
  for (const auto& [number, active] : calls_) {
    const Operation& operation = *active.operation;
    if (number > seq) break;
    const auto what =
        concat(describe(operation.call()), ", collective ", number, ", is ");
    if (operation.is_started() || active.held)
      return wrong(what + "under way here; wait for its end first");
    if (!operation.has_failed() && !is_passable(operation.call()))
      return wrong(what + "no all_reduce that may skip; call it");
  }
  if (view_change_.is_removed() && seq < marks_.acked) {
    return {Code::kRetryLater,
            concat("rank ", options_.self.value, " has received all results up to ",
                   marks_.acked, ": the state behind collective ", seq,
                   " is older; copy it again")};
  }
  return {};
}

Status Group::skip_through(Seq upto) {
  const uint64_t seq = upto.value;
  if (life_.has_ended()) return life_.reason();
  AIKIDO_TRY(check_passable(seq));
  const bool is_out = view_change_.is_removed();
  // Nothing is skipped, so this member can still send the results that it has received.
  if (!is_out && seq == marks_.called) return {};
  own_state_.forgive();
  skipped_.skip(marks_.called, seq, reports_.received_by_all() + 1,
                [this](uint64_t number) { return calls_.contains(number); });
  marks_.called = marks_.announced = seq;
  policies_.on_called(options_.self, upto, clock_->now());
  drop_skipped(seq, is_out);
  marks_.acked = is_out ? seq : std::max(marks_.acked, seq);
  update_known();
  results_.trim();
  own_state_.publish(view_change_.is_removed());
  if (is_out) view_change_.rejoin(clock_->now());
  return {};
}

// Ends the local operations up to `seq`. An excluded member ends all its operations,
// because its results belong to an earlier membership.
void Group::drop_skipped(uint64_t seq, bool is_out) {
  for (const auto& operation : calls_.operations()) {
    const uint64_t number = operation->seq().value;
    auto* skippable = operation->skippable();
    if (number > seq) {
      if (!is_out || operation->has_failed() || skippable == nullptr) continue;
      for (Peer& p : peers_) p.early.forget_results(number);
      skippable->start_over();
    } else if (operation->has_failed()) {
      calls_.on_failed_ahead_called();
      calls_.erase(number);
    } else {
      // check_passable() has refused all others.
      AIKIDO_CHECK(skippable != nullptr, describe(operation->call()));
      skippable->skip_through();
      retire(number);
    }
  }
  if (is_out) results_.clear();
}

// The first frame of an operation that was skipped before any frame of it came.
void Group::skip_unheard(const std::shared_ptr<Operation>& operation) {
  const uint64_t seq = operation->seq().value;
  if (is_passable(operation->call())) {
    operation->skippable()->skip_through();
    return retire(seq);
  }
  const Status why(
      Code::kInvalidArgument,
      concat(describe(operation->call()), ", collective ", seq, " of group \"",
             options_.name, "\", needs rank ", options_.self.value,
             ", which has skipped through the collectives up to ", skipped_.through(),
             " with the state of another rank; only all_reduces that may skip may lie "
             "between a rank and the state that it copies"),
      options_.self);
  peers_.send_abort(Seq(seq), why);
  calls_.erase(seq);
}

// Note [seals]
// A copied state may be used only when all other members have the results in it. If the
// giver alone has seen a result and is lost, another result may be decided. The giver's
// own thread may then be in a call that waits for the member which waits for the seal.
// So the progress thread gives the seal.
void Group::seal(const Seal& seal) {
  seals_.push_back(seal);
  send_seals();
}

void Group::send_seals() {
  std::vector<Seal> left;
  for (const Seal& seal : std::exchange(seals_, {})) {
    if (life_.has_ended() || peers_[seal.to].is_lost()) continue;
    const bool may_be_used = outlook_.is_acked(seal.seq, seal.to);
    // Another view decides the results that lost members lack, if there can be one.
    const bool may_change = !view_change_.is_removed() && view_change_.has_majority();
    if (!may_be_used && may_change) {
      left.push_back(seal);
      continue;
    }
    const auto word = std::make_shared<int64_t>(may_be_used ? kSealed : kNotSealed);
    collectives::SendCall call;
    call.to = seal.to;
    call.tag = seal.tag;
    call.data = reinterpret_cast<const std::byte*>(word.get());
    call.bytes = sizeof *word;
    call.deadline = TimePoint::max();
    call.keep_alive = word;
    send(std::move(call));
  }
  left.insert(left.end(), seals_.begin(), seals_.end());
  seals_ = std::move(left);
}

// ---- a full log ----

// Marks a member for exclusion if the next result for it cannot be kept. The exclusion
// is not done in the middle of other work, as in ShardOwners::change_if_due().
// WaitAll(rebalance=True) needs all members of the view; with such calls the member is
// waited for when its log has grown by half.
void Group::note_full(uint64_t bytes) {
  if (view_change_.is_removed()) return;
  if (policies_.has_full_sums()) return;
  for (const auto& policy : policies_) {
    if (!can_leave_one(policy->options(), view().members.count(), options_.size))
      continue;
    view().members.for_each([&](Rank r) {
      const straggler::ResultLog& log = policy->history().log();
      if (r != options_.self && log.outstanding_bytes(r) > 0 &&
          log.would_overflow(r, bytes) && outlook_.can_spare(r))
        full_ = r;
    });
  }
}

void Group::exclude_full() {
  const Rank rank = std::exchange(full_, kNoRank);
  if (rank != kNoRank) view_change_.exclude(rank, clock_->now());
}

// If this excluded member came back with a late caller, it would get more results than
// it can keep. So it stays out, and its caller copies a state.
void Group::stay_excluded_if_full() {
  if (!view_change_.is_removed() || own_state_.refusal() || !policies_.may_leave())
    return;
  uint64_t ahead = 0;
  for (auto it = calls_.behind(marks_.called); it != calls_.end(); ++it)
    if (it->second.operation->call().is_partial())
      ahead += outlook_.charge_of(*it->second.operation);
  if (ahead <= options_.log_bytes / 2) return;
  view_change_.stay_excluded();
  on_refused(Status(
      Code::kPeerLost,
      concat("rank ", options_.self.value, " was left out of group \"", options_.name,
             "\" while it was late: it has called ", marks_.called, " collectives and ",
             ahead, " bytes of results are kept for it, of ", options_.log_bytes,
             " that the log has room for", reports_.way_back(false)),
      options_.self));
}

}  // namespace aikido::engine

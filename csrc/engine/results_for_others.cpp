// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "engine/results_for_others.h"

#include <algorithm>

#include "base/mutation.h"

namespace aikido::engine {

bool ResultsForOthers::keep(
    const std::shared_ptr<collectives::SkippableOperation>& operation) {
  if (parts_.options->size == 1 || mutated(Mutation::kFreeResultEarly)) return false;
  keeper_.keep(operation, parts_.outlook->charge_of(*operation));
  trim();
  return true;
}

void ResultsForOthers::note_failed(uint64_t seq, const Status& why) {
  if (!parts_.own_state->refusal() && !parts_.life->has_ended())
    keeper_.note_failed(seq, why);
}

// Note [an error reaches all members]
// If a call fails, all members get the error, except those without a connection. Such a
// member would wait for a result that no member makes, and in the end the others would
// wait for its next call. Rule: members that took part in a failed call report the
// error again in each new view. They send it to the members that may still wait for the
// result, unless a holder can send it.
void ResultsForOthers::tell_failed() {
  // A stranded member does not know if the call has failed for the others.
  if (mutated(Mutation::kFailureToldOnce) || parts_.outlook->is_stranded()) return;
  Peers& peers = *parts_.peers;
  for (const auto& [seq, why] : keeper_.failures()) {
    const auto& held = parts_.view_change->view().held;
    const bool is_held = std::any_of(held.begin(), held.end(),
                                     [&](const auto& h) { return h.seq == seq; });
    // For members that joined later, the operation may have failed only for them.
    if (is_held || !parts_.view_change->view().takes_part(parts_.options->self, seq))
      continue;
    // The receiver may have the result by now. For it, this is no sign of different
    // calls.
    const bool is_other = why.code() == Code::kInvalidArgument;
    const Status again =
        is_other ? Status(Code::kAborted, why.message(), why.culprit()) : why;
    parts_.view_change->view().members.for_each([&](Rank r) {
      Peer& p = peers[r];
      const bool is_near = seq.value <= p.called() + Peers::kMaxFailedAhead;
      if (r != parts_.options->self && !p.is_lost() && is_near &&
          peers.acked_by(r) < seq.value)
        p.send_abort(seq, again);
    });
  }
}

void ResultsForOthers::trim() {
  // An excluded member must still be able to report its exposed results, and a reported
  // result may be wanted in the next view.
  if ((keeper_.is_empty() && !parts_.skipped->has_unheard()) ||
      parts_.view_change->is_removed() || parts_.view_change->is_promised())
    return;
  ResultKeeper::Acknowledged upto{parts_.marks->acked, parts_.marks->acked};
  for (int32_t r = 0; r < parts_.options->size; ++r) {
    const Peer& p = (*parts_.peers)[Rank(r)];
    if (Rank(r) == parts_.options->self || p.is_lost()) continue;
    if (parts_.view_change->view().has(Rank(r))) {
      upto.members = std::min(upto.members, p.acked());
    } else {
      upto.returning = std::min(upto.returning, parts_.absent->return_floor(Rank(r)));
    }
  }
  parts_.skipped->forget(upto.members);
  // Operations that were in progress when the others began to hold calls back need room
  // too.
  const uint64_t limit =
      parts_.options->log_bytes +
      (parts_.outlook->expected_back().count() > 0 ? parts_.options->log_bytes / 2 : 0);
  keeper_.release(upto, limit);
}

}  // namespace aikido::engine

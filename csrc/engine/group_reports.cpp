// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "engine/group_reports.h"

#include <algorithm>
#include <utility>

#include "base/text.h"

namespace aikido::engine {

using collectives::Call;
using membership::Report;

namespace {

bool is_before(const membership::ReceivedShard& a, const membership::ReceivedShard& b) {
  return std::pair(a.seq, a.shard) < std::pair(b.seq, b.shard);
}

}  // namespace

void GroupReports::note_calls(Report& report) const {
  report.known = std::max(report.known, Seq(facts_.marks.announced));
  for (const auto& [seq, active] : facts_.calls) {
    // A rejoining member takes part in operations that no member knows yet.
    if (seq > facts_.marks.announced && active.is_held_back()) continue;
    if (active.operation->skippable() == nullptr) continue;
    const collectives::SkippableOperation& operation = *active.operation->skippable();
    const Call& call = operation.call();
    report.known = std::max(report.known, operation.seq());
    if (operation.has_failed() || operation.is_committed()) continue;
    // A member that joined later has no block in it and makes no result. It only waits
    // for the result.
    const bool takes_part =
        facts_.view().takes_part(facts_.options.self, operation.seq());
    if (!takes_part && !call.is_agreed()) continue;
    report.needed = std::max(
        report.needed, straggler::members_of_quorum(call.policy, facts_.options.size));
    if (takes_part && operation.is_decided()) continue;
    if (report.open == Seq()) report.open = operation.seq();
  }
}

Report GroupReports::report() const {
  Report report;
  report.acked = Seq(facts_.marks.acked);
  note_calls(report);
  report.kept = Seq(facts_.marks.acked + 1);
  if (!facts_.keeper.results().empty())
    report.kept = std::min(report.kept, Seq(facts_.keeper.results().begin()->first));
  // A strict operation in progress does not count, because operations behind it may be
  // forgotten.
  report.kept = std::min(report.kept, facts_.calls.first_agreed());
  if (facts_.skipped.through() > 0)
    report.kept = std::max(report.kept, Seq(facts_.skipped.through() + 1));
  if (facts_.skipped.from() <= facts_.skipped.through()) {
    report.skipped_from = Seq(facts_.skipped.from());
    report.skipped_through = Seq(facts_.skipped.through());
  }
  for (const auto& [seq, why] : facts_.keeper.failures()) report.failed.push_back(seq);
  report.lost = RankSet(facts_.options.size);
  for (int32_t r = 0; r < facts_.options.size; ++r)
    if (facts_.peers[Rank(r)].is_lost()) report.lost.insert(Rank(r));
  // An excluded member reports all its results, because the others may have different
  // ones. A member of the view reports from its last complete operation on, which
  // others lack most often.
  report.received =
      received_from(facts_.view_change.is_removed() ? 1 : facts_.marks.acked);
  for (const auto& [seq, active] : facts_.calls)
    if (const auto* skippable = active.operation->skippable();
        skippable != nullptr && !skippable->has_failed())
      skippable->report_closed(report.closed);
  std::sort(report.closed.begin(), report.closed.end(), is_before);
  const auto note_divided = [&](Seq seq,
                                const collectives::SkippableOperation& operation) {
    if (seq.value <= facts_.marks.acked)
      for (const int32_t shard : operation.divided())
        report.divided.emplace_back(seq, shard);
  };
  for (const auto& [seq, kept] : facts_.keeper.results())
    note_divided(Seq(seq), *kept.operation);
  for (const auto& [seq, active] : facts_.calls)
    if (const auto* skippable = active.operation->skippable())
      note_divided(Seq(seq), *skippable);
  std::sort(report.divided.begin(), report.divided.end());
  return report;
}

std::vector<Seq> GroupReports::withheld() const {
  std::vector<Seq> withheld;
  for (const auto& [seq, active] : facts_.calls) {
    const auto* skippable = active.operation->skippable();
    if (skippable != nullptr && !skippable->has_failed() && skippable->is_withheld())
      withheld.push_back(Seq(seq));
  }
  return withheld;
}

bool GroupReports::can_do_without(Rank rank) const {
  if (facts_.keeper.bytes() > facts_.options.log_bytes / 2) return false;
  // A member that has joined since takes no part in operations that others have called
  // already.
  uint64_t next = facts_.marks.acked + 1;
  while (facts_.calls.contains(next)) ++next;
  bool is_called = false;
  facts_.view().members.for_each(
      [&](Rank r) { is_called |= facts_.peers.called_by(r) >= next; });
  RankSet others =
      is_called ? facts_.view().participants(Seq(next)) : facts_.view().members;
  others.erase(rank);
  if (!facts_.policies.would_suffice(others)) return false;
  return std::all_of(facts_.calls.begin(), facts_.calls.end(), [&](const auto& entry) {
    const auto* skippable = entry.second.operation->skippable();
    if (skippable == nullptr || skippable->has_failed()) return true;
    const collectives::SkippableOperation& operation = *skippable;
    RankSet called(facts_.options.size);
    facts_.view().participants(operation.seq()).for_each([&](Rank r) {
      // A member that waits in a call makes the next call when the first is over.
      const uint64_t its = facts_.peers.called_by(r);
      const bool waits =
          its + 1 == operation.seq().value && facts_.peers.acked_by(r) < its;
      if (r != rank && (its >= operation.seq().value || waits)) called.insert(r);
    });
    return operation.is_decided() ||
           operation.most_contributions(called) >=
               straggler::quorum_of(operation.call().policy, facts_.options.size);
  });
}

// Received results of the operations from `seq` on.
std::vector<membership::ReceivedShard> GroupReports::received_from(uint64_t seq) const {
  std::vector<membership::ReceivedShard> received;
  const auto& results = facts_.keeper.results();
  for (auto it = results.lower_bound(seq); it != results.end(); ++it)
    it->second.operation->report(received);
  for (auto it = facts_.calls.from(seq); it != facts_.calls.end(); ++it) {
    const auto* skippable = it->second.operation->skippable();
    if (skippable != nullptr && !skippable->has_failed()) skippable->report(received);
  }
  std::sort(received.begin(), received.end(), is_before);
  return received;
}

uint64_t GroupReports::received_by_all() const {
  return facts_.keeper.released_up_to(
      std::min(facts_.marks.acked, facts_.calls.first_agreed().value - 1));
}

std::optional<Status> GroupReports::compare(Rank rank, const Report& report) const {
  const auto out = [&](const std::string& why, bool is_cut = false) {
    return Status(
        Code::kPeerLost,
        concat("rank ", rank.value, " was left out of group \"", facts_.options.name,
               "\" while it was late, and cannot return: ", why, way_back(is_cut)),
        rank);
  };
  for (int32_t r = 0; r < facts_.options.size; ++r) {
    if (facts_.view().has(Rank(r)) && report.lost.contains(Rank(r)))
      return out(concat("its connection to rank ", r, " is broken"), true);
  }
  const uint64_t forgotten = facts_.keeper.forgotten();
  if (report.acked.value < forgotten ||
      (!report.received.empty() && report.received.front().seq.value <= forgotten &&
       forgotten > facts_.absent.return_floor(rank))) {
    return out(concat("the results from operation ", report.acked.value + 1, " to ",
                      forgotten, " are not kept any more"));
  }
  // Operations that this member has skipped are neither known nor kept here.
  const bool lacks_skipped = report.acked.value < facts_.skipped.through();
  if (!lacks_skipped && is_too_much(report))
    return out("the results that it lacks fill half of the log");
  const uint64_t floor = facts_.absent.return_floor(rank);
  // For dropped results this member cannot tell if all had the result, and which.
  const uint64_t dropped_from = facts_.skipped.dropped_from();
  const auto ours =
      received_from(dropped_from > 0 ? std::min(dropped_from, floor + 1) : floor + 1);
  for (const auto& theirs : report.received) {
    // All members had it, so it is the same.
    if (theirs.seq.value <= floor && !facts_.skipped.was_dropped(theirs.seq.value))
      continue;
    const auto it = std::lower_bound(ours.begin(), ours.end(), theirs, is_before);
    const bool is_here =
        it != ours.end() && it->seq == theirs.seq && it->shard == theirs.shard;
    // This member will never know it.
    if (!is_here && (theirs.seq.value <= facts_.skipped.through() ||
                     facts_.keeper.failures().contains(theirs.seq)))
      return Status(Code::kRetryLater, "");
    // Not received here yet.
    if (!is_here && theirs.seq.value > facts_.marks.acked) return std::nullopt;
    if (!is_here || it->mask != theirs.mask) {
      return out(concat("it has seen another result of operation ", theirs.seq.value,
                        " than the others"));
    }
  }
  // A member that has those results must compare.
  if (lacks_skipped) return std::nullopt;
  return Status::ok();
}

// True if a returning member lacks more results than half of the log. The results that
// it keeps for its own caller count too. A member that has just copied a state keeps
// nothing, and has no better way to return.
bool GroupReports::is_too_much(const membership::Report& report) const {
  if (!facts_.policies.may_leave() || report.kept > report.acked) return false;
  return facts_.keeper.bytes_after(report.acked.value) > facts_.options.log_bytes / 2;
}

std::string GroupReports::way_back(bool is_cut) const {
  if (is_cut || !facts_.policies.may_leave())
    return "; copy the state of another rank and reconfigure";
  return "; copy the state of another rank, as catch_up() of aikido_torch.ddp does, or "
         "reconfigure";
}

}  // namespace aikido::engine

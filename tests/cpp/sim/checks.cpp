// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "sim/checks.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "kernels/reduce.h"
#include "membership/view_message.h"
#include "sim/votes.h"

namespace aikido::sim {

using collectives::Call;
using collectives::CallKind;
using collectives::Outcome;
using collectives::OutcomeKind;
using transport::FrameKind;

namespace {

// A 64-bit mixing function (splitmix64).
uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// Input with values of very different sizes, so that a sum shows its order. The values
// differ by rank, operation and element.
Bytes make_input(size_t count, uint64_t seed) {
  constexpr std::array<float, 8> kScales = {1.0f,      0.5f,      0.25f,      16.0f,
                                            1 / 64.0f, 1 / 128.f, 1 / 1024.f, 64.0f};
  Bytes data(count * sizeof(float));
  for (size_t i = 0; i < count; ++i) {
    const uint64_t r = mix(seed + i);
    const auto whole =
        static_cast<float>(static_cast<int32_t>(r % 2'000'001) - 1'000'000);
    testing::set_element(data.data(), i, whole * kScales[r >> 61]);
  }
  return data;
}

std::string mask_text(uint64_t mask) {
  std::string text = "{";
  for (; mask != 0; mask &= mask - 1)
    text += concat(text.size() > 1 ? "," : "", std::countr_zero(mask));
  return text + "}";
}

// Digest of stand-ins for different data shards; 0 without stand-ins.
uint64_t digest_of(const std::vector<straggler::StandIn>& stand_ins) {
  uint64_t digest = 0;
  for (const auto& [data_shard, backup] : stand_ins)
    digest = mix(digest ^ static_cast<uint64_t>(data_shard.value * 64 + backup.value));
  return digest;
}

std::string stand_ins_text(const std::vector<straggler::StandIn>& stand_ins) {
  std::string text;
  for (const auto& [data_shard, backup] : stand_ins)
    text += concat(" ", data_shard.value, " from ", backup.value);
  return text;
}

uint64_t all_of(int32_t members) {
  return members >= 64 ? ~uint64_t{0} : (uint64_t{1} << members) - 1;
}

// True if the script asks for a partial operation. A mutation does not change this.
bool is_partial(const Call& call) {
  return call.policy.uses_view();
}

// True if each shard has one mask for all members, decided by one owner.
bool has_one_result(const Call& call) {
  return is_partial(call) && call.kind == CallKind::kAllreduce;
}

uint64_t mask_of(const std::vector<Rank>& ranks) {
  uint64_t mask = 0;
  for (const Rank r : ranks) mask |= uint64_t{1} << r.value;
  return mask;
}

// A bucket with one mask has a single owner.
int32_t num_owners(const Call& call, int32_t members) {
  return call.policy.masks == straggler::Masks::kBucket ? 1 : members;
}

// Number of members that have a quorum, no matter which members they are. Some of them
// may have computed the same data shard. With kReplicate one backup computes the data
// of each primary. With kSubstitute each backup has a data shard of its own. In the
// other modes every backup may have computed the same data shard.
int32_t members_needed(const straggler::PolicyOptions& policy, int32_t members) {
  using straggler::BackupMode;
  const int32_t quorum = straggler::quorum_of(policy, members);
  if (!policy.has_stand_ins() || policy.backup_mode == BackupMode::kSubstitute ||
      quorum == 1)
    return quorum;
  const bool is_once = policy.backup_mode == BackupMode::kReplicate;
  return quorum + (is_once ? std::min(quorum - 1, policy.backups) : policy.backups);
}

// True for a message that asks a member for its state, for the next view.
bool is_question(const transport::FrameHeader& header) {
  return header.kind == FrameKind::kView &&
         header.shard == static_cast<uint16_t>(membership::ViewStep::kPrepare);
}

constexpr auto kWeight = &collectives::ShardOutcome::weight;

// A longer time-out outlasts every delay of a schedule.
constexpr Duration kPatience = std::chrono::seconds(10);

}  // namespace

Checks::Checks(const Script& script, int32_t members_tolerated)
    : script_(script),
      tolerated_(members_tolerated),
      weights_(script),
      newest_{1, all_of(script.members)},
      members_{{newest_.number, newest_.members}},
      views_(static_cast<size_t>(script.members), newest_),
      since_(static_cast<size_t>(script.members), 1),
      called_at_view_(script.ops.size() + 1),
      stopped_until_(static_cast<size_t>(script.members)),
      kept_(static_cast<size_t>(script.members)),
      asked_(static_cast<size_t>(script.members)),
      may_fail_(script.timeout < kPatience) {
  const auto n = static_cast<size_t>(script.members);
  for (size_t i = 0; i < script.ops.size(); ++i) {
    const Call& call = script.ops[i];
    ops_.push_back({call,
                    collectives::ShardPlan(call.count, size_of(call.dtype),
                                           num_owners(call, script.members),
                                           script.min_shard_bytes),
                    std::vector<Exposed>(n)});
    auto& inputs = inputs_.emplace_back();
    for (size_t r = 0; r < n; ++r) {
      inputs.push_back(make_input(call.count, mix(mix(script.seed + i) + r)));
      ops_.back().by_rank[r].giver = static_cast<int32_t>(r);
    }
  }
}

void Checks::broken(const std::string& what) {
  if (violation_.empty()) violation_ = what;
}

// ---- events ----

void Checks::on_call(int32_t rank, uint64_t op, TimePoint now, int32_t data_shard) {
  Op& o = at(op);
  Exposed& e = o.by_rank[static_cast<size_t>(rank)];
  e.is_called = true;
  e.called_at = now;
  e.data_shard = data_shard;
  e.called_in_step = ++step_;
  if (o.first_called == TimePoint::max() && !is_too_large()) note_known(o);
  o.first_called = std::min(o.first_called, now);
  o.last_called = std::max(o.last_called, now);
  auto& kept = kept_[static_cast<size_t>(rank)];
  kept.erase(kept.begin(), kept.upper_bound(op));
}

void Checks::on_end(int32_t rank, uint64_t op, const Status& status,
                    const Outcome& outcome, const Bytes& output, TimePoint now) {
  Op& o = at(op);
  Exposed& e = o.by_rank[static_cast<size_t>(rank)];
  const std::string where = concat("operation ", op, " on rank ", rank);
  if (std::exchange(e.has_ended, true)) return broken("S6: " + where + " ends twice");
  o.last_end = std::max(o.last_end, now);
  const TimePoint limit = std::max(e.called_at + script_.timeout,
                                   stopped_until_[static_cast<size_t>(rank)]);
  if (now > limit)
    broken(concat("S6: ", where, " ends ", to_text(now - limit), " too late"));
  ++num_ends_[status.has_failed() ? 2 : outcome.kind == OutcomeKind::kPartial ? 1 : 0];
  if (status.has_failed()) return check_error(rank, op, status);
  e.is_ok = true;
  if (is_too_large()) return;
  if (has_one_result(o.call) && !views_[static_cast<size_t>(rank)].contains(rank))
    broken(concat("S1: ", where, " ends well, but the member is removed"));
  if (has_one_result(o.call)) {
    check_partial(rank, op, outcome, output);
  } else if (is_partial(o.call)) {
    check_scattered(rank, op, outcome, output);
  } else {
    check_strict(rank, op, outcome, output);
  }
}

bool Checks::may_pass(int32_t rank, int32_t giver, uint64_t op) const {
  for (uint64_t i = 0; i < op; ++i) {
    const auto& by_rank = ops_[i].by_rank;
    if (!by_rank[static_cast<size_t>(giver)].is_ok) return false;
    // A program may skip through partial allreduces only. The group cannot refuse an
    // operation of another kind if no member has told it of this operation.
    const bool is_called = by_rank[static_cast<size_t>(rank)].is_called;
    if (!has_one_result(ops_[i].call) && !is_called) return false;
  }
  return true;
}

void Checks::on_pass(int32_t rank, int32_t giver, uint64_t op) {
  for (uint64_t i = 1; i <= op; ++i) {
    Exposed& mine = at(i).by_rank[static_cast<size_t>(rank)];
    const Exposed& theirs = at(i).by_rank[static_cast<size_t>(giver)];
    mine.is_called = mine.has_ended = true;
    mine.is_ok = theirs.is_ok;
    // A block of a reduce_scatter belongs to one rank alone.
    if (!has_one_result(at(i).call)) continue;
    mine.masks = theirs.masks;
    mine.ends = theirs.ends;
    mine.stand_ins = theirs.stand_ins;
    mine.reason = theirs.reason;
    mine.deadline = theirs.deadline;
    mine.out = theirs.out;
    mine.giver = theirs.giver;
  }
  auto& kept = kept_[static_cast<size_t>(rank)];
  kept.erase(kept.begin(), kept.upper_bound(op));
  for (uint64_t i = 1; i <= ops_.size(); ++i) check_same(i);
}

void Checks::on_memory_touched(int32_t rank, uint64_t op) {
  broken(concat("S6: the memory of operation ", op, " on rank ", rank,
                " is written to after its end"));
}

void Checks::on_view(int32_t rank, const SeenView& view) {
  SeenView& mine = views_[static_cast<size_t>(rank)];
  if (mine == view || is_too_large()) return;
  if (view.number > newest_.number)
    for (Op& op : ops_) note_excluded(op, view);
  asked_[static_cast<size_t>(rank)] = 0;
  if (view.number < mine.number)
    broken(concat("S1: rank ", rank, " goes back from view ", mine.number, " to ",
                  view.number));
  mine = view;
  if (view.number == newest_.number && view.members != newest_.members)
    broken(concat("S1: view ", view.number, " has members ", mask_text(view.members),
                  " on rank ", rank, " and ", mask_text(newest_.members),
                  " elsewhere"));
  members_.emplace(view.number, view.members);
  if (view.number <= newest_.number) return;
  // The only voter may install two views at once.
  const int num_voters = std::popcount(voters_of(script_, newest_.members));
  if (num_voters > 1 && view.number > newest_.number + 1)
    broken(concat("S1: rank ", rank, " is in view ", view.number,
                  ", and nobody was seen in view ", newest_.number + 1));
  if (!has_majority(script_, view.members, newest_.members))
    broken(concat("S1: view ", view.number, " ", mask_text(view.members),
                  " has no majority of ", mask_text(newest_.members)));
  note_returns(std::exchange(newest_, view));
  for (uint64_t op = 1; op <= ops_.size(); ++op) check_same(op);
}

void Checks::on_excluded(int32_t rank, bool is_refused) {
  const auto& must = script_.must_return;
  if (std::find(must.begin(), must.end(), rank) != must.end())
    broken(concat("S7: rank ", rank, " must return, and is ",
                  is_refused ? "refused" : "out of the view"));
}

void Checks::on_stop(int32_t rank, TimePoint until) {
  TimePoint& mine = stopped_until_[static_cast<size_t>(rank)];
  mine = std::max(mine, until);
}

void Checks::on_kill(int32_t rank) {
  killed_ |= uint64_t{1} << rank;
  if (voters_of(script_, uint64_t{1} << rank) != 0) ++num_lost_;
}

void Checks::on_lost(int32_t rank, int32_t other) {
  noticed_.emplace(std::pair(rank, other), ++step_);
}

void Checks::on_cut(int32_t a, int32_t b) {
  ++num_lost_;
  on_held(a, b);
}

void Checks::on_held(int32_t from, int32_t to) {
  if (!is_too_large()) cut_.insert(uint64_t{1} << from | uint64_t{1} << to);
}

// A member that asks the others reports its own state, too. It may ask during its last
// call, so its state is from before that call.
void Checks::note_own_question(int32_t rank) {
  uint64_t& asked = asked_[static_cast<size_t>(rank)];
  if (asked != 0) return;
  asked = 1;
  for (const Op& op : ops_)
    asked = std::max(asked, op.by_rank[static_cast<size_t>(rank)].called_in_step);
}

void Checks::on_sent(int32_t from, const transport::FrameHeader& header) {
  if (is_too_large()) return;
  if (is_question(header)) note_own_question(from);
  if (header.seq >= 1 && header.seq <= ops_.size() && header.kind == FrameKind::kResult)
    check_heard(from, header.seq, header);
  if (script_.calm && header.seq >= 1 && header.seq <= ops_.size() &&
      header.kind == FrameKind::kContrib && header.payload_bytes > 0) {
    const straggler::PolicyOptions& policy = at(header.seq).call.policy;
    const bool is_asked = !policy.verify_shadows &&
                          policy.backup_mode != straggler::BackupMode::kReplicate;
    if (is_asked && straggler::is_backup(policy, Rank(from), script_.members))
      broken(concat("L1: rank ", from, ", a backup, contributes to operation ",
                    header.seq, " with nobody late"));
  }
  if (header.seq < 1 || header.seq > ops_.size() || header.offset > 0) return;
  Op& o = at(header.seq);
  if (header.kind == FrameKind::kContrib) {
    ++o.num_contributions;
  } else if (header.kind == FrameKind::kResult) {
    ++o.num_results;
  } else if (header.kind != FrameKind::kCalled &&
             header.kind != FrameKind::kHeartbeat) {
    ++o.num_others;
  }
}

// An owner closes a shard only after it has heard from more than half of its view. So
// no minority exposes a result alone. The frame may leave in a later view; its header
// names the view in which the shard was closed.
void Checks::check_heard(int32_t rank, uint64_t op,
                         const transport::FrameHeader& header) {
  Op& o = at(op);
  if (!has_one_result(o.call)) return;
  const bool is_first = o.closed.insert(header.shard).second;
  const auto view = members_.find(header.view);
  if (view == members_.end()) return;  // no member was seen in this view
  const uint64_t members = view->second, self = uint64_t{1} << rank;
  if ((members & self) == 0)
    broken(concat("S1: rank ", rank, " sends a result of operation ", op, " in view ",
                  view->first, " of ", mask_text(members)));
  const uint64_t heard = o.by_rank[static_cast<size_t>(rank)].heard | self;
  if (is_first && !has_majority(script_, heard, members))
    broken(concat("S1: rank ", rank, " closes operation ", op, " having heard from ",
                  mask_text(heard), " of ", mask_text(members)));
}

void Checks::on_taken(int32_t rank, int32_t from, const transport::FrameHeader& header,
                      bool is_taken) {
  if (is_too_large()) return;
  for (uint64_t op = 1; op <= std::min<uint64_t>(header.called, ops_.size()); ++op)
    at(op).by_rank[static_cast<size_t>(rank)].heard |= uint64_t{1} << from;
  uint64_t& asked = asked_[static_cast<size_t>(rank)];
  if (is_question(header) && asked == 0) asked = ++step_;
  if (header.seq < 1 || header.seq > ops_.size()) return;
  if (header.kind == FrameKind::kPresent)
    at(header.seq).by_rank[static_cast<size_t>(rank)].heard |= uint64_t{1} << from;
  const uint64_t since = since_[static_cast<size_t>(from)];
  if (is_taken && header.kind == FrameKind::kContrib &&
      is_partial(at(header.seq).call) && header.view < since &&
      views_[static_cast<size_t>(rank)].number >= since)
    broken(concat("S2: rank ", rank, " takes a contribution to operation ", header.seq,
                  " that rank ", from, " sent before it came back in view ", since));
}

// A rejoined member is not in the result of an operation if two conditions hold. A
// member of both views had called the operation before the view change. No result
// existed: none had left its owner, and no member of both views had exposed a result.
// An owner exposes a full result at once, but may send it late.
void Checks::note_returns(const SeenView& before) {
  for (int32_t r = 0; r < script_.members; ++r) {
    if (before.contains(r) || !newest_.contains(r)) continue;
    since_[static_cast<size_t>(r)] = newest_.number;
    for (uint64_t op = 1; op <= ops_.size(); ++op) {
      Op& o = at(op);
      const uint64_t both = before.members & newest_.members;
      const bool is_known = (called_at_view_[op] & both) != 0;
      if (is_known && o.closed.empty() && !is_exposed(o, both))
        o.by_rank[static_cast<size_t>(r)].is_not_for = true;
    }
  }
  for (uint64_t op = 1; op <= ops_.size(); ++op)
    for (size_t r = 0; r < at(op).by_rank.size(); ++r)
      if (at(op).by_rank[r].is_called) called_at_view_[op] |= uint64_t{1} << r;
}

// True if one of `members` has exposed a result.
bool Checks::is_exposed(const Op& op, uint64_t members) const {
  for (size_t r = 0; r < op.by_rank.size(); ++r)
    if ((members >> r & 1) != 0 && op.by_rank[r].is_ok) return true;
  return false;
}

void Checks::on_result(int32_t rank, uint64_t op, uint64_t bytes) {
  if (op < 1 || op > ops_.size() || !is_partial(at(op).call)) return;
  if (at(op).by_rank[static_cast<size_t>(rank)].is_called) return;
  auto& kept = kept_[static_cast<size_t>(rank)];
  // A result that comes again in another view takes the same memory.
  kept[op] = std::min(kept[op] + bytes, uint64_t{at(op).call.bytes()});
  uint64_t total = 0, largest = 0;
  for (const auto& [seq, b] : kept) {
    total += b;
    largest = std::max(largest, at(seq).call.bytes());
  }
  // An owner that does not know yet how much the others have sent may fill the log
  // once.
  if (total > 2 * script_.log_bytes + largest)
    broken(concat("L6: ", total, " bytes of results are kept for rank ", rank,
                  ", with a log of ", script_.log_bytes));
}

void Checks::on_finish(TimePoint now) {
  if (is_too_large()) return;
  for (uint64_t op = 1; op <= ops_.size(); ++op) {
    Op& o = at(op);
    for (int32_t r = 0; r < script_.members; ++r) {
      const Exposed& e = o.by_rank[static_cast<size_t>(r)];
      if (!e.is_called || e.has_ended || (killed_ >> r & 1) != 0) continue;
      broken(concat("S6: operation ", op, " on rank ", r, " has no answer after ",
                    to_text(now - e.called_at)));
    }
    check_same(op);
    if (script_.calm) check_calm(op);
  }
}

// ---- ends of calls ----

void Checks::check_error(int32_t rank, uint64_t op, const Status& status) {
  const std::string where = concat("operation ", op, " on rank ", rank);
  if (status.message().find("rank ") == std::string::npos)
    broken(concat("S6: the error of ", where, " names no rank: ", status.message()));
  if (status.code() == Code::kInternal || status.code() == Code::kProtocol ||
      status.code() == Code::kInvalidArgument)
    broken(concat("S6: ", where, " fails by a defect: ", status.message()));
  // No member keeps a block for a member that was excluded.
  const bool was_out = since_[static_cast<size_t>(rank)] > 1 &&
                       at(op).call.kind == CallKind::kReduceScatter;
  if (must_succeed(rank, at(op)) && !(was_out && status.code() == Code::kAborted))
    broken(concat("S6: ", where, " fails without need: ", status.message()));
}

bool Checks::must_succeed(int32_t rank, const Op& op) const {
  if (may_fail_ || is_too_large()) return false;
  // Strict operations do not wait for a silent member.
  if (!is_partial(op.call) && script_.silent_after > Duration{}) return false;
  if (!is_partial(op.call)) return num_lost_ == 0 && killed_ == 0;
  if (num_lost_ > tolerated_ || !newest_.contains(rank)) return false;
  for (auto it = members_.lower_bound(op.oldest_view); it != members_.end(); ++it)
    if (const uint64_t voters = voters_of(script_, it->second);
        2 * num_live(voters) <= std::popcount(voters))
      return false;
  const uint64_t in_its_view = views_[static_cast<size_t>(rank)].members;
  if (!reaches_voter(script_, rank, in_its_view, killed_, cut_)) return false;
  uint64_t left = op.stayed & op.seen;
  // A member that was excluded at any time contributes to no block of a reduce_scatter.
  if (op.call.kind == CallKind::kReduceScatter)
    for (int32_t r = 0; r < script_.members; ++r)
      if (since_[static_cast<size_t>(r)] > 1) left &= ~(uint64_t{1} << r);
  return are_enough(op, left) || are_enough(op, op.had_stayed);
}

// Note [members excluded in turn]
// A rejoined member does not contribute to operations that were open when it rejoined.
// So members that are excluded in turn are all missing from such an operation. No
// member of a script is away for longer than needed members are waited for.
//
// The rule: a view must not exclude a member that would be back soon, if an operation
// of another member then cannot end. Two cases are no defect:
//   - The members in the view were enough, as far as their answers told, and another
//     member is lost after that.
//   - The excluded member was cut off from another member. One of the two has to go.
//     The coordinator may be a rejoined member that takes no part in the operation.
void Checks::note_known(Op& op) {
  op.stayed = newest_.members;
  op.seen = all_of(script_.members);
  op.oldest_view = newest_.number;
  for (int32_t r = 0; r < script_.members; ++r) {
    const SeenView& its = views_[static_cast<size_t>(r)];
    if ((killed_ >> r & 1) != 0 || !its.contains(r)) continue;
    op.seen &= its.members;
    op.oldest_view = std::min(op.oldest_view, its.number);
  }
}

void Checks::note_excluded(Op& op, const SeenView& view) {
  const uint64_t before = std::exchange(op.stayed, op.stayed & view.members);
  if (before == op.stayed || op.had_stayed != 0 || !has_one_result(op.call)) return;
  if (!op.closed.empty() || is_exposed(op, view.members)) return;
  if (!is_known_open(op, op.stayed)) return;
  const int32_t needed = members_needed(op.call.policy, script_.members);
  const int32_t sure = std::popcount(op.stayed) - (is_loss_known(op.stayed) ? 1 : 0);
  if (sure >= needed) return;
  uint64_t cut_off = 0;
  for (const uint64_t pair : cut_) cut_off |= pair;
  const uint64_t could_stay = op.stayed | (before & ~cut_off);
  if (std::popcount(could_stay) >= needed) op.had_stayed = could_stay;
}

// True if one of `members` had an open call of the operation when it was asked for its
// state.
bool Checks::is_known_open(const Op& op, uint64_t members) const {
  for (size_t r = 0; r < op.by_rank.size(); ++r) {
    const Exposed& e = op.by_rank[r];
    if ((members >> r & 1) != 0 && e.is_called && !e.has_ended &&
        e.called_in_step < asked_[r])
      return true;
  }
  return false;
}

// True if one of `members` had already lost another of them when it was asked for its
// state.
bool Checks::is_loss_known(uint64_t members) const {
  return std::any_of(noticed_.begin(), noticed_.end(), [&](const auto& entry) {
    const auto [rank, other] = entry.first;
    return (members >> rank & 1) != 0 && (members >> other & 1) != 0 &&
           entry.second < asked_[static_cast<size_t>(rank)];
  });
}

bool Checks::are_enough(const Op& op, uint64_t members) const {
  return num_live(members) >= members_needed(op.call.policy, script_.members);
}

// Number of members that can stay. If two members are cut off from each other, one of
// them has to go.
int32_t Checks::num_live(uint64_t members) const {
  const uint64_t live = members & ~killed_;
  return std::popcount(live) - static_cast<int32_t>(std::count_if(
                                   cut_.begin(), cut_.end(),
                                   [&](uint64_t pair) { return (pair & ~live) == 0; }));
}

double Checks::scale_of(const Call& call, int32_t contributors) const {
  const double n = straggler::num_data_shards(call.policy, script_.members);
  const bool is_mean = call.op == ReduceOp::kAvg;
  if (call.policy.divisor == straggler::Divisor::kWorld) return is_mean ? 1.0 / n : 1.0;
  return is_mean ? 1.0 / contributors : n / contributors;
}

const Bytes& Checks::folded(uint64_t op, size_t begin, size_t end, uint64_t mask,
                            double scale,
                            const std::vector<straggler::StandIn>& stand_ins) {
  const auto [it, is_new] =
      folds_.try_emplace({op, begin, end, mask, digest_of(stand_ins)});
  Bytes& out = it->second;
  if (!is_new || begin == end) return out;
  const Call& call = at(op).call;
  std::vector<const void*> sources;
  for (int32_t r = 0; r < script_.members; ++r)
    if ((mask >> r & 1) != 0) sources.push_back(input(r, op).data() + begin);
  // A shadow has the input of its primary.
  if (call.policy.backup_mode == straggler::BackupMode::kSubstitute)
    for (const auto& [data_shard, backup] : stand_ins) {
      const uint64_t before = mask & ((uint64_t{1} << data_shard.value) - 1);
      sources[static_cast<size_t>(std::popcount(before))] =
          input(backup.value, op).data() + begin;
    }
  out.resize(end - begin);
  if (call.is_weighted) {
    weights_.fold(op, mask, sources, out);
    return out;
  }
  kernels::find_reduce(call.op, call.dtype)(out.data(), sources.data(), sources.size(),
                                            (end - begin) / size_of(call.dtype), scale);
  return out;
}

void Checks::check_weight(const std::string& what, uint64_t op, uint64_t mask,
                          std::optional<double> weight) {
  const std::string wrong = weights_.difference(op, mask, weight);
  if (!wrong.empty()) broken(concat("S3: ", what, " has ", wrong));
}

void Checks::check_strict(int32_t rank, uint64_t op, const Outcome& outcome,
                          const Bytes& output) {
  const Op& o = at(op);
  const std::string where = concat("operation ", op, " on rank ", rank);
  if (outcome.kind != OutcomeKind::kComplete || !outcome.skipped.empty())
    broken(concat("S5: ", where, " is strict and skips somebody"));
  Bytes expected;
  switch (o.call.kind) {
    case CallKind::kBroadcast:
      expected = input(o.call.root.value, op);
      break;
    case CallKind::kAllgather:
      for (int32_t r = 0; r < script_.members; ++r)
        expected.insert(expected.end(), input(r, op).begin(), input(r, op).end());
      break;
    case CallKind::kBarrier:
      if (std::any_of(o.by_rank.begin(), o.by_rank.end(),
                      [](const Exposed& e) { return !e.is_called; }))
        broken(concat("S5: ", where, " is a barrier and ends before all have called"));
      break;
    default:
      expected = folded(op, 0, o.call.bytes(), all_of(script_.members),
                        o.call.op == ReduceOp::kAvg ? 1.0 / script_.members : 1.0, {});
  }
  check_weight(where, op, all_of(script_.members), outcome.weight);
  if (output != expected) broken(concat("S5: ", where, " is not the full result"));
}

void Checks::check_partial(int32_t rank, uint64_t op, const Outcome& outcome,
                           const Bytes& output) {
  Op& o = at(op);
  Exposed& e = o.by_rank[static_cast<size_t>(rank)];
  const std::string where = concat("operation ", op, " on rank ", rank);
  const size_t element = size_of(o.call.dtype);
  e.out = outcome.out;
  e.reason = outcome.reason;
  e.deadline = outcome.deadline;
  if (outcome.shards.empty() ||
      (num_owners(o.call, script_.members) == 1 && outcome.shards.size() != 1))
    return broken(concat("S2: ", where, " has ", outcome.shards.size(), " shards"));
  uint64_t next = 0;  // in elements
  for (size_t s = 0; s < outcome.shards.size(); ++s) {
    const auto& shard = outcome.shards[s];
    if (shard.first_element != std::exchange(next, next + shard.num_elements))
      return broken(concat("S2: ", where, ", shard ", s, " begins at element ",
                           shard.first_element));
    const uint64_t mask = mask_of(shard.contributors);
    e.masks.push_back(mask);
    e.ends.push_back(next);
    e.stand_ins.push_back(shard.stand_ins);
    const std::string what = concat(where, ", shard ", s, " of ", mask_text(mask),
                                    stand_ins_text(shard.stand_ins));
    const uint64_t own = check_stand_ins(what, op, shard);
    // An excluded member may have decided before it learned of its exclusion.
    // check_same() compares its result when it returns.
    for (int32_t r = 0; newest_.contains(rank) && r < script_.members; ++r)
      if ((own >> r & 1) != 0 && o.by_rank[static_cast<size_t>(r)].is_not_for)
        return broken(concat("S2: ", what, ", although rank ", r,
                             " came back while it was open"));
    const size_t begin = shard.first_element * element, end = next * element;
    check_shard(what, op, shard, output.data() + begin, begin, end);
  }
  if (next != o.call.count)
    return broken(concat("S2: ", where, " ends at element ", next));
  if (outcome.weight != std::ranges::min_element(outcome.shards, {}, kWeight)->weight)
    return broken(concat("S3: ", where, " names another weight than its shards"));
  check_same(op);
}

// Checks that `data` holds the result for the bytes from `begin` to `end` of the
// inputs.
void Checks::check_shard(const std::string& what, uint64_t op,
                         const collectives::ShardOutcome& shard, const uint8_t* data,
                         size_t begin, size_t end) {
  const Call& call = at(op).call;
  const uint64_t mask = mask_of(shard.contributors);
  if (call.policy.rebalance && mask != all_of(script_.members))
    return broken(concat("S5: ", what, " leaves out somebody that it must not"));
  const auto contributors = static_cast<int32_t>(shard.contributors.size());
  const double scale = scale_of(call, contributors);
  if (shard.scale != scale)
    return broken(
        concat("S3: ", what, " is scaled by ", shard.scale, ", not by ", scale));
  check_weight(what, op, mask, shard.weight);
  if (newest_.number == 1 &&
      contributors < straggler::fewest_of(call.policy, script_.members))
    return broken(concat("S5: ", what, " has no quorum"));
  const Bytes& expected = folded(op, begin, end, mask, scale, shard.stand_ins);
  if (end > begin && std::memcmp(data, expected.data(), end - begin) != 0)
    broken(concat("S2: ", what, " is not the fold of its inputs"));
}

// Checks that each data shard comes from a member that has called, and that each data
// shard from a backup has a named stand-in. Returns the mask of the other data shards.
uint64_t Checks::check_stand_ins(const std::string& what, uint64_t op,
                                 const collectives::ShardOutcome& shard) {
  const Op& o = at(op);
  const straggler::PolicyOptions& policy = o.call.policy;
  const uint64_t mask = mask_of(shard.contributors);
  uint64_t covered = 0, backups = 0;
  for (const auto& [data_shard, backup] : shard.stand_ins) {
    const Exposed& by = o.by_rank[static_cast<size_t>(backup.value)];
    const bool fits =
        by.data_shard == straggler::kAnyDataShard || by.data_shard == data_shard.value;
    if (!by.is_called || !fits ||
        !straggler::is_backup(policy, backup, script_.members))
      broken(concat("S2: ", what, ", which is not what rank ", backup.value,
                    " has computed"));
    if (newest_.contains(backup.value) && by.is_not_for)
      broken(concat("S2: ", what, ", although rank ", backup.value,
                    " came back while it was open"));
    covered |= uint64_t{1} << data_shard.value;
    backups |= uint64_t{1} << backup.value;
  }
  const auto num = static_cast<int>(shard.stand_ins.size());
  if (std::popcount(covered) != num || std::popcount(backups) != num ||
      (covered & ~mask) != 0)
    broken(concat("S2: ", what, " has a stand-in twice"));
  if ((mask & ~all_of(straggler::num_data_shards(policy, script_.members))) != 0)
    broken(concat("S2: ", what, " has backups in it"));
  const uint64_t own = mask & ~covered;
  for (int32_t r = 0; r < script_.members; ++r)
    if ((own >> r & 1) != 0 && !o.by_rank[static_cast<size_t>(r)].is_called)
      broken(concat("S2: ", what, ", and rank ", r, " has not called"));
  return own;
}

// In a reduce_scatter, each member has its own block, which contains its contribution.
// It is told only of other blocks that lack its contribution.
void Checks::check_scattered(int32_t rank, uint64_t op, const Outcome& outcome,
                             const Bytes& output) {
  Op& o = at(op);
  const std::string where = concat("operation ", op, " on rank ", rank);
  const size_t block = o.call.bytes() / static_cast<size_t>(script_.members);
  const uint64_t self = uint64_t{1} << rank;
  Exposed& e = o.by_rank[static_cast<size_t>(rank)];
  for (const auto& shard : outcome.shards) {
    const uint64_t mask = mask_of(shard.contributors);
    const std::string what =
        concat(where, ", block of ", shard.owner.value, " of ", mask_text(mask));
    const auto& theirs = o.by_rank[static_cast<size_t>(shard.owner.value)].masks;
    if (shard.owner == Rank(rank)) {
      e.masks = {mask};
      if ((mask & self) == 0) return broken(concat("S2: ", what, " is without itself"));
      const size_t begin = static_cast<size_t>(rank) * block;
      check_shard(what, op, shard, output.data(), begin, begin + block);
      if (outcome.weight != shard.weight)
        broken(concat("S3: ", where, " names another weight than its block"));
    } else if ((mask & self) != 0) {
      broken(concat("S2: ", what, " is told to one that is in it"));
    } else if (!theirs.empty() && theirs.front() != mask) {
      broken(concat("S1: ", what, ", of ", mask_text(theirs.front()), " there"));
    } else {
      check_weight(what, op, mask, shard.weight);
    }
  }
  if (e.masks.empty()) broken(concat("S2: ", where, " says nothing about its block"));
}

// Compares masks only. The bytes are the fold of the mask, so equal masks are equal
// results.
void Checks::check_same(uint64_t op) {
  const Op& o = at(op);
  if (!has_one_result(o.call)) return;
  const auto has_stayed = [&](const Exposed& e) {
    return (o.stayed >> e.giver & 1) != 0;
  };
  const Exposed* first = nullptr;
  size_t first_rank = 0;
  for (size_t r = 0; r < o.by_rank.size(); ++r) {
    const Exposed& e = o.by_rank[r];
    if (!e.is_ok || e.masks.empty() || !newest_.contains(static_cast<int32_t>(r)))
      continue;
    if (first == nullptr) {
      first = &e;
      first_rank = r;
      continue;
    }
    if (e.out != first->out)
      return broken(concat("S1: operation ", op, " has others out on rank ", first_rank,
                           " than on rank ", r));
    // A formerly excluded member may bring a result of an owner that was given up. The
    // next owner may have closed with the same mask for another reason. The same holds
    // for a member that continues from its state.
    const bool have_stayed = has_stayed(e) && has_stayed(*first);
    if (have_stayed && (e.reason != first->reason || e.deadline != first->deadline))
      return broken(concat("S1: operation ", op, " ended for '", first->reason,
                           "' after ", first->deadline.count(), " ns on rank ",
                           first_rank, " and for '", e.reason, "' after ",
                           e.deadline.count(), " ns on rank ", r));
    if (e.ends != first->ends)
      return broken(concat("S1: operation ", op, " has other shards on rank ",
                           first_rank, " than on rank ", r));
    for (size_t s = 0; s < e.masks.size(); ++s) {
      if (e.stand_ins != first->stand_ins)
        return broken(concat("S1: operation ", op, " has other stand-ins on rank ",
                             first_rank, " than on rank ", r));
      if (e.masks[s] != first->masks[s])
        return broken(concat("S1: operation ", op, ", shard ", s, " is of ",
                             mask_text(first->masks[s]), " on rank ", first_rank,
                             " and of ", mask_text(e.masks[s]), " on rank ", r));
    }
  }
}

void Checks::check_calm(uint64_t op) {
  const Op& o = at(op);
  const bool is_scattered = o.call.kind == CallKind::kReduceScatter;
  const auto others = static_cast<uint64_t>(script_.members - 1);
  const uint64_t owners =
      is_scattered ? others + 1 : static_cast<uint64_t>(o.plan.num_shards());
  const uint64_t num_contributions = owners * others;
  const uint64_t num_results = is_scattered ? 0 : num_contributions;
  if (o.last_end > o.last_called + *script_.calm)
    broken(concat("L1: operation ", op, " takes ", to_text(o.last_end - o.last_called),
                  " with nobody late, more than ", to_text(*script_.calm)));
  if (o.num_contributions != num_contributions || o.num_results != num_results ||
      o.num_others > 0)
    broken(concat("L1: operation ", op, " with nobody late takes ", o.num_contributions,
                  " contributions, ", o.num_results, " results and ", o.num_others,
                  " other messages; ", owners, " owners of ", others + 1,
                  " members need ", num_contributions, ", ", num_results,
                  " and no others"));
}

}  // namespace aikido::sim

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
//
// Skippable allreduce, the part of each member: it contributes, receives results and
// delivers them to its caller. See partial_owner.cpp for the part of an owner,
// partial_views.cpp for changes of the view, partial_suspicion.cpp for the watch on
// other owners, and partial_backup.cpp for backups.

#include "collectives/skippable/partial_allreduce.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/mutation.h"
#include "collectives/skippable/result_header.h"

namespace aikido::collectives {

using transport::FrameHeader;
using transport::FrameKind;

namespace {
// A member without shards waits for 1/kHesitationPart of the time between two
// operations.
constexpr int kHesitationPart = 32;
}  // namespace

PartialAllreduce::PartialAllreduce(ViewHost* host, Seq seq, Call call,
                                   Rank first_caller)
    : SkippableOperation(host, seq, std::move(call), first_caller),
      reduce_(kernels::find_reduce(call_.op, call_.dtype)),
      group_policy_(host->policy(call_.policy)),
      num_data_shards_(straggler::num_data_shards(call_.policy, host->size())),
      said_(static_cast<size_t>(host->size() - num_data_shards_)),
      computed_(host->size()),
      moved_(host->size()),
      receiving_(static_cast<size_t>(host->size()), kNothing) {
  cut();
}

std::byte* PartialAllreduce::result() {
  if (!result_) result_ = host_->pool().take(std::max<size_t>(1, call_.bytes()));
  return result_.data();
}

Status PartialAllreduce::on_start() {
  // For the outcome: the results were decided before this member called.
  was_committed_ = is_committed();
  if (is_backup(host_->self())) said(host_->self()) = local_.data_shard;
  note_progress();
  if (const Duration hesitation = hesitation_here(); hesitation > Duration::zero())
    contribute_at_ = ready_at_ + hesitation;
  // Results that arrived before the call are delivered now.
  for (const int32_t s : live_)
    if (shard(s).is_received) copy_to_caller(s);
  contribute_all();
  on_called(host_->self());
  expose_if_done();
  return Status::ok();
}

void PartialAllreduce::contribute_all() {
  for (size_t i = 0; i < live_.size(); ++i) {
    const int32_t s = in_turn(i);
    // If the mask is known already, it does not contain this member.
    if (!shard(s).is_received && shard(s).mask.count() == 0 && !has_failed())
      contribute(s);
  }
}

// Note [hesitation of a member without shards]
// A member that owns nothing was late again and again, and its results leave last. If
// operations follow each other without a pause, it calls just when the others close
// without it. Bytes that it gives to a socket before it learns of the close then use
// the downlinks on which the others send each other results. Rule: it waits a moment
// before it contributes to a large operation, a small part of the time of such
// operations, and sends small frames.
//   If there are full sums only, such a member is the last, and each owner must send
// its bytes on to all others. So its contributions are paced to end together: a socket
// that is alone at the end would bring more bytes than its owner can send on.
Duration PartialAllreduce::hesitation_here() const {
  if (call_.policy.rebalance || view_host_->view().is_owner(host_->self()) ||
      plan_.num_bytes(0) <= kLatePiece)
    return {};
  return group_policy_.history().median_period(call_.bytes()) / kHesitationPart;
}

bool PartialAllreduce::may_contribute() const {
  return is_started() && !has_failed() && !is_input_gone_ &&
         !view_host_->is_promised() && participants_.contains(host_->self());
}

void PartialAllreduce::contribute(int32_t s) {
  if (!may_contribute()) return;
  Shard& mine = shard(s);
  if (mine.owner == host_->self()) {
    if (!mine.own) return;
    have_own_input(s);
    fold_ahead(s);
    return close_if_due(s);
  }
  // The shard's result comes from its holder, without any contribution.
  if (view_host_->view().held_at(seq_, plan_.number(s)) != nullptr) return;
  if (is_backup(host_->self())) return offer(s);
  if (!mine.contribution.empty() || contribute_at_) return;
  mine.contributed_in = view_host_->view().number;
  // See Note [hesitation of a member without shards].
  if (!call_.policy.rebalance || view_host_->view().is_owner(host_->self()))
    return post_contribution(s, 0, plan_.num_bytes(s), kContributionToken, {});
  if (!paced_sends_) paced_sends_.emplace(plan_.num_shards(), contribution_bytes());
  paced_sends_->begin(s, plan_.num_bytes(s));
  send_paced();
}

void PartialAllreduce::post_contribution(int32_t s, size_t begin, size_t end,
                                         uint32_t token,
                                         std::span<const std::byte> extra) {
  Shard& mine = shard(s);
  ++contributions_in_flight_;
  // Only the first piece carries the call.
  mine.contribution.push_back(post(
      mine.owner, FrameKind::kContrib, s, local_.input + plan_.first_byte(s) + begin,
      end - begin, begin, plan_.num_bytes(s), begin == 0, token, extra));
}

void PartialAllreduce::send_paced() {
  if (!paced_sends_ || !may_contribute() || is_over() || has_failed()) return;
  while (const auto piece = paced_sends_->next())
    post_contribution(piece->stream, piece->begin, piece->end,
                      kFirstPieceToken + static_cast<uint32_t>(piece->stream), {});
}

// This member's contribution to the shard is not needed any more.
void PartialAllreduce::withdraw(int32_t s) {
  if (paced_sends_) paced_sends_->end(s);
  for (const auto id : std::exchange(shard(s).contribution, {}))
    cancelled_bytes_ += host_->cancel(shard(s).owner, id);
}

// ---- frames ----

namespace {
// True for a question, and for a result header whose data comes later. Such a frame has
// no payload, and may arrive in the middle of another message of the same sender.
bool is_bare(const FrameHeader& header) {
  return header.kind == FrameKind::kReady ||
         (header.payload_bytes == 0 && header.total_bytes > 0);
}
}  // namespace

Result<std::byte*> PartialAllreduce::place(Rank from, const FrameHeader& header,
                                           std::span<const std::byte> rest) {
  std::byte* const nowhere = nullptr;
  if (header.kind == FrameKind::kReady) return nowhere;
  if (!is_bare(header)) receiving_[static_cast<size_t>(from.value)] = kNothing;
  const auto s = static_cast<int32_t>(header.shard);
  const bool is_now = header.view == view_host_->view().number;
  const bool is_known =
      header.kind == FrameKind::kContrib || header.kind == FrameKind::kResult;
  const size_t expected = is_live(header.shard) ? plan_.num_bytes(s) : 0;
  if (!is_known || !is_live(header.shard) || header.total_bytes != expected) {
    // A frame of another view, which divides the tensor differently.
    if (is_known && !is_now) return nowhere;
    return misfit(from, header.total_bytes, expected);
  }
  auto place = header.kind == FrameKind::kContrib
                   ? place_contribution(from, header, s, rest)
                   : place_result(from, header, s, rest);
  if (place && *place != nullptr && !is_bare(header))
    receiving_[static_cast<size_t>(from.value)] = code_of(header.kind, s);
  return place;
}

Result<std::byte*> PartialAllreduce::place_result(Rank from, const FrameHeader& header,
                                                  int32_t s,
                                                  std::span<const std::byte> rest) {
  std::byte* const nowhere = nullptr;
  Shard& mine = shard(s);
  const bool is_now = header.view == view_host_->view().number;
  if (!is_now && !mutated(Mutation::kAcceptOldView)) return nowhere;
  // A member that has promised a new view takes no more results of this view; see
  // view_change.h.
  if (view_host_->is_promised() && !mutated(Mutation::kAcceptAfterPromise))
    return nowhere;
  if (mine.is_received || is_skipped_) return nowhere;
  if (is_now && mine.owner != from)
    return misfit(from, header.total_bytes, plan_.num_bytes(s));
  if (header.offset == 0) {
    // A header without data changes nothing if data of a partial result has begun.
    if (is_bare(header) && mine.bytes > 0 && !is_full(mine)) return nowhere;
    mine.bytes = 0;
    AIKIDO_TRY(read_mask(mine, rest));
    // A skipped contribution is useless, so its rest is not sent.
    if (is_backup(host_->self()) || !is_in_time(mine, host_->self())) withdraw(s);
    note_mask(s);
  } else if (header.offset != mine.bytes) {
    if (!is_now) return nowhere;
    return misfit(from, header.total_bytes, plan_.num_bytes(s));
  }
  return result() + plan_.first_byte(s) + header.offset;
}

void PartialAllreduce::Shard::take(ResultHeader header) {
  mask = std::move(header.mask);
  stand_ins = std::move(header.stand_ins);
  out = std::move(header.out);
  reason = header.reason;
  deadline = header.deadline;
}

Status PartialAllreduce::read_mask(Shard& mine,
                                   std::span<const std::byte> bytes) const {
  auto header = decode_result_header(bytes, host_->size(), num_data_shards_);
  if (!header) return header.status();
  mine.take(*std::move(header));
  // Only for the mutation tests of the simulator.
  if (mutated(Mutation::kMaskFromReceiver)) {
    mine.mask = RankSet(host_->size());
    participants_.for_each([&](Rank r) {
      if (r == host_->self() ? is_started() : host_->called_by(r) >= seq_.value)
        mine.mask.insert(r);
    });
  }
  return Status::ok();
}

void PartialAllreduce::arrived(Rank from, const FrameHeader& header) {
  if (is_backup(from)) note_offer(from, header);
  if (is_bare(header)) return;
  const auto s = static_cast<int32_t>(header.shard);
  auto& receiving = receiving_[static_cast<size_t>(from.value)];
  // The bytes were discarded if the shard was dropped while they arrived.
  if (std::exchange(receiving, kNothing) != code_of(header.kind, s)) return;
  Shard& mine = shard(s);
  if (header.kind == FrameKind::kContrib) {
    if (!mine.own) return;
    if (mine.own->arrived(from, header.payload_bytes) && !mine.own->is_closed)
      note_whole(s, from);
    fold_ahead(s);
    close_if_due(s);
  } else {
    mine.bytes += header.payload_bytes;
    if (mutated(Mutation::kOverwriteInputEarly) && is_started())
      std::memcpy(local_.output + plan_.first_byte(s), result() + plan_.first_byte(s),
                  mine.bytes);
    if (mine.bytes == header.total_bytes) {
      note_lag();
      on_received(s);
      have_own();
    }
  }
  expose_if_done();
}

void PartialAllreduce::on_notice(Rank from, const FrameHeader& header) {
  const auto s = static_cast<int32_t>(header.shard);
  const bool is_now =
      header.view == view_host_->view().number && !view_host_->is_promised();
  if (!is_live(header.shard) || !view_host_->view().has(from)) return;
  if (!is_now && !mutated(Mutation::kAcceptOldView)) return;
  // The owner asks for the bytes that this backup has offered.
  if (header.kind == FrameKind::kNeed && from == shard(s).owner) give(s);
  OwnedShard* own = shard(s).own.get();
  if (own == nullptr) return;
  if (header.kind == FrameKind::kAck) {
    own->is_acknowledged = own->is_closed;
    have_own();
  } else if (header.kind == FrameKind::kPresent) {
    own->present.insert(from);
    close_if_due(s);
  }
  expose_if_done();
}

// ---- results ----

// Called when the mask of a shard is known.
void PartialAllreduce::note_mask(int32_t s) {
  if (is_full(shard(s))) return;
  pass_by_missing(shard(s).mask);
  // From the first partial shard on, owners need acknowledgements.
  if (std::exchange(is_partial_, true)) return;
  for (const int32_t other : live_)
    if (shard(other).is_received) acknowledge(other);
}

void PartialAllreduce::acknowledge(int32_t s) {
  Shard& mine = shard(s);
  if (mine.owner == host_->self() || view_host_->is_promised()) return;
  if (std::exchange(mine.is_acknowledged, true)) return;
  post(mine.owner, FrameKind::kAck, s, nullptr, 0, 0, 0, false);
}

void PartialAllreduce::on_received(int32_t s) {
  Shard& mine = shard(s);
  mine.is_received = true;
  // The contributions are folded, so their memory is released.
  let_go(s);
  --shards_left_;
  note_progress();
  commit(mine, charge(s));
  copy_to_caller(s);
  if (is_partial_) acknowledge(s);
}

bool PartialAllreduce::is_decided() const {
  if (is_skipped_) return true;
  for (const int32_t s : live_)
    if (!shard(s).is_received &&
        view_host_->view().held_at(seq_, plan_.number(s)) == nullptr)
      return false;
  return true;
}

// See Note [closed vs. received].
bool PartialAllreduce::is_withheld() const {
  const size_t num_owners = view_host_->view().cut_of(seq_).owners.size();
  const bool all_own = static_cast<size_t>(plan_.num_shards()) == num_owners;
  return std::any_of(shards_.begin(), shards_.end(), [&](const Shard& mine) {
    if (mine.own && !mine.own->is_closed) return true;
    return all_own && mine.mask.count() > 0 && !is_full(mine);
  });
}

bool PartialAllreduce::is_closed() const {
  return std::none_of(shards_.begin(), shards_.end(),
                      [](const Shard& shard) { return shard.own != nullptr; });
}

bool PartialAllreduce::was_skipped() const {
  return std::any_of(shards_.begin(), shards_.end(), [&](const Shard& shard) {
    return shard.mask.world_size() > 0 && !is_backup(host_->self()) &&
           !shard.mask.contains(host_->self());
  });
}

// Hash of the mask and stand-ins of a shard, and of the number of shards. Equal masks
// of different cuts are different results.
uint64_t PartialAllreduce::fingerprint(int32_t s) const {
  uint64_t hash = 0xcbf29ce484222325 ^ static_cast<uint64_t>(plan_.num_shards());
  for (const uint64_t word : shard(s).mask.words())
    hash = (hash ^ word) * 0x100000001b3;
  for (const auto& [data_shard, backup] : shard(s).stand_ins) {
    const int32_t pair = (data_shard.value + 1) * host_->size() + backup.value;
    hash = (hash ^ static_cast<uint64_t>(pair)) * 0x100000001b3;
  }
  return hash;
}

void PartialAllreduce::report(std::vector<membership::ReceivedShard>& received) const {
  for (const int32_t s : live_) {
    if (!shard(s).is_received) continue;
    if (mutated(Mutation::kReportExposedOnly) && !is_over()) continue;
    received.push_back({seq_, plan_.number(s), fingerprint(s)});
  }
}

void PartialAllreduce::report_closed(
    std::vector<membership::ReceivedShard>& closed) const {
  for (const int32_t s : live_) {
    const Shard& mine = shard(s);
    if (!mine.is_received && mine.own && mine.own->is_closed)
      closed.push_back({seq_, plan_.number(s), fingerprint(s)});
  }
}

std::vector<int32_t> PartialAllreduce::divided() const {
  std::vector<int32_t> divided;
  for (const auto& parts : plan_.divided())
    if (!shard(parts.shard).is_live) divided.push_back(plan_.number(parts.shard));
  std::sort(divided.begin(), divided.end());
  return divided;
}

void PartialAllreduce::copy_to_caller(int32_t s) {
  if (!is_started() || plan_.num_bytes(s) == 0) return;
  std::memcpy(local_.output + plan_.first_byte(s), result_.data() + plan_.first_byte(s),
              plan_.num_bytes(s));
}

void PartialAllreduce::expose_if_done() {
  if (is_skipped_ && !is_over() && (is_closed() || !is_needed())) {
    for (const int32_t s : live_) let_go(s);
    set_over();
    for (const int32_t s : live_) send_to_late(s);
  }
  if (!is_started() || is_over() || has_failed() || shards_left_ > 0) return;
  // An excluded member may hold a result that the others do not have, so it must rejoin
  // first.
  if (!view_host_->view().has(host_->self())) return;
  set_over();
  for (const int32_t s : live_) send_to_late(s);
  succeed(make_outcome());
  if (contributions_in_flight_ == 0) release_caller();
}

Outcome PartialAllreduce::make_outcome() const {
  std::vector<OwnedResultHeader> known;
  for (const int32_t s : live_) {
    const Shard& mine = shard(s);
    known.push_back(
        {mine.owner, mine.header(), plan_.first_element(s), plan_.num_elements(s)});
  }
  // Parts follow the shards in the table, but callers expect them by position. An empty
  // shard comes before the shard that begins at the same element.
  std::stable_sort(known.begin(), known.end(), [](const auto& a, const auto& b) {
    return std::pair(a.first_element, a.num_elements) <
           std::pair(b.first_element, b.num_elements);
  });
  Outcome outcome = outcome_of(call_, host_->self(), host_->size(), known);
  outcome.cancelled_bytes = cancelled_bytes_;
  outcome.was_committed = was_committed_;
  return outcome;
}

void PartialAllreduce::on_message_sent(uint32_t token) {
  // Tokens are grouped: contributions, pieces of results, pieces of paced
  // contributions.
  if (token >= kFirstResultToken && token < kFirstPieceToken) {
    const auto number = static_cast<int32_t>(token - kFirstResultToken);
    const int32_t s = number / host_->size();
    if (s < plan_.size()) on_piece_sent(s, Rank(number % host_->size()));
    return;
  }
  if (token >= kFirstPieceToken) {
    const auto s = static_cast<int32_t>(token - kFirstPieceToken);
    if (paced_sends_ && s < plan_.size()) paced_sends_->on_left(s);
    send_paced();
  } else if (token != kContributionToken) {
    return;
  }
  // The caller's memory is free once all contributions have left. Slow receivers of
  // results do not matter, because results have memory of their own.
  if (--contributions_in_flight_ == 0 && is_over()) release_caller();
}

std::vector<Rank> PartialAllreduce::missing() const {
  std::vector<Rank> ranks;
  RankSet named(host_->size());
  named.insert(host_->self());
  const auto name = [&](Rank r) {
    if (named.insert(r)) ranks.push_back(r);
  };
  for (const Shard& mine : shards_) {
    if (mine.is_received) continue;
    if (mine.own)
      mine.own->policy->arrived().for_each_missing([&](Rank r) {
        if (!is_backup(r)) name(r);
      });
    // A closed shard of this member only lacks an acknowledgement.
    if (mine.own && mine.own->is_closed) continue;
    name(mine.owner);
  }
  return ranks;
}

// An owner that has called waits for the members that its policy includes.
std::vector<Rank> PartialAllreduce::awaited() const {
  std::vector<Rank> ranks = missing();
  if (ranks.empty()) return ranks;
  ranks.clear();
  view_host_->view().participants(seq_).for_each([&](Rank rank) {
    if (rank != host_->self()) ranks.push_back(rank);
  });
  return ranks;
}

// ---- skipped through ----

// Note [skipped through]
// A member that has copied the state of another member needs no results of the
// operations before that state, and never calls them. So it discards all further data
// for them, and the senders stop. It still closes the shards that it owns, without its
// own contribution. Nobody waits for its contribution.
void PartialAllreduce::skip_through() {
  is_skipped_ = true;
  for (const int32_t s : live_) {
    Shard& mine = shard(s);
    if (mine.own && !mine.own->is_closed) {
      mine.own->policy->expect(expected());
      close_if_due(s);
    } else if (!mine.is_received && !mine.own) {
      drop(mine.owner, FrameKind::kResult, s);
      mine.bytes = 0;
    }
  }
  expose_if_done();
}

void PartialAllreduce::start_over() {
  for (int32_t r = 0; r < host_->size(); ++r)
    for (const int32_t s : live_) {
      drop(Rank(r), FrameKind::kContrib, s);
      drop(Rank(r), FrameKind::kResult, s);
    }
  cut();
}

void PartialAllreduce::on_acked(Rank rank) {
  if (has_failed()) return;
  // The member needs no result any more, so queued pieces for it are cancelled.
  if (pending_sends_ > 0) {
    std::erase_if(sending_, [&](const Sending& piece) {
      if (piece.to == rank) host_->cancel(rank, piece.id);
      return piece.to == rank;
    });
  }
  for (const int32_t s : live_) {
    if (shard(s).late.count() > 0) shard(s).late.erase(rank);
    OwnedShard* own = shard(s).own.get();
    if (own == nullptr || own->is_closed) continue;
    own->policy->expect(expected());
    close_if_due(s);
  }
  if (!view_host_->is_promised()) have_own();
  expose_if_done();
}

}  // namespace aikido::collectives

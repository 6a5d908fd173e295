// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "collectives/skippable/received_results.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/mutation.h"

namespace aikido::collectives {

using transport::FrameHeader;
using transport::FrameKind;

namespace {
// Note [a full result and unread messages]
// An owner may take a full result as received before another member has acknowledged
// it: the other members wait at least 100 ms for the answer of a missing owner
// (kAnswerFloor in membership/view_change.cpp) before they make a view without it. But
// a process that is stopped, or gets no processor, may find out later that there is
// such a view, with another result: the message about that view may be unread on one
// link while the last contribution is read from another. So an owner first reads all
// its links, if it has not done so for this long.
constexpr Duration kUnread = std::chrono::milliseconds(20);

bool may_lack_messages(const Clock& clock) {
  return clock.latest() - clock.read_before() >= kUnread;
}
}  // namespace

Result<std::byte*> ReceivedResults::place(Rank from, const FrameHeader& header,
                                          int32_t s, std::span<const std::byte> rest) {
  std::byte* const nowhere = nullptr;
  PartialShard& mine = shards_.at(s);
  const bool is_now = header.view == view_host_->view().number;
  if (!is_now && !mutated(Mutation::kAcceptOldView)) return nowhere;
  // A member that has promised a new view takes no more results of this view; see
  // view_change.h.
  if (view_host_->is_promised() && !mutated(Mutation::kAcceptAfterPromise))
    return nowhere;
  if (mine.is_received) return nowhere;
  if (is_now && mine.owner != from)
    return misfit(from, header.total_bytes, shards_.plan().num_bytes(s));
  if (header.offset == 0) {
    // A header without data changes nothing if data of a partial result has begun.
    if (is_bare(header) && mine.bytes > 0 && !shards_.is_full(mine)) return nowhere;
    mine.bytes = 0;
    AIKIDO_TRY(read_mask(mine, rest));
    // A skipped contribution is useless, so its rest is not sent.
    if (shards_.is_backup(host_->self()) || !shards_.is_in_time(mine, host_->self()))
      contributions_.withdraw(s);
    note_mask(s);
  } else if (header.offset != mine.bytes) {
    if (!is_now) return nowhere;
    return misfit(from, header.total_bytes, shards_.plan().num_bytes(s));
  }
  return sends_.memory() + shards_.plan().first_byte(s) + header.offset;
}

void ReceivedResults::arrived(int32_t s, const FrameHeader& header) {
  PartialShard& mine = shards_.at(s);
  mine.bytes += header.payload_bytes;
  if (mutated(Mutation::kOverwriteInputEarly) && local_.output != nullptr)
    std::memcpy(local_.output + shards_.plan().first_byte(s),
                sends_.memory() + shards_.plan().first_byte(s), mine.bytes);
  if (mine.bytes != header.total_bytes) return;
  suspicion_.note_lag();
  receive(s);
  receive_closed();
}

Status ReceivedResults::read_mask(PartialShard& mine,
                                  std::span<const std::byte> bytes) const {
  auto header = decode_result_header(bytes, host_->size(), shards_.num_data_shards(),
                                     call_.is_weighted);
  if (!header) return header.status();
  mine.take(*std::move(header));
  // Only for the mutation tests of the simulator.
  if (mutated(Mutation::kMaskFromReceiver)) {
    mine.mask = RankSet(host_->size());
    shards_.participants().for_each([&](Rank r) {
      if (r == host_->self() ? is_started() : host_->called_by(r) >= seq_.value)
        mine.mask.insert(r);
    });
  }
  return Status::ok();
}

void ReceivedResults::note_mask(int32_t s) {
  if (shards_.is_full(shards_.at(s))) return;
  // No shard of this member waits for members that another shard was closed without.
  RankSet missing = shards_.participants();
  shards_.at(s).mask.for_each([&](Rank r) { missing.erase(r); });
  for (const PartialShard& mine : shards_.all())
    if (mine.own && mine.own->policy) mine.own->policy->on_closed_without(missing);
  // From the first partial shard on, owners need acknowledgements.
  if (shards_.note_partial()) return;
  for (const int32_t other : shards_.live())
    if (shards_.at(other).is_received) acknowledge(other);
}

void ReceivedResults::acknowledge(int32_t s) {
  PartialShard& mine = shards_.at(s);
  if (mine.owner == host_->self() || view_host_->is_promised()) return;
  if (std::exchange(mine.is_acknowledged, true)) return;
  post(mine.owner, FrameKind::kAck, s, nullptr, 0, 0, 0, false);
}

void ReceivedResults::let_go(int32_t s) {
  if (!shards_.at(s).own) return;
  incoming_.drop_all(FrameKind::kContrib, s);
  shards_.at(s).own.reset();
}

void ReceivedResults::commit(const PartialShard& mine, uint64_t charge) {
  straggler::History& history = group_policy_.history();
  if (!call_.policy.has_stand_ins())
    // A primary with a stand-in counts as late, although its data shard is in the
    // result.
    return history.on_committed(seq_, mine.mask, charge);
  RankSet in_time = mine.mask;
  RankSet covered(host_->size());
  for (const straggler::StandIn& stand_in : mine.stand_ins) {
    in_time.erase(stand_in.data_shard);
    covered.insert(stand_in.data_shard);
    view_host_->note_stand_in(stand_in);
  }
  history.on_committed(seq_, in_time, covered, Rank(shards_.num_data_shards()), charge);
}

uint64_t ReceivedResults::charge(int32_t s) {
  if (std::exchange(shards_.at(s).is_charged, true)) return 0;
  const bool is_first = !std::exchange(is_charged_, true);
  return shards_.plan().num_bytes(s) +
         (is_first ? straggler::ResultLog::kOperationCharge : 0);
}

void ReceivedResults::receive(int32_t s) {
  shards_.note_received(s);
  // The contributions are folded, so their memory is released.
  let_go(s);
  suspicion_.on_progress();
  commit(shards_.at(s), charge(s));
  copy_to_caller(s);
  if (shards_.is_partial()) acknowledge(s);
}

void ReceivedResults::copy_to_caller(int32_t s) {
  // Null before the call, and for a caller that takes the memory of the result.
  if (local_.output == nullptr || shards_.plan().num_bytes(s) == 0) return;
  std::memcpy(local_.output + shards_.plan().first_byte(s),
              sends_.memory() + shards_.plan().first_byte(s),
              shards_.plan().num_bytes(s));
}

bool ReceivedResults::is_needed() const {
  bool is_needed = false;
  view_host_->view().members.for_each([&](Rank r) {
    if (r != host_->self() && view_host_->acked_by(r) < seq_.value) is_needed = true;
  });
  return is_needed;
}

// See Note [closed vs. received].
void ReceivedResults::receive_closed() {
  if (!view_host_->view().has(host_->self())) return;
  const bool is_alone = !is_needed();
  const bool is_all_full =
      std::all_of(shards_.live().begin(), shards_.live().end(), [&](int32_t s) {
        const PartialShard& mine = shards_.at(s);
        return mine.mask.count() > 0 && shards_.is_full(mine) &&
               (mine.is_received || (mine.own && mine.own->is_closed));
      });
  looks_again_ = false;
  for (const int32_t s : shards_.live()) {
    const OwnedShard* own = shards_.at(s).own.get();
    if (own == nullptr || !own->is_closed) continue;
    // With WaitAll(rebalance=True) the result is the same in all views, and most of it
    // leaves before the close.
    const bool is_final = own->is_acknowledged || is_alone ||
                          (is_all_full && call_.policy.rebalance) ||
                          mutated(Mutation::kNoAck);
    const bool is_safe = is_all_full && sends_.has_left(shards_.at(s));
    if (!is_final && !is_safe) continue;
    if (!is_final && may_lack_messages(host_->clock())) {
      looks_again_ = true;
    } else {
      receive(s);
    }
  }
}

}  // namespace aikido::collectives

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "collectives/skippable/contributions.h"

#include <algorithm>
#include <utility>

#include "collectives/skippable/message_tokens.h"
#include "collectives/weights.h"

namespace aikido::collectives {

using transport::FrameKind;

namespace {
// A member without shards waits for 1/kHesitationPart of the time between two
// operations.
constexpr int kHesitationPart = 32;
// Largest frame of its contributions, in bytes. It does not wait before operations with
// shards of this size or less.
constexpr size_t kLatePiece = 32 << 10;
}  // namespace

bool Contributions::may_contribute() const {
  return is_started() && !has_failed() && has_input_ && !view_host_->is_promised() &&
         shards_.participants().contains(host_->self());
}

void Contributions::hesitate() {
  if (call_.policy.rebalance || view_host_->view().is_owner(host_->self()) ||
      shards_.plan().num_bytes(0) <= kLatePiece)
    return;
  const Duration hesitation = history_.median_period(call_.bytes()) / kHesitationPart;
  if (hesitation > Duration::zero())
    hesitates_until_ = host_->clock().now() + hesitation;
}

bool Contributions::end_hesitation(TimePoint now) {
  if (!hesitates_until_ || *hesitates_until_ > now) return false;
  hesitates_until_.reset();
  return true;
}

size_t Contributions::frame_bytes() const {
  const membership::View& view = view_host_->view();
  const size_t piece = shards_.piece_bytes(view, host_->settings().chunk_bytes);
  return view.is_owner(host_->self()) ? piece : std::min(piece, kLatePiece);
}

void Contributions::give(int32_t s) {
  PartialShard& mine = shards_.at(s);
  if (!mine.contribution.empty() || hesitates_until_) return;
  const membership::View& view = view_host_->view();
  mine.contributed_in = view.number;
  const size_t bytes = shards_.plan().num_bytes(s);
  // See Note [hesitation of a member without shards].
  if (!call_.policy.rebalance || view.is_owner(host_->self()))
    return post_bytes(s, 0, bytes, kContributionToken, {});
  if (!paced_sends_) paced_sends_.emplace(shards_.plan().num_shards(), frame_bytes());
  paced_sends_->begin(s, bytes);
  send_paced();
}

void Contributions::post_bytes(int32_t s, size_t begin, size_t end, uint32_t token,
                               std::span<const std::byte> extra) {
  PartialShard& mine = shards_.at(s);
  ++in_flight_;
  const auto weight = encode_weight(local_.weight);
  if (call_.is_weighted) extra = weight;
  // Only the first piece carries the call.
  mine.contribution.push_back(post(mine.owner, FrameKind::kContrib, s,
                                   local_.input + shards_.plan().first_byte(s) + begin,
                                   end - begin, begin, shards_.plan().num_bytes(s),
                                   begin == 0, token, extra));
}

void Contributions::send_paced() {
  if (!paced_sends_ || !may_contribute() || is_over()) return;
  while (const auto piece = paced_sends_->next())
    post_bytes(piece->stream, piece->begin, piece->end,
               kFirstPieceToken + static_cast<uint32_t>(piece->stream), {});
}

void Contributions::withdraw(int32_t s) {
  if (paced_sends_) paced_sends_->end(s);
  for (const auto id : std::exchange(shards_.at(s).contribution, {}))
    cancelled_bytes_ += host_->cancel(shards_.at(s).owner, id);
}

bool Contributions::on_left(uint32_t token) {
  if (token >= kFirstPieceToken) {
    const auto s = static_cast<int32_t>(token - kFirstPieceToken);
    if (paced_sends_ && s < shards_.plan().size()) paced_sends_->on_left(s);
    send_paced();
  } else if (token != kContributionToken) {
    return false;
  }
  return --in_flight_ == 0;
}

}  // namespace aikido::collectives

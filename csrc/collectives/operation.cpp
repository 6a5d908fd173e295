// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "collectives/operation.h"

#include <algorithm>
#include <utility>

namespace aikido::collectives {

Status Operation::start(LocalCall local) {
  AIKIDO_CHECK(!started_, describe(call_), " number ", seq_.value, " started twice");
  started_ = true;
  local_ = std::move(local);
  // The operation failed before the call; the caller learns it now.
  if (failure_.has_failed()) {
    const Status why = failure_;
    fail(why);
    return Status::ok();
  }
  return on_start();
}

void Operation::fail(const Status& why) {
  if (over_) return;
  failure_ = why;
  if (!started_) return;  // kept for the caller, which has not called yet
  over_ = true;
  // After on_done the caller may write to its memory. So queued messages that read it
  // are cancelled first; otherwise a peer could get a mixture of old and new bytes.
  const auto borrowing = std::move(borrowing_);
  for (const auto& [to, id] : borrowing) host_->cancel(to, id);
  if (auto done = std::exchange(local_.on_done, nullptr)) {
    Outcome outcome;
    outcome.kind = OutcomeKind::kAborted;
    outcome.seq = seq_;
    outcome.reason = why.message();
    outcome.missing = missing();
    done(why, outcome);
  }
}

void Operation::succeed(Outcome outcome) {
  outcome.seq = seq_;
  outcome.duration = host_->clock().now() - local_.called_at;
  if (auto done = std::exchange(local_.on_done, nullptr)) done(Status::ok(), outcome);
}

void Operation::on_sent(uint32_t token) {
  --pending_sends_;
  if (over_) return on_message_sent(token);
  // on_message_sent() may end the operation, which then tells the host itself.
  on_message_sent(token);
  if (over_) host_->on_over(seq_);
}

transport::MessageId Operation::post(Rank to, transport::FrameKind kind, int32_t shard,
                                     const std::byte* data, size_t bytes, size_t offset,
                                     size_t total, bool with_call, uint32_t token,
                                     std::span<const std::byte> extra,
                                     bool leaves_last) {
  transport::OutMessage m;
  m.header.kind = kind;
  m.header.shard = static_cast<uint16_t>(shard);
  m.header.epoch = host_->epoch();
  m.header.view = host_->view_number();
  m.header.seq = seq_.value;
  m.header.offset = offset;
  m.header.total_bytes = total;
  if (with_call) {
    const auto encoded = encode(call_);
    AIKIDO_CHECK(encoded.size + extra.size() <= m.extension.size(), extra.size());
    auto end = std::copy_n(encoded.bytes.begin(), encoded.size, m.extension.begin());
    end = std::copy(extra.begin(), extra.end(), end);
    m.extension_bytes = static_cast<uint8_t>(end - m.extension.begin());
  }
  m.data = data;
  m.bytes = bytes;
  m.chunk_bytes = chunk_of(kind);
  m.priority = bytes == 0 ? transport::kControlPriority : local_.priority;
  m.leaves_last = leaves_last;
  // Calls that may skip keep the order of sending. With the order of their numbers, a
  // returning member could wait for a result forever (simulator script
  // results-to-one-are-slow).
  if (!call_.is_partial()) m.turn = seq_.value;
  // A member serves a skippable call even if it has not called it, so its owner must
  // read it.
  m.urgency =
      call_.is_partial() ? transport::Urgency::kServed : transport::Urgency::kNone;
  m.num_receivers = num_receivers(kind);
  m.edition = edition();
  m.owner = shared_from_this();
  m.token = token;
  ++pending_sends_;
  const transport::MessageId id = host_->send(to, std::move(m));
  // Messages that read the caller's memory are remembered until the call ends.
  if (bytes > 0 && is_callers(kind)) borrowing_.emplace_back(to, id);
  return id;
}

void Operation::probe() {
  for (const Rank rank : missing())
    post(rank, transport::FrameKind::kReady, kAnySize, nullptr, 0, 0, 0, true);
}

Status Operation::misfit(Rank from, uint64_t bytes, size_t expected) const {
  return {
      Code::kInvalidArgument,
      concat(describe(call_), ", collective ", seq_.value, " of its group: rank ",
             from.value, " sends ", bytes, " bytes where rank ", host_->self().value,
             " expects ", expected, "; use the same shape and dtype on every rank"),
      from};
}

size_t Operation::whole_elements() const {
  const size_t element = size_of(call_.dtype);
  return host_->settings().chunk_bytes / element * element;
}

std::vector<Rank> Operation::others() const {
  std::vector<Rank> ranks;
  for (int32_t r = 0; r < host_->size(); ++r)
    if (Rank(r) != host_->self()) ranks.emplace_back(r);
  return ranks;
}

}  // namespace aikido::collectives

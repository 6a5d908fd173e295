// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "engine/peer.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <type_traits>
#include <utility>

#include "base/text.h"

namespace aikido::engine {

using transport::FrameHeader;
using transport::FrameKind;
using transport::OutMessage;

namespace {

// Kinds of messages that wait at a receiver which has not called. Results wait too, but
// the log limits them (straggler/result_log.h).
bool waits_for_call(FrameKind kind) {
  return kind == FrameKind::kContrib || kind == FrameKind::kReady ||
         kind == FrameKind::kData;
}

// Memory of a text until it is sent.
class Text final : public transport::SendOwner {
 public:
  explicit Text(std::string text) : text_(std::move(text)) {}
  const std::string& text() const { return text_; }
  void on_sent(uint32_t) override {}

 private:
  std::string text_;
};

// Memory of bytes until they are sent.
class Bytes final : public transport::SendOwner {
 public:
  explicit Bytes(std::vector<std::byte> bytes) : bytes_(std::move(bytes)) {}
  const std::vector<std::byte>& bytes() const { return bytes_; }
  void on_sent(uint32_t) override {}

 private:
  std::vector<std::byte> bytes_;
};

// Bytes that a message counts at its receiver; see admit(). The first message of a
// contribution counts for all of it.
uint64_t charge_of(const OutMessage& m) {
  if (m.header.kind != FrameKind::kContrib || m.bytes == 0) return m.bytes;
  if (m.header.offset == 0) return m.header.total_bytes;
  return m.extension_bytes > 0 ? m.bytes : 0;
}

}  // namespace

// Frame with a header only. While one waits, a second is not needed, because the header
// is filled in when the frame is sent.
class Peer::Notice final : public transport::SendOwner {
 public:
  explicit Notice(Peer* peer) : peer_(peer) {}
  void on_sent(uint32_t) override {
    is_out = false;
    // The numbers may have grown since.
    peer_->answer();
    peer_->tell_called();
  }
  bool is_out = false;

 private:
  Peer* peer_;
};

static_assert(!std::is_move_constructible_v<Peer>);

Peer::Peer(const Clock* clock, const uint32_t* epoch, const uint64_t* called,
           const uint64_t* acked, uint64_t window_bytes, uint64_t log_bytes)
    : early(window_bytes, log_bytes, called),
      clock_(clock),
      epoch_(epoch),
      own_called_(called),
      report_(called),
      asked_{{{called}, {acked}}},
      window_(window_bytes),
      notice_(std::make_shared<Notice>(this)) {}

transport::MessageId Peer::send(OutMessage&& message) {
  if (!link_) {
    // Never connected. The call fails by itself or at its deadline.
    if (message.owner) message.owner->on_sent(message.token);
    return 0;
  }
  const uint64_t seq = message.header.seq, charge = charge_of(message);
  const bool is_up = !is_lost() && !end.given_up;
  const bool is_result = message.header.kind == FrameKind::kResult && charge > 0;
  message.is_held = is_up && (is_result ? is_held_result(seq)
                                        : waits_for_call(message.header.kind) &&
                                              !window_.admit(seq, charge));
  // A member that has called this collective and ended it must hear of a call that does
  // not match.
  if (waits_for_call(message.header.kind) && seq <= called_)
    message.urgency = std::max(message.urgency, transport::Urgency::kAwaited);
  const bool is_held = message.is_held;
  if (!is_held) report_.on_told();
  const auto id = link_->send(std::move(message));
  if (is_held && is_result) {
    results_.hold(seq, id);
  } else if (is_held) {
    window_.hold(seq, charge, id);
  }
  ask_if_due();
  return id;
}

bool Peer::send_at_once(const OutMessage& message) {
  if (!link_ || !link_->send_at_once(message)) return false;
  report_.on_told();
  return true;
}

// Checks the link only for collectives that the peer has not called.
bool Peer::is_held_result(uint64_t seq) {
  return !results_.goes_unasked(seq) &&
         !results_.admit(seq, link_->is_drained(), clock_->now());
}

size_t Peer::cancel(transport::MessageId id) {
  if (!link_) return 0;
  if (window_.is_holding()) window_.forget(id);
  if (results_.is_holding()) results_.forget(id);
  return link_->cancel(id);
}

bool Peer::is_drained() const {
  return !link_ ||
         (!window_.is_holding() && !results_.is_holding() && link_->is_drained());
}

void Peer::finish() {
  if (!link_) return;
  for (const auto id : window_.clear()) link_->cancel(id);
  for (const auto id : results_.clear()) link_->let_go(id);
  link_->finish();
}

void Peer::give_up(const Status& why) {
  if (!link_ || is_lost() || end.given_up) return;
  end.given_up = why;
  link_->hang_up();
}

void Peer::set_lost(const Status& why) {
  end.loss = why;
  window_.clear();
  results_.clear();
}

void Peer::close() {
  if (link_) link_->close();
}

bool Peer::is_receiving(FrameKind kind, uint64_t number) const {
  const FrameHeader* incoming = link_ ? link_->incoming() : nullptr;
  return incoming != nullptr && incoming->seq == number && incoming->kind == kind;
}

std::optional<size_t> Peer::num_received(FrameKind kind, uint64_t number) const {
  if (!link_ || link_->incoming() == nullptr) return 0;
  if (!is_receiving(kind, number)) return std::nullopt;
  return link_->num_received();
}

void Peer::drop_incoming(FrameKind kind, uint64_t number) {
  if (is_receiving(kind, number)) link_->drop_incoming();
}

bool Peer::note_called(uint64_t called) {
  if (called <= called_) return false;
  called_ = called;
  // Messages that leave last hurry when the member calls again.
  if (link_) link_->hurry();
  failed_.erase(failed_.begin(), failed_.upper_bound(called));
  let_go(window_.on_called(called));
  let_go(results_.on_called(called));
  return true;
}

void Peer::note_over(uint64_t seq, bool is_known) {
  if (!is_known && seq > acked_ && seq > called_) {
    failed_.insert(seq);
  } else {
    let_go(window_.on_over(seq));
  }
}

void Peer::let_go(const std::vector<transport::MessageId>& ids) {
  for (const auto id : ids) link_->let_go(id);
  ask_if_due();
}

void Peer::ask_if_due() {
  if (const auto seq = window_.ask()) ask_called(*seq);
  if (const auto seq = results_.ask()) ask_called(*seq);
}

void Peer::ask_called(uint64_t seq) {
  ask(FrameKind::kAskCalled, seq);
}

void Peer::ask(FrameKind kind, uint64_t seq) {
  if (!link_ || is_lost()) return;
  OutMessage m;
  m.header.kind = kind;
  m.header.epoch = *epoch_;
  m.header.seq = seq;
  m.priority = transport::kControlPriority;
  link_->send(std::move(m));
}

void Peer::note_asked(Asked& asked, uint64_t seq) {
  asked.from = asked.from == 0 ? seq : std::min(asked.from, seq);
  asked.up_to = std::max(asked.up_to, seq);
  answer();
}

// One frame carries all numbers.
void Peer::answer() {
  const bool is_due = std::any_of(asked_.begin(), asked_.end(),
                                  [](const Asked& asked) { return asked.is_due(); });
  if (!is_due || !notify(FrameKind::kCalled, transport::Urgency::kServed)) return;
  for (Asked& asked : asked_) {
    if (!asked.is_due()) continue;
    const bool is_more = *asked.own < asked.up_to;
    asked.from = is_more ? *asked.own + 1 : 0;
    if (!is_more) asked.up_to = 0;
  }
}

void Peer::tell_called(Duration wait) {
  if (lacks_report() && report_.is_due(clock_->now(), wait))
    notify(FrameKind::kCalled, transport::Urgency::kNone);
}

// A notice that is on its way looks again when it has left.
std::optional<TimePoint> Peer::report_due() const {
  if (!lacks_report() || notice_->is_out) return std::nullopt;
  return report_.next_look();
}

// Returns true if the peer will see the present numbers.
bool Peer::notify(FrameKind kind, transport::Urgency urgency) {
  if (!link_ || is_lost() || std::exchange(notice_->is_out, true)) return false;
  OutMessage m;
  m.header.kind = kind;
  m.header.epoch = *epoch_;
  if (kind == FrameKind::kCalled)
    m.header.total_bytes = static_cast<uint64_t>(report_.age(clock_->now()).count());
  m.priority = transport::kControlPriority;
  m.urgency = urgency;
  m.owner = notice_;
  send(std::move(m));
  return true;
}

void Peer::send_abort(Seq seq, const Status& why, uint64_t spared) {
  const auto text =
      std::make_shared<Text>(why.message().substr(0, IncomingTexts::kMaxAbort));
  OutMessage m;
  m.header.kind = FrameKind::kAbort;
  m.header.epoch = *epoch_;
  m.header.seq = seq.value;
  m.header.shard = static_cast<uint16_t>(why.code());
  m.header.tag = why.culprit().value;
  m.header.total_bytes = text->text().size();
  if (spared > 0) {
    m.extension_bytes = sizeof spared;
    std::memcpy(m.extension.data(), &spared, sizeof spared);
  }
  m.data = reinterpret_cast<const std::byte*>(text->text().data());
  m.bytes = text->text().size();
  m.priority = transport::kControlPriority;
  m.owner = text;
  // See Note [difference found late] in group_ends.cpp.
  if (seq.value > 0 && why.code() == Code::kInvalidArgument) {
    m.header.kind = FrameKind::kAbortFirst;
    send(OutMessage(m));
    m.header.kind = FrameKind::kAbort;
  }
  send(std::move(m));
}

bool Peer::note_acked(uint64_t acked) {
  if (acked <= acked_) return false;
  acked_ = acked;
  while (!failed_.empty() && *failed_.begin() <= acked)
    let_go(window_.on_over(failed_.extract(failed_.begin()).value()));
  return true;
}

void Peer::send_view(membership::ViewStep step, std::vector<std::byte> message) {
  const auto bytes = std::make_shared<Bytes>(std::move(message));
  OutMessage m;
  m.header.epoch = *epoch_;
  m.header.total_bytes = bytes->bytes().size();
  m.data = bytes->bytes().data();
  m.bytes = bytes->bytes().size();
  m.priority = transport::kControlPriority;
  m.owner = bytes;
  m.header.shard = static_cast<uint16_t>(step);
  if (step == membership::ViewStep::kView) {
    m.header.kind = FrameKind::kViewFirst;
    send(OutMessage(m));
  }
  m.header.kind = FrameKind::kView;
  send(std::move(m));
}

void Peer::send_notice(FrameKind kind, uint64_t seq, uint16_t shard, uint32_t view) {
  OutMessage m;
  m.header.kind = kind;
  m.header.epoch = *epoch_;
  m.header.seq = seq;
  m.header.shard = shard;
  m.header.view = view;
  m.priority = transport::kControlPriority;
  send(std::move(m));
}

}  // namespace aikido::engine

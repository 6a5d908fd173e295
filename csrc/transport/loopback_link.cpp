// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "transport/loopback_link.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "base/check.h"
#include "transport/laned_link.h"

namespace aikido::transport {

// One lane.
class LoopbackLink final : public Link {
 public:
  using Path = LoopbackNetwork::Path;
  using Frame = LoopbackNetwork::Frame;

  LoopbackLink(LoopbackNetwork* network, Rank self, Rank peer, Lane lane,
               LinkHandler* handler)
      : network_(network),
        self_(self),
        peer_(peer),
        handler_(handler),
        out_(network->path(self, peer, lane)),
        in_(network->path(peer, self, lane)),
        scheduler_(network->chunk_bytes_) {}
  ~LoopbackLink() override {
    close();
    std::erase(network_->links_, this);
  }

  Rank self() const { return self_; }
  Rank peer() const { return peer_; }

  MessageId send(OutMessage message) override;
  void let_go(MessageId id) override;
  size_t cancel(MessageId id) override;
  const FrameHeader* incoming() const override {
    return is_reading_ ? &header_ : nullptr;
  }
  void drop_incoming() override { place_ = nullptr; }
  void hang_up() override;
  bool is_drained() const override {
    if (is_lost_) return true;
    return messages_.empty() && out_.frames.empty();
  }
  void finish() override;
  void close() override;

  void cut() { was_cut_ = true; }
  // One look at everything. Returns whether something happened.
  bool step(TimePoint now);
  std::optional<TimePoint> next_event(TimePoint now) const;

 private:
  struct Queued {
    OutMessage message;
    bool is_through = false;  // nothing of it is left in the scheduler
  };
  struct UnderWay {
    MessageId message = 0;
    TimePoint leaves_at{};
  };

  bool send_step(TimePoint now);
  void begin_chunk(const Chunk& chunk, TimePoint now);
  void end_chunk();
  bool receive_step(TimePoint now);
  bool begin_frame(const Frame& frame);
  bool deliver_sent();
  void release(std::unordered_map<MessageId, Queued>::iterator it);
  void stop_sending(TimePoint now);
  void lose(const Status& why);

  LoopbackNetwork* network_;
  Rank self_;
  Rank peer_;
  LinkHandler* handler_;
  Path& out_;
  Path& in_;
  bool is_lost_ = false;
  bool was_cut_ = false;

  // Sending.
  Scheduler scheduler_;
  MessageId next_id_ = 1;
  std::unordered_map<MessageId, Queued> messages_;
  std::optional<UnderWay> under_way_;
  std::vector<std::pair<std::shared_ptr<SendOwner>, uint32_t>> sent_;
  bool can_send_ = true;
  bool finishing_ = false;

  // Receiving.
  bool is_reading_ = false;
  FrameHeader header_;
  std::byte* place_ = nullptr;
};

// ---- the link ----

MessageId LoopbackLink::send(OutMessage message) {
  const MessageId id = next_id_++;
  if (!can_send_) {
    if (message.owner) sent_.emplace_back(std::move(message.owner), message.token);
    return id;
  }
  if (!message.is_held) scheduler_.push(id, message.priority, message.bytes);
  messages_.emplace(id, Queued{std::move(message), false});
  return id;
}

void LoopbackLink::let_go(MessageId id) {
  const auto it = messages_.find(id);
  if (it == messages_.end()) return;
  OutMessage& m = it->second.message;
  if (std::exchange(m.is_held, false)) scheduler_.push(id, m.priority, m.bytes);
}

size_t LoopbackLink::cancel(MessageId id) {
  const auto it = messages_.find(id);
  if (it == messages_.end()) return 0;
  const OutMessage& m = it->second.message;
  const size_t dropped =
      m.is_held ? m.bytes : scheduler_.cancel(id, m.priority).value_or(0);
  it->second.is_through = true;
  if (!under_way_ || under_way_->message != id) release(it);
  return dropped;
}

void LoopbackLink::finish() {
  if (!can_send_ || finishing_) return;
  OutMessage goodbye;
  goodbye.header.kind = FrameKind::kGoodbye;
  goodbye.priority = std::numeric_limits<Priority>::min();
  send(std::move(goodbye));
  finishing_ = true;
}

void LoopbackLink::hang_up() {
  if (is_lost_) return;
  const TimePoint now = network_->clock_->now();
  stop_sending(now);
  std::erase_if(in_.frames, [&](const Frame& f) { return f.ends_at > now; });
  in_.closed_at = now;
  in_.is_deaf = true;
}

void LoopbackLink::close() {
  is_lost_ = true;
  stop_sending(network_->clock_->now());
  sent_.clear();
  in_.frames.clear();
  in_.is_deaf = true;
  is_reading_ = false;
}

bool LoopbackLink::step(TimePoint now) {
  bool did = false;
  if (was_cut_ && !is_lost_) {
    lose({Code::kPeerLost, concat("the connection to rank ", peer_.value, " broke"),
          peer_});
    did = true;
  }
  if (send_step(now)) did = true;
  if (receive_step(now)) did = true;
  if (deliver_sent()) did = true;
  return did;
}

std::optional<TimePoint> LoopbackLink::next_event(TimePoint now) const {
  std::optional<TimePoint> earliest;
  const auto consider = [&](TimePoint t) {
    if (!earliest || t < *earliest) earliest = t;
  };
  if (!sent_.empty() || (was_cut_ && !is_lost_)) consider(now);
  if (under_way_) {
    consider(under_way_->leaves_at);
  } else if (can_send_ && (finishing_ || !scheduler_.is_empty())) {
    consider(std::max(now, out_.stalled_until));
  }
  if (!is_lost_) {
    if (!in_.frames.empty()) {
      const Frame& next = in_.frames.front();
      consider(is_reading_ ? next.ends_at : next.begins_at);
    } else if (in_.closed_at) {
      consider(*in_.closed_at);
    }
  }
  return earliest;
}

// ---- sending ----

bool LoopbackLink::send_step(TimePoint now) {
  bool did = false;
  while (can_send_) {
    if (under_way_) {
      if (under_way_->leaves_at > now) break;
      end_chunk();
      did = true;
    }
    if (now < out_.stalled_until) break;
    const auto chunk = scheduler_.pop();
    if (!chunk) {
      if (finishing_) {
        stop_sending(now);
        did = true;
      }
      break;
    }
    begin_chunk(*chunk, now);
    did = true;
  }
  return did;
}

void LoopbackLink::begin_chunk(const Chunk& chunk, TimePoint now) {
  Queued& queued = messages_.at(chunk.message);
  queued.is_through = chunk.is_last;
  const OutMessage& m = queued.message;
  FrameHeader h = m.header;
  h.offset += chunk.offset;
  h.payload_bytes = static_cast<uint32_t>(chunk.bytes);
  h.extension_bytes = chunk.offset == 0 ? m.extension_bytes : uint8_t{0};
  h.called = handler_->called();
  Frame frame;
  frame.prefix.resize(kHeaderBytes + h.extension_bytes);
  encode(h, std::span<std::byte, kHeaderBytes>(frame.prefix.data(), kHeaderBytes));
  std::copy_n(m.extension.begin(), h.extension_bytes,
              frame.prefix.begin() + kHeaderBytes);
  if (chunk.bytes > 0) {
    const std::byte* begin = m.data + chunk.offset;
    frame.payload.assign(begin, begin + chunk.bytes);
  }
  Duration takes{};
  if (out_.bytes_per_second > 0) {
    const auto bytes = static_cast<double>(frame.prefix.size() + chunk.bytes);
    takes = from_ms(1000.0 * bytes / static_cast<double>(out_.bytes_per_second));
  }
  under_way_ = UnderWay{chunk.message, now + takes};
  if (out_.is_deaf) return;
  // A delay that was made shorter lets nobody overtake.
  const TimePoint before =
      out_.frames.empty() ? TimePoint{} : out_.frames.back().ends_at;
  frame.begins_at = std::max(before, now + out_.delay);
  frame.ends_at = std::max(before, now + takes + out_.delay);
  out_.frames.push_back(std::move(frame));
}

void LoopbackLink::end_chunk() {
  const auto it = messages_.find(under_way_->message);
  under_way_.reset();
  if (it->second.is_through) release(it);
}

void LoopbackLink::release(std::unordered_map<MessageId, Queued>::iterator it) {
  OutMessage& m = it->second.message;
  if (m.owner) sent_.emplace_back(std::move(m.owner), m.token);
  messages_.erase(it);
}

bool LoopbackLink::deliver_sent() {
  if (sent_.empty()) return false;
  const auto sent = std::exchange(sent_, {});
  for (const auto& [owner, token] : sent) owner->on_sent(token);
  return true;
}

// Ends the own direction: what is queued goes nowhere, what left arrives.
void LoopbackLink::stop_sending(TimePoint now) {
  if (!std::exchange(can_send_, false)) return;
  under_way_.reset();
  while (!messages_.empty()) release(messages_.begin());
  out_.closed_at = now + out_.delay;
  if (!out_.frames.empty()) {
    out_.closed_at = std::max(*out_.closed_at, out_.frames.back().ends_at);
  }
}

// ---- receiving ----

bool LoopbackLink::receive_step(TimePoint now) {
  bool did = false;
  while (!is_lost_) {
    if (in_.frames.empty()) {
      if (!in_.closed_at || *in_.closed_at > now) break;
      lose({Code::kPeerLost, concat("rank ", peer_.value, " closed the connection"),
            peer_});
      return true;
    }
    const Frame& frame = in_.frames.front();
    if (!is_reading_) {
      if (frame.begins_at > now) break;
      did = true;
      if (!begin_frame(frame)) break;
    }
    if (frame.ends_at > now) break;
    // The first half came with the beginning.
    const size_t half = frame.payload.size() / 2;
    if (place_ != nullptr && !frame.payload.empty()) {
      std::memcpy(place_ + half, frame.payload.data() + half,
                  frame.payload.size() - half);
    }
    is_reading_ = false;
    place_ = nullptr;
    in_.frames.pop_front();
    did = true;
    handler_->on_frame(peer_, header_);
  }
  return did;
}

bool LoopbackLink::begin_frame(const Frame& frame) {
  const std::span<const std::byte> prefix(frame.prefix);
  auto header = decode(prefix.first<kHeaderBytes>());
  AIKIDO_CHECK(header.is_ok(), header.status().message());
  header_ = *header;
  auto place = handler_->on_frame_begin(peer_, header_, prefix.subspan(kHeaderBytes));
  if (is_lost_) return false;
  if (!place) {
    lose({Code::kProtocol, concat("rank ", peer_.value, ": ", place.status().message()),
          peer_});
    return false;
  }
  place_ = *place;
  is_reading_ = true;
  if (place_ != nullptr && !frame.payload.empty()) {
    std::memcpy(place_, frame.payload.data(), frame.payload.size() / 2);
  }
  return true;
}

void LoopbackLink::lose(const Status& why) {
  is_lost_ = true;
  is_reading_ = false;
  in_.frames.clear();
  in_.is_deaf = true;
  stop_sending(network_->clock_->now());
  handler_->on_link_lost(peer_, why);
}

// ---- the network ----

std::pair<std::unique_ptr<Link>, std::unique_ptr<Link>> LoopbackNetwork::connect(
    Rank a, LinkHandler* handler_a, Rank b, LinkHandler* handler_b) {
  for (const LoopbackLink* link : links_) {
    AIKIDO_CHECK(link->self() != a || link->peer() != b, "ranks ", a.value, " and ",
                 b.value, " are connected twice");
  }
  auto first = std::make_unique<LanedLink>(b, handler_a);
  auto second = std::make_unique<LanedLink>(a, handler_b);
  for (const Lane lane : {Lane::kBulk, Lane::kControl}) {
    for (auto* link : {first.get(), second.get()}) {
      const bool is_first = link == first.get();
      auto made = std::make_unique<LoopbackLink>(
          this, is_first ? a : b, is_first ? b : a, lane, link->handler(lane));
      links_.push_back(made.get());
      link->set(lane, std::move(made));
    }
  }
  return {std::move(first), std::move(second)};
}

void LoopbackNetwork::cut(Rank a, Rank b) {
  for (LoopbackLink* link : links_) {
    if ((link->self() == a && link->peer() == b) ||
        (link->self() == b && link->peer() == a)) {
      link->cut();
    }
  }
}

void LoopbackNetwork::pump() {
  bool did = true;
  while (std::exchange(did, false)) {
    // By index: a handler may destroy links.
    for (size_t i = 0; i < links_.size(); ++i) {
      if (links_[i]->step(clock_->now())) did = true;
    }
  }
}

std::optional<TimePoint> LoopbackNetwork::next_event() const {
  std::optional<TimePoint> earliest;
  for (const LoopbackLink* link : links_) {
    const auto t = link->next_event(clock_->now());
    if (t && (!earliest || *t < *earliest)) earliest = t;
  }
  return earliest;
}

}  // namespace aikido::transport

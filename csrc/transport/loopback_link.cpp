// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "transport/loopback_link.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "base/check.h"
#include "transport/laned_link.h"
#include "transport/sent_messages.h"

namespace aikido::transport {

// Sending direction of one lane.
class LoopbackSender {
 public:
  using Path = LoopbackNetwork::Path;
  using Stream = LoopbackNetwork::Stream;
  using Frame = LoopbackNetwork::Frame;

  LoopbackSender(LoopbackNetwork* network, Rank self, Rank peer, Lane lane,
                 LinkHandler* handler, std::shared_ptr<Stream> stream)
      : network_(network),
        self_(self),
        peer_(peer),
        handler_(handler),
        path_(network->path(self, peer, lane)),
        stream_(std::move(stream)),
        scheduler_(network->chunk_bytes_),
        messages_(network->recycler_) {}

  Path& path() { return path_; }

  // See Link.
  MessageId send(OutMessage&& message);
  void let_go(MessageId id);
  void hurry();
  size_t cancel(MessageId id);
  void finish();
  bool is_drained() const { return messages_.empty() && stream_->frames.empty(); }

  // Frames in transit do not reach the other end, nor does the end of the stream.
  void cut() {
    stream_->frames.clear();
    stream_->is_deaf = true;
    is_cut_ = true;
    refresh_reader();
  }
  // Ends the direction. Queued messages are dropped; frames in transit still arrive.
  void stop(TimePoint now);
  // Sends what is due now. Returns true if there was something.
  bool step(TimePoint now);
  // Wakeups::kNever: nothing is due before another event.
  TimePoint next_event(TimePoint now) const;
  // Notifies the owners of sent messages. Returns true if there were some.
  bool deliver_sent();
  void forget_sent() { sent_.clear(); }

 private:
  struct Queued {
    OutMessage message;
    bool is_through = false;  // the scheduler has no part of it
  };
  struct UnderWay {
    MessageId message = 0;
    TimePoint leaves_at{};
    // Sent messages complete at once, as on a lost link.
  };

  void begin_chunk(const Chunk& chunk, TimePoint now);
  void end_chunk();
  void release(RecycledHashMap<MessageId, Queued>::iterator it);
  void refresh_reader();

  LoopbackNetwork* network_;
  Rank self_;
  Rank peer_;
  LinkHandler* handler_;
  Path& path_;  // path to the peer
  const std::shared_ptr<Stream> stream_;
  Scheduler scheduler_;
  MessageId next_id_ = 1;
  RecycledHashMap<MessageId, Queued> messages_;
  std::optional<UnderWay> under_way_;
  SentMessages sent_;
  bool can_send_ = true;
  bool finishing_ = false;
  bool is_cut_ = false;
};

// Receiving direction of one lane.
class LoopbackReceiver {
 public:
  using Stream = LoopbackNetwork::Stream;
  using Frame = LoopbackNetwork::Frame;

  LoopbackReceiver(const Clock* clock, Rank peer, LinkHandler* handler,
                   std::shared_ptr<Stream> stream)
      : clock_(clock), peer_(peer), handler_(handler), stream_(std::move(stream)) {}

  // Link that is refreshed when frames come; null: none.
  void set_reader(LoopbackLink* link) { stream_->reader = link; }

  // See Link.
  const FrameHeader* incoming() const { return is_reading_ ? &header_ : nullptr; }
  size_t num_received() const;
  void drop_incoming() { place_ = nullptr; }

  struct Step {
    bool did = false;
    std::optional<Status> end = {};  // the reason if no further frame will come
  };
  // Reports the frames that have arrived. The handler may call stop() meanwhile.
  Step step(TimePoint now);
  // Wakeups::kNever: nothing comes before another event.
  TimePoint next_event() const;
  // Frames that have arrived are still reported; those in transit are lost.
  void hang_up(TimePoint now);
  // Reports nothing from now on.
  void stop() {
    is_stopped_ = true;
    is_reading_ = false;
    stream_->frames.clear();
    stream_->is_deaf = true;
  }

 private:
  std::optional<Status> begin_frame(const Frame& frame);

  const Clock* clock_;
  Rank peer_;
  LinkHandler* handler_;
  const std::shared_ptr<Stream> stream_;
  bool is_stopped_ = false;
  bool is_reading_ = false;
  FrameHeader header_;
  std::byte* place_ = nullptr;
};

// One lane of a simulated link.
class LoopbackLink final : public Link {
 public:
  using Stream = LoopbackNetwork::Stream;

  LoopbackLink(LoopbackNetwork* network, Rank self, Rank peer, Lane lane,
               LinkHandler* handler, std::shared_ptr<Stream> out,
               std::shared_ptr<Stream> in)
      : network_(network),
        self_(self),
        peer_(peer),
        handler_(handler),
        number_(network->wakeups_.add()),
        sender_(network, self, peer, lane, handler, std::move(out)),
        receiver_(network->clock_, peer, handler, std::move(in)) {
    network_->links_.push_back(this);
    network_->member(self);  // so that its address does not change later
    sender_.path().sender = this;
    receiver_.set_reader(this);
  }
  ~LoopbackLink() override {
    close();
    if (sender_.path().sender == this) sender_.path().sender = nullptr;
    receiver_.set_reader(nullptr);
    network_->links_[number_] = nullptr;
    network_->wakeups_.set(number_, Wakeups::kNever);
  }

  Rank self() const { return self_; }
  Rank peer() const { return peer_; }

  MessageId send(OutMessage&& message) override {
    const MessageId id = sender_.send(std::move(message));
    refresh();
    return id;
  }
  void let_go(MessageId id) override {
    sender_.let_go(id);
    refresh();
  }
  void hurry() override {
    sender_.hurry();
    refresh();
  }
  size_t cancel(MessageId id) override {
    const size_t dropped = sender_.cancel(id);
    refresh();
    return dropped;
  }
  const FrameHeader* incoming() const override { return receiver_.incoming(); }
  size_t num_received() const override { return receiver_.num_received(); }
  void drop_incoming() override { receiver_.drop_incoming(); }
  void hang_up() override;
  bool is_drained() const override { return is_lost_ || sender_.is_drained(); }
  void finish() override {
    sender_.finish();
    refresh();
  }
  void close() override;

  bool is_lost() const { return is_lost_; }
  void cut(TimePoint at) {
    if (cut_at_ <= at) return;
    cut_at_ = at;
    sender_.cut();
    refresh();
  }
  // Computes the time of the next event again, after a change.
  void refresh() {
    const TimePoint now = network_->clock_->now();
    network_->wakeups_.set(number_, next_event(now));
  }
  // Handles all that is due now. Returns true if there was something.
  bool step(TimePoint now);
  TimePoint next_event(TimePoint now) const;

 private:
  void lose(const Status& why);

  LoopbackNetwork* network_;
  Rank self_;
  Rank peer_;
  LinkHandler* handler_;
  const size_t number_;
  bool is_lost_ = false;
  TimePoint cut_at_ = Wakeups::kNever;
  LoopbackSender sender_;
  LoopbackReceiver receiver_;
};

// ---- the link ----

void LoopbackLink::hang_up() {
  if (is_lost_) return;
  const TimePoint now = network_->clock_->now();
  sender_.stop(now);
  receiver_.hang_up(now);
  refresh();
}

void LoopbackLink::close() {
  is_lost_ = true;
  sender_.stop(network_->clock_->now());
  sender_.forget_sent();
  receiver_.stop();
  refresh();
}

bool LoopbackLink::step(TimePoint now) {
  bool did = false;
  if (cut_at_ <= now && !is_lost_) {
    lose({Code::kPeerLost, concat("the connection to rank ", peer_.value, " broke"),
          peer_});
    did = true;
  }
  if (sender_.step(now)) did = true;
  const LoopbackReceiver::Step received = receiver_.step(now);
  if (received.end) lose(*received.end);
  if (received.did) did = true;
  if (sender_.deliver_sent()) did = true;
  return did;
}

TimePoint LoopbackLink::next_event(TimePoint now) const {
  TimePoint earliest = sender_.next_event(now);
  if (!is_lost_) earliest = std::min({earliest, cut_at_, receiver_.next_event()});
  const auto self = static_cast<size_t>(self_.value);
  return std::max(earliest, network_->members_[self].stopped_until);
}

void LoopbackLink::lose(const Status& why) {
  is_lost_ = true;
  receiver_.stop();
  sender_.stop(network_->clock_->now());
  handler_->on_link_lost(peer_, why);
}

// ---- sending ----

MessageId LoopbackSender::send(OutMessage&& message) {
  const MessageId id = next_id_++;
  if (network_->witness_) network_->witness_(self_, message);
  if (!can_send_) {
    sent_.add(message);
    return id;
  }
  message.turn = scheduler_.turn_of(message.turn);
  if (!message.is_held) scheduler_.push(message.waiting(id), network_->clock_->now());
  messages_.emplace(id, Queued{std::move(message), false});
  return id;
}

void LoopbackSender::let_go(MessageId id) {
  const auto it = messages_.find(id);
  if (it == messages_.end()) return;
  OutMessage& m = it->second.message;
  if (std::exchange(m.is_held, false))
    scheduler_.push(m.waiting(id), network_->clock_->now());
}

void LoopbackSender::hurry() {
  for (auto& [id, queued] : messages_) {
    OutMessage& m = queued.message;
    if (!m.leaves_last) continue;
    const Waiting last = m.waiting(id);
    m.leaves_last = false;
    if (!m.is_held) scheduler_.move(last, m.priority, network_->clock_->now());
  }
}

size_t LoopbackSender::cancel(MessageId id) {
  const auto it = messages_.find(id);
  if (it == messages_.end()) return 0;
  const OutMessage& m = it->second.message;
  const size_t dropped =
      m.is_held ? m.bytes : scheduler_.cancel(m.waiting(id)).value_or(0);
  // A chunk in transit still reads the message, so end_chunk() releases it.
  it->second.is_through = true;
  if (!under_way_ || under_way_->message != id) release(it);
  return dropped;
}

void LoopbackSender::finish() {
  if (!can_send_ || finishing_) return;
  OutMessage goodbye;
  goodbye.header.kind = FrameKind::kGoodbye;
  goodbye.priority = kLastPriority;
  send(std::move(goodbye));
  finishing_ = true;
}

TimePoint LoopbackSender::next_event(TimePoint now) const {
  if (!sent_.is_empty()) return now;
  if (under_way_) return under_way_->leaves_at;
  if (can_send_ && (finishing_ || !scheduler_.is_empty()))
    return std::max(now, path_.stalled_until);
  return Wakeups::kNever;
}

bool LoopbackSender::step(TimePoint now) {
  bool did = false;
  while (can_send_) {
    if (under_way_) {
      if (under_way_->leaves_at > now) break;
      end_chunk();
      did = true;
    }
    if (now < path_.stalled_until) break;
    const auto chunk = scheduler_.pop(network_->clock_->now());
    if (!chunk) {
      if (finishing_) {
        stop(now);
        did = true;
      }
      break;
    }
    begin_chunk(*chunk, now);
    did = true;
  }
  return did;
}

void LoopbackSender::begin_chunk(const Chunk& chunk, TimePoint now) {
  Queued& queued = messages_.at(chunk.message);
  queued.is_through = chunk.is_last;
  const OutMessage& m = queued.message;
  FrameHeader h = m.header;
  h.offset += chunk.offset;
  h.payload_bytes = static_cast<uint32_t>(chunk.bytes);
  h.extension_bytes = chunk.offset == 0 ? m.extension_bytes : uint8_t{0};
  h.called = handler_->called();
  h.acked = handler_->acked();
  Frame frame;
  frame.prefix_bytes = kHeaderBytes + h.extension_bytes;
  encode(h, std::span<std::byte, kHeaderBytes>(frame.prefix.data(), kHeaderBytes));
  std::copy_n(m.extension.begin(), h.extension_bytes,
              frame.prefix.begin() + kHeaderBytes);
  if (chunk.bytes > 0) {
    frame.payload = network_->payloads_.take(chunk.bytes);
    std::memcpy(frame.payload.data(), m.data + chunk.offset, chunk.bytes);
  }
  Duration takes{};
  if (path_.bytes_per_second > 0) {
    const auto bytes = static_cast<double>(frame.prefix_bytes + chunk.bytes);
    takes = from_ms(1000.0 * bytes / static_cast<double>(path_.bytes_per_second));
  }
  under_way_ = UnderWay{chunk.message, now + takes};
  if (stream_->is_deaf) return;
  // If the delay of the path was reduced, later frames still do not overtake earlier
  // ones.
  const TimePoint before =
      stream_->frames.empty() ? TimePoint{} : stream_->frames.back().ends_at;
  frame.begins_at = now + path_.delay;
  if (network_->tap_) {
    frame.begins_at = network_->tap_(self_, peer_, h, frame.begins_at);
  }
  frame.begins_at = std::max(before, frame.begins_at);
  // A tap loses a frame by giving kNever as its arrival.
  const bool arrives = frame.begins_at < Wakeups::kNever;
  frame.ends_at = arrives ? std::max(before, frame.begins_at + takes) : frame.begins_at;
  stream_->frames.push_back(std::move(frame));
  refresh_reader();
}

void LoopbackSender::end_chunk() {
  const auto it = messages_.find(under_way_->message);
  under_way_.reset();
  if (it->second.is_through) release(it);
}

void LoopbackSender::release(RecycledHashMap<MessageId, Queued>::iterator it) {
  sent_.add(it->second.message);
  messages_.erase(it);
}

bool LoopbackSender::deliver_sent() {
  if (sent_.is_empty()) return false;
  sent_.tell();
  return true;
}

void LoopbackSender::stop(TimePoint now) {
  if (!std::exchange(can_send_, false)) return;
  under_way_.reset();
  while (!messages_.empty()) release(messages_.begin());
  if (is_cut_) return;  // the end does not arrive either
  stream_->closed_at = now + path_.delay;
  if (!stream_->frames.empty()) {
    stream_->closed_at = std::max(*stream_->closed_at, stream_->frames.back().ends_at);
  }
  refresh_reader();
}

void LoopbackSender::refresh_reader() {
  if (stream_->reader != nullptr) stream_->reader->refresh();
}

// ---- receiving ----

// Proportional to the elapsed time, although the payload is copied in two halves: at
// the beginning and at the end of the frame.
size_t LoopbackReceiver::num_received() const {
  if (!is_reading_) return 0;
  const auto& frame = stream_->frames.front();
  const Duration all = frame.ends_at - frame.begins_at;
  const Duration past = std::min(clock_->now() - frame.begins_at, all);
  if (all <= Duration::zero() || frame.ends_at == Wakeups::kNever) return 0;
  return static_cast<size_t>(static_cast<double>(frame.payload.size()) *
                             static_cast<double>(past.count()) /
                             static_cast<double>(all.count()));
}

TimePoint LoopbackReceiver::next_event() const {
  if (!stream_->frames.empty()) {
    const Frame& next = stream_->frames.front();
    return is_reading_ ? next.ends_at : next.begins_at;
  }
  return stream_->closed_at.value_or(Wakeups::kNever);
}

void LoopbackReceiver::hang_up(TimePoint now) {
  std::erase_if(stream_->frames, [&](const Frame& f) { return f.ends_at > now; });
  stream_->closed_at = now;
  stream_->is_deaf = true;
}

LoopbackReceiver::Step LoopbackReceiver::step(TimePoint now) {
  bool did = false;
  while (!is_stopped_) {
    if (stream_->frames.empty()) {
      if (!stream_->closed_at || *stream_->closed_at > now) break;
      return {true,
              Status(Code::kPeerLost,
                     concat("rank ", peer_.value, " closed the connection"), peer_)};
    }
    const Frame& frame = stream_->frames.front();
    if (!is_reading_) {
      if (frame.begins_at > now) break;
      did = true;
      if (auto end = begin_frame(frame)) return {did, std::move(end)};
      if (is_stopped_) break;
    }
    if (frame.ends_at > now) break;
    // begin_frame() has copied the first half.
    const size_t half = frame.payload.size() / 2;
    if (place_ != nullptr && frame.payload) {
      std::memcpy(place_ + half, frame.payload.data() + half,
                  frame.payload.size() - half);
    }
    is_reading_ = false;
    place_ = nullptr;
    stream_->frames.pop_front();
    did = true;
    handler_->on_frame(peer_, header_);
  }
  return {did};
}

// Returns the reason if the handler has refused the frame.
std::optional<Status> LoopbackReceiver::begin_frame(const Frame& frame) {
  const auto prefix = std::span(frame.prefix).first(frame.prefix_bytes);
  auto header = decode(prefix.first<kHeaderBytes>());
  AIKIDO_CHECK(header.is_ok(), header.status().message());
  header_ = *header;
  auto place = handler_->on_frame_begin(peer_, header_, prefix.subspan(kHeaderBytes));
  // The handler may have closed the link.
  if (is_stopped_) return std::nullopt;
  if (!place) {
    return Status(Code::kProtocol,
                  concat("rank ", peer_.value, ": ", place.status().message()), peer_);
  }
  place_ = *place;
  is_reading_ = true;
  if (place_ != nullptr && frame.payload) {
    std::memcpy(place_, frame.payload.data(), frame.payload.size() / 2);
  }
  return std::nullopt;
}

// ---- the network ----

std::pair<std::unique_ptr<Link>, std::unique_ptr<Link>> LoopbackNetwork::connect(
    Rank a, LinkHandler* handler_a, Rank b, LinkHandler* handler_b) {
  for (const Lane lane : kLanes) {
    for (const Path* p : {&path(a, b, lane), &path(b, a, lane)})
      AIKIDO_CHECK(p->sender == nullptr || p->sender->is_lost(), "ranks ", a.value,
                   " and ", b.value, " are connected twice");
  }
  auto first = std::make_unique<LanedLink>(b, handler_a);
  auto second = std::make_unique<LanedLink>(a, handler_b);
  for (const Lane lane : {Lane::kBulk, Lane::kControl}) {
    const auto there = std::make_shared<Stream>(recycler_),
               back = std::make_shared<Stream>(recycler_);
    first->set(lane, std::make_unique<LoopbackLink>(this, a, b, lane,
                                                    first->handler(lane), there, back));
    second->set(lane, std::make_unique<LoopbackLink>(
                          this, b, a, lane, second->handler(lane), back, there));
  }
  return {std::move(first), std::move(second)};
}

void LoopbackNetwork::stall(Rank from, Rank to, TimePoint until) {
  for (const Lane lane : kLanes) {
    Path& p = path(from, to, lane);
    p.stalled_until = until;
    if (p.sender != nullptr) p.sender->refresh();
  }
}

void LoopbackNetwork::stop(Rank rank, TimePoint until) {
  member(rank).stopped_until = until;
  for (LoopbackLink* link : links_)
    if (link != nullptr && link->self() == rank) link->refresh();
}

void LoopbackNetwork::cut(Rank a, Rank b, TimePoint heard_by_b) {
  for (LoopbackLink* link : links_) {
    if (link == nullptr || link->is_lost()) continue;
    if (link->self() == a && link->peer() == b) link->cut(clock_->now());
    if (link->self() == b && link->peer() == a)
      link->cut(std::max(heard_by_b, clock_->now()));
  }
}

void LoopbackNetwork::pump() {
  const TimePoint now = clock_->now();
  while (wakeups_.earliest_time() <= now) {
    // All due links in turn before any link is handled again. So a member that sends on
    // both lanes does so before a peer answers.
    for (size_t i = wakeups_.due(0, now); i < links_.size();
         i = wakeups_.due(i + 1, now)) {
      ++members_[static_cast<size_t>(links_[i]->self().value)].num_steps;
      AIKIDO_CHECK(links_[i]->step(now), "a link is due and does nothing");
      // A handler may destroy links.
      if (links_[i] != nullptr) links_[i]->refresh();
    }
  }
}

std::optional<TimePoint> LoopbackNetwork::next_event() const {
  const TimePoint earliest = wakeups_.earliest_time();
  if (earliest == Wakeups::kNever) return std::nullopt;
  return std::max(earliest, clock_->now());
}

}  // namespace aikido::transport

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "collectives/point_to_point.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace aikido::collectives {

using transport::FrameHeader;
using transport::FrameKind;

namespace {

// Bytes that a message counts for besides its payload.
constexpr uint64_t kMessageCharge = 256;
// Announced messages of one peer that wait here for their receives.
constexpr uint64_t kMaxWaiting = 1 << 20;

Status why_withdrawn(Rank self, Rank from, int32_t tag, Code code) {
  const char* why = "it failed there";
  if (code == Code::kTimedOut) why = "its time was over";
  if (code == Code::kPeerLost) why = "it has heard nothing from here for too long";
  return {code,
          concat("recv from rank ", from.value, ", tag ", tag, " on rank ", self.value,
                 ": rank ", from.value, " has given the message up, because ", why),
          code == Code::kPeerLost ? self : from};
}

}  // namespace

// A send that is not through yet.
class Mailbox::Outbound final : public transport::SendOwner,
                                public std::enable_shared_from_this<Outbound> {
 public:
  Outbound(Mailbox* mailbox, SendCall call, uint64_t number)
      : mailbox_(mailbox), call_(std::move(call)), number_(number) {}

  const SendCall& call() const { return call_; }
  uint64_t number() const { return number_; }
  bool is_posted() const { return is_posted_; }

  void post_data() {
    if (std::exchange(is_posted_, true)) return;
    transport::OutMessage m;
    m.header.kind = FrameKind::kP2pData;
    m.header.epoch = mailbox_->host_->epoch();
    m.header.tag = call_.tag;
    m.header.seq = number_;
    m.header.total_bytes = call_.bytes;
    m.data = call_.data;
    m.bytes = call_.bytes;
    m.priority = call_.priority;
    m.owner = shared_from_this();
    message_ = mailbox_->host_->send(call_.to, std::move(m));
  }

  void on_sent(uint32_t) override { end(Status::ok()); }

  void end(const Status& status) {
    if (!status && mailbox_ != nullptr) take_back(status.code());
    if (auto done = std::exchange(call_.on_done, nullptr)) done(status, call_.to);
    if (mailbox_ != nullptr) {
      auto self = shared_from_this();
      std::exchange(mailbox_, nullptr)->outbound_.remove(self);
    }
  }
  void orphan() { mailbox_ = nullptr; }

 private:
  // The caller may write to its memory from here on.
  void take_back(Code code) {
    if (call_.to == mailbox_->host_->self()) {
      auto& inbound = mailbox_->source(call_.to).inbound;
      if (const auto it = inbound.find(number_); it != inbound.end()) {
        it->second.local.reset();
        it->second.withdrawn = code;
      }
      return;
    }
    if (message_ != 0) mailbox_->host_->cancel(call_.to, message_);
    mailbox_->send_control(call_.to, FrameKind::kP2pWithdraw, number_, call_.tag,
                           call_.bytes, code);
  }

  Mailbox* mailbox_;  // null once it is over
  SendCall call_;
  uint64_t number_;
  bool is_posted_ = false;
  transport::MessageId message_ = 0;  // of the data
};

Mailbox::Mailbox(OperationHost* host)
    : host_(host), sources_(static_cast<size_t>(host->size())) {}

Mailbox::~Mailbox() {
  for (const auto& out : outbound_) out->orphan();
}

void Mailbox::send(SendCall call) {
  const Rank to = call.to;
  const uint64_t number = source(to).next_sent++;
  auto out = std::make_shared<Outbound>(this, std::move(call), number);
  outbound_.push_back(out);
  if (to == host_->self()) {
    Source& self = source(to);
    Inbound& in = self.inbound[number];
    in.tag = out->call().tag;
    in.total = out->call().bytes;
    in.local = out;
    match(to);
  } else if (Source& there = source(to);
             out->call().bytes <= host_->settings().eager_bytes &&
             there.sent + out->call().bytes + kMessageCharge <=
                 there.taken_there + host_->settings().window_bytes) {
    there.sent += out->call().bytes + kMessageCharge;
    out->post_data();
  } else {
    send_control(to, FrameKind::kP2pAnnounce, number, out->call().tag,
                 out->call().bytes);
  }
}

void Mailbox::receive(ReceiveCall call) {
  const auto from = call.from;
  receives_.push_back(std::move(call));
  if (from) {
    match(*from);
    return;
  }
  for (int32_t r = 0; r < host_->size(); ++r) match(Rank(r));
}

// Pairs messages of `from`, in the order of sending and without gaps, with receives in
// the order of posting.
void Mailbox::match(Rank from) {
  Source& src = source(from);
  while (src.inbound.contains(src.next_seen)) ++src.next_seen;
  for (auto it = src.inbound.begin();
       it != src.inbound.end() && it->first < src.next_seen;) {
    const uint64_t number = it->first;
    Inbound& in = it->second;
    ++it;
    if (in.receive) continue;
    const auto fits = std::find_if(
        receives_.begin(), receives_.end(),
        [&](const auto& r) { return r.tag == in.tag && (!r.from || *r.from == from); });
    if (fits == receives_.end()) continue;
    in.receive = std::move(*fits);
    receives_.erase(fits);
    begin(from, number, in);
  }
}

// A message has found its receive.
void Mailbox::begin(Rank from, uint64_t number, Inbound& in) {
  ReceiveCall& receive = *in.receive;
  if (receive.bytes != in.total) {
    const Status why(Code::kInvalidArgument,
                     concat("recv(src=", from.value, ", tag=", in.tag, ") on rank ",
                            host_->self().value, " has room for ", receive.bytes,
                            " bytes, but rank ", from.value, " sends ", in.total,
                            "; use the same shape and dtype on both"),
                     from);
    receive.data = nullptr;
    if (auto done = std::exchange(receive.on_done, nullptr)) done(why, from);
  }
  if (in.withdrawn != Code::kOk) {
    complete(from, number, why_withdrawn(host_->self(), from, in.tag, in.withdrawn));
  } else if (in.local) {
    if (receive.data != nullptr) {
      std::memcpy(receive.data, in.local->call().data, in.total);
    }
    in.got = in.total;
    const auto local = in.local;
    complete(from, number, Status::ok());
    local->end(Status::ok());
  } else if (in.is_announced) {
    send_control(from, FrameKind::kP2pReady, number, in.tag, in.total);
  } else if (in.early && in.got == in.total) {
    if (receive.data != nullptr) std::memcpy(receive.data, in.early.data(), in.got);
    complete(from, number, Status::ok());
  } else if (in.total == 0) {
    complete(from, number, Status::ok());
  }
}

void Mailbox::complete(Rank from, uint64_t number, const Status& status) {
  auto found = source(from).inbound.extract(number);
  const Inbound& in = found.mapped();
  if (!in.local && !in.is_announced && in.withdrawn == Code::kOk) {
    note_taken(from, in.total);
  }
  ReceiveCall& receive = *found.mapped().receive;
  if (receive.on_done) receive.on_done(status, from);
}

// A message that came unasked waits here no more. Its sender is told now and then.
void Mailbox::note_taken(Rank from, uint64_t bytes) {
  Source& src = source(from);
  src.taken += bytes + kMessageCharge;
  if (src.taken - src.told_taken < host_->settings().window_bytes / 4) return;
  src.told_taken = src.taken;
  send_control(from, FrameKind::kP2pTaken, 0, 0, src.taken);
}

// Whether a message that is not known yet may come. The sender counts what is taken
// later than we do, so it never has more on its way than the window.
Status Mailbox::check_window(Rank from, const FrameHeader& header) const {
  const Source& src = sources_[static_cast<size_t>(from.value)];
  const uint64_t window = host_->settings().window_bytes;
  if (header.seq >= src.next_seen + kMaxWaiting || src.inbound.size() >= kMaxWaiting) {
    return {Code::kProtocol,
            concat("message ", header.seq, " comes while ", src.inbound.size(),
                   " from number ", src.next_seen, " on wait for their receives")};
  }
  if (header.kind != FrameKind::kP2pData) return Status::ok();
  if (header.total_bytes > host_->settings().eager_bytes) {
    return {Code::kProtocol,
            concat("rank ", from.value, " sent a message of ", header.total_bytes,
                   " bytes unasked, the limit is ", host_->settings().eager_bytes)};
  }
  const uint64_t waiting = src.come - std::min(src.come, src.taken);
  if (waiting + header.total_bytes + kMessageCharge <= window) return Status::ok();
  return {Code::kProtocol, concat("rank ", from.value, " sent ", header.total_bytes,
                                  " bytes unasked while ", waiting,
                                  " wait for their receives, the window is ", window)};
}

Result<std::byte*> Mailbox::place(Rank from, const FrameHeader& header) {
  Source& src = source(from);
  if (header.kind != FrameKind::kP2pData) {
    if (header.kind != FrameKind::kP2pReady && header.kind != FrameKind::kP2pTaken &&
        header.seq >= src.next_seen && !src.inbound.contains(header.seq)) {
      AIKIDO_TRY(check_window(from, header));
    }
    return nullptr;
  }
  const bool is_new = !src.inbound.contains(header.seq);
  if (is_new && (header.seq < src.next_seen || header.offset != 0)) {
    return nullptr;  // the rest of a message that nobody wants any more
  }
  if (is_new) AIKIDO_TRY(check_window(from, header));
  Inbound& in = src.inbound[header.seq];
  if (is_new) {
    src.come += header.total_bytes + kMessageCharge;
    in.tag = header.tag;
    in.total = header.total_bytes;
    match(from);
    // A receive that does not fit may have ended it; an empty message is over.
    if (!src.inbound.contains(header.seq)) return nullptr;
  }
  if (in.withdrawn != Code::kOk) return nullptr;  // told on the other lane
  if (in.is_announced && !in.receive) {
    return Status(Code::kProtocol, concat("rank ", from.value, " sent message ",
                                          header.seq, " before it was asked for it"));
  }
  if (header.offset != in.got || header.total_bytes != in.total) {
    return Status(Code::kProtocol, concat("rank ", from.value, " sent bytes from ",
                                          header.offset, ", expected from ", in.got));
  }
  if (in.receive && !in.early) {
    return in.receive->data == nullptr ? nullptr : in.receive->data + header.offset;
  }
  if (!in.early) in.early = host_->pool().take(std::max<size_t>(1, in.total));
  return in.early.data() + header.offset;
}

void Mailbox::arrived(Rank from, const FrameHeader& header) {
  Source& src = source(from);
  if (header.kind == FrameKind::kP2pReady) {
    const auto it =
        std::find_if(outbound_.begin(), outbound_.end(), [&](const auto& o) {
          return o->call().to == from && o->number() == header.seq;
        });
    if (it != outbound_.end()) std::shared_ptr<Outbound>(*it)->post_data();
    return;
  }
  if (header.kind == FrameKind::kP2pAnnounce) {
    if (header.seq < src.next_seen || src.inbound.contains(header.seq)) return;
    Inbound& in = src.inbound[header.seq];
    in.tag = header.tag;
    in.total = header.total_bytes;
    in.is_announced = true;
    match(from);
    return;
  }
  if (header.kind == FrameKind::kP2pWithdraw) return withdraw(from, header);
  if (header.kind == FrameKind::kP2pTaken) {
    src.taken_there = std::min(src.sent, std::max(src.taken_there, header.total_bytes));
    return;
  }
  const auto it = src.inbound.find(header.seq);
  if (it == src.inbound.end() || it->second.withdrawn != Code::kOk) return;
  Inbound& in = it->second;
  in.got += header.payload_bytes;
  if (!in.receive || in.got < in.total) return;
  if (in.early && in.receive->data != nullptr) {
    std::memcpy(in.receive->data, in.early.data(), in.got);
  }
  complete(from, header.seq, Status::ok());
}

// Its sender has given a message up. Data that is on its way may come yet.
void Mailbox::withdraw(Rank from, const FrameHeader& header) {
  Source& src = source(from);
  const bool is_new = !src.inbound.contains(header.seq);
  if (is_new && header.seq < src.next_seen) return;  // it is over
  Inbound& in = src.inbound[header.seq];
  if (!in.is_announced && !is_new && in.got == in.total) return;  // it is here whole
  if (in.withdrawn != Code::kOk) return;
  if (!in.is_announced) note_taken(from, header.total_bytes);
  in.tag = header.tag;
  in.total = header.total_bytes;
  in.withdrawn =
      header.shard > 0 && header.shard <= static_cast<uint16_t>(Code::kInternal)
          ? static_cast<Code>(header.shard)
          : Code::kAborted;
  host_->drop_incoming(from, FrameKind::kP2pData, header.seq);
  in.early.reset();
  if (in.receive) {
    complete(from, header.seq,
             why_withdrawn(host_->self(), from, in.tag, in.withdrawn));
  } else {
    match(from);
  }
}

void Mailbox::send_control(Rank to, FrameKind kind, uint64_t number, int32_t tag,
                           size_t total, Code code) {
  transport::OutMessage m;
  m.header.kind = kind;
  m.header.shard = static_cast<uint16_t>(code);
  m.header.epoch = host_->epoch();
  m.header.tag = tag;
  m.header.seq = number;
  m.header.total_bytes = total;
  m.priority = transport::kControlPriority;
  host_->send(to, std::move(m));
}

void Mailbox::on_peer_lost(Rank peer, const Status& why) {
  for (auto out : std::list(outbound_)) {
    if (out->call().to == peer) out->end(why);
  }
  fail_receives(peer, why);
  auto& inbound = source(peer).inbound;
  for (auto it = inbound.begin(); it != inbound.end();) {
    Inbound& in = it->second;
    const bool is_whole = in.got == in.total && !in.is_announced;
    if (is_whole && !in.receive) {
      ++it;
      continue;
    }
    // The link may be alive, and in the middle of it: the group gave up.
    host_->drop_incoming(peer, FrameKind::kP2pData, it->first);
    const auto receive = std::move(in.receive);
    it = inbound.erase(it);
    if (receive && receive->on_done) receive->on_done(why, peer);
  }
}

bool Mailbox::on_peer_silent(Rank peer, const Status& why) {
  bool did = false;
  for (auto out : std::list(outbound_)) {
    if (out->call().to != peer) continue;
    out->end(why);
    did = true;
  }
  if (fail_receives(peer, why)) did = true;
  for (auto& [number, in] : source(peer).inbound) {
    if (!in.receive || !in.receive->on_done) continue;
    give_up(peer, number, in, why);
    did = true;
  }
  return did;
}

// Ends the receive of a message that has not come whole. What still comes is thrown
// away.
void Mailbox::give_up(Rank from, uint64_t number, Inbound& in, const Status& why) {
  in.receive->data = nullptr;
  host_->drop_incoming(from, FrameKind::kP2pData, number);
  std::exchange(in.receive->on_done, nullptr)(why, from);
}

bool Mailbox::fail_receives(Rank from, const Status& why) {
  bool did = false;
  for (auto it = receives_.begin(); it != receives_.end();) {
    if (it->from.value_or(kNoRank) != from) {
      ++it;
      continue;
    }
    const auto done = std::move(it->on_done);
    it = receives_.erase(it);
    if (done) done(why, from);
    did = true;
  }
  return did;
}

void Mailbox::fail_all(const Status& why) {
  for (int32_t r = 0; r < host_->size(); ++r) on_peer_lost(Rank(r), why);
  fail_receives(kNoRank, why);
}

bool Mailbox::on_time(TimePoint now, const Status& silent) {
  bool has_blamed_silent = false;
  const auto late = [&](const char* what, Rank peer, int32_t tag) {
    const auto who =
        peer == kNoRank ? std::string("any rank") : concat("rank ", peer.value);
    const auto call =
        concat(what, " ", who, ", tag ", tag, " on rank ", host_->self().value);
    if (peer == kNoRank && !silent) {
      has_blamed_silent = true;
      return silent.with_context(call + ": Timed out");
    }
    return Status(Code::kTimedOut, call + ": Timed out with nothing on the other side",
                  peer);
  };
  for (auto out : std::list(outbound_)) {
    if (out->call().deadline <= now)
      out->end(late("send to", out->call().to, out->call().tag));
  }
  for (auto it = receives_.begin(); it != receives_.end();) {
    if (it->deadline > now) {
      ++it;
      continue;
    }
    const ReceiveCall call = std::move(*it);
    it = receives_.erase(it);
    if (call.on_done) {
      call.on_done(late("recv from", call.from.value_or(kNoRank), call.tag),
                   call.from.value_or(kNoRank));
    }
  }
  for (size_t r = 0; r < sources_.size(); ++r) {
    for (auto& [number, in] : sources_[r].inbound) {
      if (!in.receive || !in.receive->on_done || in.receive->deadline > now) continue;
      const Rank peer(static_cast<int32_t>(r));
      give_up(peer, number, in, late("recv from", peer, in.tag));
    }
  }
  return has_blamed_silent;
}

std::optional<TimePoint> Mailbox::next_look() const {
  std::optional<TimePoint> earliest;
  const auto consider = [&](TimePoint t) {
    if (!earliest || t < *earliest) earliest = t;
  };
  for (const auto& out : outbound_) consider(out->call().deadline);
  for (const auto& receive : receives_) consider(receive.deadline);
  for (const Source& src : sources_) {
    for (const auto& [number, in] : src.inbound) {
      if (in.receive && in.receive->on_done) consider(in.receive->deadline);
    }
  }
  return earliest;
}

}  // namespace aikido::collectives

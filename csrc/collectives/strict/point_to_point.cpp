// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "collectives/strict/point_to_point.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <map>
#include <utility>

namespace aikido::collectives {

using transport::FrameHeader;
using transport::FrameKind;

namespace {

// Bytes that a message counts in addition to its payload.
constexpr uint64_t kMessageCharge = 256;
// Limit of the announced messages of one peer that wait here for receives.
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

// A send that is not complete yet.
class Mailbox::Outbound final : public transport::SendOwner,
                                public std::enable_shared_from_this<Outbound> {
 public:
  Outbound(Mailbox* mailbox, SendCall&& call, uint64_t number)
      : mailbox_(mailbox), call_(std::move(call)), number_(number) {}

  const SendCall& call() const { return call_; }
  uint64_t number() const { return number_; }
  bool is_posted() const { return is_posted_; }

  void post_data() {
    if (std::exchange(is_posted_, true)) return;
    transport::OutMessage m = mailbox_->data_of(call_, number_);
    m.owner = shared_from_this();
    message_ = mailbox_->host_->send(call_.to, std::move(m));
  }

  void on_sent(uint32_t) override { end(Status::ok()); }

  void end(const Status& status) {
    if (status.has_failed() && mailbox_ != nullptr) take_back(status.code());
    if (auto done = std::exchange(call_.on_done, nullptr)) done(status, call_.to);
    if (mailbox_ != nullptr) {
      auto self = shared_from_this();
      Mailbox* mailbox = std::exchange(mailbox_, nullptr);
      mailbox->forget_deadline(call_.deadline);
      mailbox->outbound_.erase({call_.to, number_});
    }
  }
  void orphan() { mailbox_ = nullptr; }

 private:
  // After this the caller may write to its memory.
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

  Mailbox* mailbox_;  // null once the send is over
  SendCall call_;
  uint64_t number_;
  bool is_posted_ = false;
  transport::MessageId message_ = 0;  // message of the data; 0: none yet
};

Mailbox::Mailbox(OperationHost* host)
    : host_(host),
      receives_(host->recycler()),
      waiting_(host->recycler()),
      outbound_(host->recycler()),
      deadlines_(host->recycler()) {
  sources_.reserve(static_cast<size_t>(host->size()));
  for (int32_t r = 0; r < host->size(); ++r) sources_.emplace_back(host->recycler());
}

Mailbox::~Mailbox() {
  for (const auto& [key, out] : outbound_) out->orphan();
}

void Mailbox::send(SendCall&& call) {
  const Rank to = call.to;
  PeerMessages& there = source(to);
  const uint64_t number = there.next_sent++;
  const uint64_t charge = call.bytes + kMessageCharge;
  const bool is_own = to == host_->self();
  const bool goes_unasked =
      !is_own && is_most_urgent(there, call.priority) &&
      call.bytes <= host_->settings().eager_bytes &&
      // The charge stays below the peer's window, so the peer never has to refuse it.
      there.sent + charge <= there.taken_there + host_->settings().window_bytes;
  if (goes_unasked) {
    there.sent += charge;
    if (host_->send_at_once(to, data_of(call, number))) {
      if (call.on_done) call.on_done(Status::ok(), to);
      return;
    }
  }
  auto out = std::allocate_shared<Outbound>(Recycling<Outbound>(host_->recycler()),
                                            this, std::move(call), number);
  outbound_.emplace(std::pair(to, number), out);
  deadlines_.insert(out->call().deadline);
  if (is_own) {
    Inbound& in = there.inbound[number];
    in.tag = out->call().tag;
    in.total = out->call().bytes;
    in.local = out;
    match(to);
  } else if (goes_unasked) {
    out->post_data();
  } else {
    send_control(to, FrameKind::kP2pAnnounce, number, out->call().tag,
                 out->call().bytes);
  }
}

transport::OutMessage Mailbox::data_of(const SendCall& call, uint64_t number) const {
  transport::OutMessage m;
  m.header.kind = FrameKind::kP2pData;
  m.header.epoch = host_->epoch();
  m.header.tag = call.tag;
  m.header.seq = number;
  m.header.total_bytes = call.bytes;
  m.data = call.data;
  m.bytes = call.bytes;
  m.priority = call.priority;
  m.urgency = call.urgency;
  return m;
}

// Also records the priority.
bool Mailbox::is_most_urgent(PeerMessages& there, Priority priority) {
  there.most_urgent = std::max(there.most_urgent, priority);
  return priority == there.most_urgent;
}

// The first of the places for this rank and tag. end() if there is none.
template <class Places>
auto Mailbox::first_at(Places& places, Rank from, int32_t tag) {
  const auto first = places.lower_bound(Place(from, tag, 0));
  if (first == places.end()) return first;
  const auto& [its_from, its_tag, order] = first->first;
  return its_from == from && its_tag == tag ? first : places.end();
}

void Mailbox::receive(ReceiveCall&& call) {
  const Rank wanted = call.from.value_or(kNoRank);
  if (!call.on_done) call.on_done = [](const Status&, Rank) {};
  deadlines_.insert(call.deadline);
  const auto waiting = first_at(waiting_, wanted, call.tag);
  if (waiting == waiting_.end()) {
    const Place place(wanted, call.tag, next_posted_++);
    receives_.emplace(place, std::move(call));
    return;
  }
  const auto [from, number] = waiting->second;
  Inbound& in = source(from).inbound.at(number);
  stop_waiting(from, in);
  in.receive = std::move(call);
  begin(from, number, in);
}

// Pairs the messages of `from` with receives, in the order of sending and without gaps.
void Mailbox::match(Rank from) {
  auto& src = source(from);
  while (true) {
    const auto it = src.inbound.find(src.next_seen);
    if (it == src.inbound.end()) return;
    const uint64_t number = src.next_seen++;
    it->second.receive = take_receive(from, it->second.tag);
    if (it->second.receive) {
      begin(from, number, it->second);
    } else {
      wait(from, number, it->second);
    }
  }
}

// Takes the earliest posted receive that fits the message.
std::optional<ReceiveCall> Mailbox::take_receive(Rank from, int32_t tag) {
  auto best = first_at(receives_, from, tag);
  const auto any = first_at(receives_, kNoRank, tag);
  const auto posted = [](const auto& it) { return std::get<uint64_t>(it->first); };
  if (best == receives_.end() ||
      (any != receives_.end() && posted(any) < posted(best))) {
    best = any;
  }
  if (best == receives_.end()) return std::nullopt;
  ReceiveCall call = std::move(best->second);
  receives_.erase(best);
  return call;
}

void Mailbox::wait(Rank from, uint64_t number, Inbound& in) {
  in.arrival = next_arrival_++;
  for (const Rank rank : {from, kNoRank})
    waiting_.emplace(Place(rank, in.tag, in.arrival), std::pair(from, number));
}

void Mailbox::stop_waiting(Rank from, Inbound& in) {
  if (in.arrival == 0) return;
  for (const Rank rank : {from, kNoRank})
    waiting_.erase(Place(rank, in.tag, in.arrival));
  in.arrival = 0;
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
    end(receive, why, from);
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
  end(*found.mapped().receive, status, from);
}

// Completes a receive, at most once.
void Mailbox::end(ReceiveCall& receive, const Status& status, Rank from) {
  auto done = std::exchange(receive.on_done, nullptr);
  if (!done) return;
  forget_deadline(receive.deadline);
  done(status, from);
}

void Mailbox::forget_deadline(TimePoint deadline) {
  deadlines_.erase(deadlines_.find(deadline));
}

// A message that was sent without a request has found its receive. The sender gets a
// report after each quarter of the window.
void Mailbox::note_taken(Rank from, uint64_t bytes) {
  PeerMessages& src = source(from);
  src.taken += bytes + kMessageCharge;
  if (src.taken - src.told_taken < host_->settings().window_bytes / 4) return;
  src.told_taken = src.taken;
  send_control(from, FrameKind::kP2pTaken, 0, 0, src.taken);
}

// Checks that a new message may come. The sender learns of taken messages later than
// this process, so a correct sender never exceeds the window.
Status Mailbox::check_window(Rank from, const FrameHeader& header) const {
  const PeerMessages& src = sources_[static_cast<size_t>(from.value)];
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
  PeerMessages& src = source(from);
  if (header.kind != FrameKind::kP2pData) {
    if (header.kind != FrameKind::kP2pReady && header.kind != FrameKind::kP2pTaken &&
        header.seq >= src.next_seen && !src.inbound.contains(header.seq)) {
      AIKIDO_TRY(check_window(from, header));
    }
    return nullptr;
  }
  const bool is_new = !src.inbound.contains(header.seq);
  if (is_new && (header.seq < src.next_seen || header.offset != 0)) {
    return nullptr;  // the rest of a message that is over here
  }
  if (is_new) AIKIDO_TRY(check_window(from, header));
  Inbound& in = src.inbound[header.seq];
  if (is_new) {
    src.come += header.total_bytes + kMessageCharge;
    in.tag = header.tag;
    in.total = header.total_bytes;
    match(from);
    // A receive of another size may have ended it. An empty message is over at once.
    if (!src.inbound.contains(header.seq)) return nullptr;
  }
  if (in.withdrawn != Code::kOk) return nullptr;  // the control lane has announced it
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
  PeerMessages& src = source(from);
  if (header.kind == FrameKind::kP2pReady) {
    const auto it = outbound_.find({from, header.seq});
    if (it != outbound_.end()) std::shared_ptr<Outbound>(it->second)->post_data();
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

// The sender has given up a message. Data in transit may still come.
void Mailbox::withdraw(Rank from, const FrameHeader& header) {
  PeerMessages& src = source(from);
  const bool is_new = !src.inbound.contains(header.seq);
  if (is_new && header.seq < src.next_seen) return;  // it is over here
  Inbound& in = src.inbound[header.seq];
  if (!in.is_announced && !is_new && in.got == in.total) return;  // it is complete
  if (in.withdrawn != Code::kOk) return;
  if (!in.is_announced) note_taken(from, header.total_bytes);
  if (is_new) {
    in.tag = header.tag;
    in.total = header.total_bytes;
  }
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
  for (const auto& out : sends_to(peer)) out->end(why);
  fail_receives(peer, why);
  auto& inbound = source(peer).inbound;
  for (auto it = inbound.begin(); it != inbound.end();) {
    Inbound& in = it->second;
    const bool is_whole = in.got == in.total && !in.is_announced;
    if (is_whole && !in.receive) {
      ++it;
      continue;
    }
    // The link may still be alive and in the middle of this message, because the group
    // gave up.
    host_->drop_incoming(peer, FrameKind::kP2pData, it->first);
    stop_waiting(peer, in);
    auto receive = std::move(in.receive);
    it = inbound.erase(it);
    if (receive) end(*receive, why, peer);
  }
}

bool Mailbox::on_peer_silent(Rank peer, const Status& why) {
  const auto sends = sends_to(peer);
  for (const auto& out : sends) out->end(why);
  bool did = !sends.empty();
  if (fail_receives(peer, why)) did = true;
  for (auto& [number, in] : source(peer).inbound) {
    if (!in.receive || !in.receive->on_done) continue;
    give_up(peer, number, in, why);
    did = true;
  }
  return did;
}

// Returns a copy, because a send that ends removes itself from the table.
std::vector<std::shared_ptr<Mailbox::Outbound>> Mailbox::sends_to(Rank peer) const {
  std::vector<std::shared_ptr<Outbound>> sends;
  for (auto it = outbound_.lower_bound({peer, 0});
       it != outbound_.end() && it->first.first == peer; ++it) {
    sends.push_back(it->second);
  }
  return sends;
}

// Ends the receive of an incomplete message. Its further bytes are discarded.
void Mailbox::give_up(Rank from, uint64_t number, Inbound& in, const Status& why) {
  in.receive->data = nullptr;
  host_->drop_incoming(from, FrameKind::kP2pData, number);
  end(*in.receive, why, from);
}

// Takes the matching receives without a message, in the order of posting.
std::vector<ReceiveCall> Mailbox::take_receives(
    const std::function<bool(Rank from, const ReceiveCall&)>& is_meant) {
  std::map<uint64_t, ReceiveCall> taken;
  for (auto it = receives_.begin(); it != receives_.end();) {
    const auto [from, tag, posted] = it->first;
    if (is_meant(from, it->second)) {
      taken.emplace(posted, std::move(it->second));
      it = receives_.erase(it);
    } else {
      ++it;
    }
  }
  std::vector<ReceiveCall> calls;
  for (auto& [posted, call] : taken) calls.push_back(std::move(call));
  return calls;
}

bool Mailbox::fail_receives(Rank from, const Status& why) {
  auto failed =
      take_receives([&](Rank wanted, const ReceiveCall&) { return wanted == from; });
  for (ReceiveCall& call : failed) end(call, why, from);
  return !failed.empty();
}

void Mailbox::fail_all(const Status& why) {
  for (int32_t r = 0; r < host_->size(); ++r) on_peer_lost(Rank(r), why);
  fail_receives(kNoRank, why);
}

bool Mailbox::on_time(TimePoint now, const Status& silent) {
  if (deadlines_.empty() || *deadlines_.begin() > now) return false;
  bool has_blamed_silent = false;
  const auto late = [&](const char* what, Rank peer, int32_t tag,
                        const std::string& how) {
    const auto who =
        peer == kNoRank ? std::string("any rank") : concat("rank ", peer.value);
    const auto call =
        concat(what, " ", who, ", tag ", tag, " on rank ", host_->self().value);
    if (peer == kNoRank && silent.has_failed()) {
      has_blamed_silent = true;
      return silent.with_context(call + ": Timed out");
    }
    return Status(Code::kTimedOut, concat(call, ": Timed out ", how), peer);
  };
  const auto sends = outbound_;
  for (const auto& [key, out] : sends) {
    if (out->call().deadline > now) continue;
    out->end(late("send to", out->call().to, out->call().tag,
                  out->is_posted() ? "with a part of it still here"
                                   : "before a receive for it was known"));
  }
  auto expired = take_receives(
      [now](Rank, const ReceiveCall& call) { return call.deadline <= now; });
  for (ReceiveCall& call : expired) {
    const Rank from = call.from.value_or(kNoRank);
    end(call, late("recv from", from, call.tag, what_waits(from)), from);
  }
  for (size_t r = 0; r < sources_.size(); ++r) {
    for (auto& [number, in] : sources_[r].inbound) {
      if (!in.receive || !in.receive->on_done || in.receive->deadline > now) continue;
      const Rank peer(static_cast<int32_t>(r));
      const auto how = concat("with ", in.got, " of ", in.total, " bytes here");
      give_up(peer, number, in, late("recv from", peer, in.tag, how));
    }
  }
  return has_blamed_silent;
}

// Describes the messages that wait here for other tags, for a receive from `from`.
std::string Mailbox::what_waits(Rank from) const {
  size_t count = 0;
  std::optional<int32_t> tag;
  const Place first(from, std::numeric_limits<int32_t>::min(), 0);
  for (auto it = waiting_.lower_bound(first);
       it != waiting_.end() && std::get<Rank>(it->first) == from; ++it) {
    ++count;
    if (!tag) tag = std::get<int32_t>(it->first);
  }
  std::string text = "before a message for it was read here";
  if (tag) {
    text += concat("; ", count, " with another tag, such as ", *tag, ", waited here");
  }
  return text;
}

bool Mailbox::is_busy() const {
  const auto is_coming = [](const auto& entry) {
    return entry.second.receive && entry.second.receive->on_done;
  };
  return !outbound_.empty() ||
         std::any_of(sources_.begin(), sources_.end(), [&](const PeerMessages& src) {
           return std::any_of(src.inbound.begin(), src.inbound.end(), is_coming);
         });
}

std::optional<TimePoint> Mailbox::next_look() const {
  if (deadlines_.empty()) return std::nullopt;
  return *deadlines_.begin();
}

}  // namespace aikido::collectives

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "engine/peer.h"

#include <algorithm>
#include <string>
#include <utility>

namespace aikido::engine {

using transport::FrameHeader;
using transport::FrameKind;
using transport::OutMessage;

namespace {

constexpr size_t kMaxAbortText = 1024;

// Memory of a text on its way out.
class Text final : public transport::SendOwner {
 public:
  explicit Text(std::string text) : text_(std::move(text)) {}
  const std::string& text() const { return text_; }
  void on_sent(uint32_t) override {}

 private:
  std::string text_;
};

}  // namespace

// A frame that says nothing but its header: while one waits there is no need for a
// second, because the header is filled in when it goes.
class Peer::Notice final : public transport::SendOwner {
 public:
  explicit Notice(Peer* peer) : peer_(peer) {}
  void on_sent(uint32_t) override {
    is_out = false;
    peer_->tell_called();  // the number may have grown since
  }
  bool is_out = false;

 private:
  Peer* peer_;
};

Peer::Peer(const uint32_t* epoch, const uint64_t* called)
    : epoch_(epoch), own_called_(called), notice_(std::make_shared<Notice>(this)) {}

transport::MessageId Peer::send(OutMessage message) {
  if (!link_) {
    // Never connected: the call fails by itself or by its deadline.
    if (message.owner) message.owner->on_sent(message.token);
    return 0;
  }
  told_called_ = *own_called_;
  return link_->send(std::move(message));
}

void Peer::finish() {
  if (link_) link_->finish();
}

void Peer::close() {
  if (link_) link_->close();
}

void Peer::drop_incoming(FrameKind kind, uint64_t number) {
  const FrameHeader* incoming = link_ ? link_->incoming() : nullptr;
  if (incoming != nullptr && incoming->seq == number && incoming->kind == kind) {
    link_->drop_incoming();
  }
}

bool Peer::note_called(uint64_t called) {
  if (called <= called_) return false;
  called_ = called;
  return true;
}

void Peer::tell_called() {
  if (told_called_ < *own_called_) notify(FrameKind::kCalled);
}

void Peer::notify(FrameKind kind) {
  if (!link_ || !lost || std::exchange(notice_->is_out, true)) return;
  OutMessage m;
  m.header.kind = kind;
  m.header.epoch = *epoch_;
  m.priority = transport::kControlPriority;
  m.owner = notice_;
  send(std::move(m));
}

void Peer::send_abort(Seq seq, const Status& why) {
  const auto text = std::make_shared<Text>(why.message().substr(0, kMaxAbortText));
  OutMessage m;
  m.header.kind = FrameKind::kAbort;
  m.header.epoch = *epoch_;
  m.header.seq = seq.value;
  m.header.shard = static_cast<uint16_t>(why.code());
  m.header.tag = why.culprit().value;
  m.header.total_bytes = text->text().size();
  m.data = reinterpret_cast<const std::byte*>(text->text().data());
  m.bytes = text->text().size();
  m.priority = transport::kControlPriority;
  m.owner = text;
  send(std::move(m));
}

std::byte* Peer::place_abort(const FrameHeader& header) {
  abort_text_.resize(std::min<uint64_t>(header.total_bytes, kMaxAbortText));
  if (header.offset + header.payload_bytes > abort_text_.size()) return nullptr;
  return abort_text_.data() + header.offset;
}

std::optional<Status> Peer::read_abort(const FrameHeader& header, int32_t size) const {
  if (header.offset + header.payload_bytes != header.total_bytes) return std::nullopt;
  const bool is_known =
      header.shard > 0 && header.shard <= static_cast<uint16_t>(Code::kInternal);
  return Status(is_known ? static_cast<Code>(header.shard) : Code::kAborted,
                std::string(reinterpret_cast<const char*>(abort_text_.data()),
                            abort_text_.size()),
                header.tag >= 0 && header.tag < size ? Rank(header.tag) : kNoRank);
}

}  // namespace aikido::engine

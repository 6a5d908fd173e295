// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "transport/frame_receiver.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "base/copy.h"
#include "transport/shm/shm_buffer_pool.h"

namespace aikido::transport {
namespace {

// Limit of the bytes that one link reads per turn, before other links continue.
constexpr size_t kMostRead = 1 << 20;
// Small frames are read together through this buffer; long payloads bypass it.
constexpr size_t kInBytes = 64 << 10;
constexpr size_t kControlInBytes = 8 << 10;
// Bytes that may follow a long payload into that buffer: enough for the next header.
// More would often be payload, which would be copied twice.
constexpr size_t kInBesidePayload = 4 << 10;

}  // namespace

FrameReceiver::FrameReceiver(ByteStream* stream, Lane lane, Rank peer,
                             LinkHandler* handler)
    : stream_(stream),
      peer_(peer),
      handler_(handler),
      in_(lane == Lane::kBulk ? kInBytes : kControlInBytes) {}

std::optional<Status> FrameReceiver::read_some() {
  size_t budget = kMostRead;
  while (budget > 0 && !is_stopped_) {
    std::array<iovec, 2> parts;
    size_t num_parts = 0;
    size_t wanted = 0;
    const bool is_direct = reading_ == Reading::kPayload && payload_ != nullptr;
    if (is_direct) {
      wanted = payload_left_;
      parts[num_parts++] = {payload_, payload_left_};
    }
    if (in_begin_ == in_end_) in_begin_ = in_end_ = 0;
    // At most a part of a header or extension is moved: less than a kilobyte.
    if (in_.size() - in_end_ < in_.size() / 2) {
      std::memmove(in_.data(), in_.data() + in_begin_, in_end_ - in_begin_);
      in_end_ -= std::exchange(in_begin_, 0);
    }
    const size_t beside = is_direct ? std::min(kInBesidePayload, in_.size() - in_end_)
                                    : in_.size() - in_end_;
    parts[num_parts++] = {in_.data() + in_end_, beside};
    const size_t room = wanted + beside;
    auto read = stream_->read(std::span(parts.data(), num_parts), caching());
    if (!read) return loss(read.status());
    const size_t got = *read;
    if (got == 0) return std::nullopt;
    budget -= std::min(budget, got);
    const size_t direct = std::min(got, wanted);
    in_end_ += got - direct;
    if (direct > 0) end_payload(direct);
    while (!is_stopped_ && parse()) {
    }
    if (rejection_) return std::exchange(rejection_, std::nullopt);
    if (got < room) return std::nullopt;  // nothing is left, so the next read is saved
  }
  return std::nullopt;
}

// Contributions are folded at once and so read again soon. All other payloads are
// results; large ones do not fit into the caches.
Caching FrameReceiver::caching() const {
  return reading_ == Reading::kPayload && header_.kind != FrameKind::kContrib
             ? caching_of(header_.total_bytes)
             : Caching::kKept;
}

// Takes one header, extension or piece of payload out of in_. Returns false if more
// bytes are needed.
bool FrameReceiver::parse() {
  const size_t have = in_end_ - in_begin_;
  switch (reading_) {
    case Reading::kHeader: {
      if (have < kHeaderBytes) return false;
      auto header = decode(std::span<const std::byte, kHeaderBytes>(
          in_.data() + in_begin_, kHeaderBytes));
      if (!header) return reject(header.status().message());
      in_begin_ += kHeaderBytes;
      header_ = *header;
      if (header_.extension_bytes == 0) return begin_frame({});
      reading_ = Reading::kExtension;
      return true;
    }
    case Reading::kExtension: {
      if (have < header_.extension_bytes) return false;
      const std::span<const std::byte> extension(in_.data() + in_begin_,
                                                 header_.extension_bytes);
      in_begin_ += header_.extension_bytes;
      return begin_frame(extension);
    }
    case Reading::kPayload: {
      const size_t n = std::min(have, payload_left_);
      if (n == 0) return false;
      if (payload_ != nullptr) std::memcpy(payload_, in_.data() + in_begin_, n);
      in_begin_ += n;
      end_payload(n);
      return true;
    }
  }
  return false;
}

// Null: the peer has leased no such payload.
const std::byte* FrameReceiver::find_block() const {
  const LeaseHolder* lease_holder = stream_->lease_holder();
  return lease_holder == nullptr
             ? nullptr
             : lease_holder->find(header_.block, header_.payload_bytes);
}

Buffer FrameReceiver::keep_incoming() {
  if (!may_keep_ || is_kept_ || is_stopped_) return {};
  Buffer kept = stream_->lease_holder()->keep(header_.block, header_.payload_bytes);
  is_kept_ = bool(kept);
  return kept;
}

bool FrameReceiver::begin_frame(std::span<const std::byte> extension) {
  const std::byte* lies = nullptr;
  if (header_.block != 0) {
    lies = find_block();
    if (lies == nullptr)
      return reject(
          concat("a frame names block ", int{header_.block}, ", which was not leased"));
  }
  may_keep_ = lies != nullptr;
  is_kept_ = false;
  auto place = handler_->on_frame_begin(peer_, header_, extension);
  may_keep_ = false;
  // The handler may have closed the link.
  if (is_stopped_) return false;
  if (!place) return reject(place.status().message());
  payload_ = *place;
  payload_left_ = header_.payload_bytes;
  reading_ = Reading::kPayload;
  if (lies != nullptr) {
    if (payload_ != nullptr && !is_kept_)
      copy(payload_, lies, payload_left_, caching());
    // Copied, discarded or kept: only a kept block is returned later, by its buffer.
    if (!is_kept_) stream_->lease_holder()->give_back(header_.block);
    end_payload(payload_left_);
  } else if (payload_left_ == 0) {
    end_payload(0);
  }
  return !is_stopped_;
}

// `bytes` more of the payload are in place.
void FrameReceiver::end_payload(size_t bytes) {
  payload_left_ -= bytes;
  if (payload_ != nullptr) payload_ += bytes;
  if (payload_left_ > 0) return;
  reading_ = Reading::kHeader;
  payload_ = nullptr;
  handler_->on_frame(peer_, header_);
}

// Without a message of its own the stream has ended in an orderly way.
Status FrameReceiver::loss(const Status& of_stream) {
  is_stopped_ = true;
  const std::string& why = of_stream.message();
  return {Code::kPeerLost,
          why.empty() ? concat("rank ", peer_.value, " closed the connection")
                      : concat("receiving from rank ", peer_.value, " failed: ", why),
          peer_};
}

// Returns false: nothing more is read.
bool FrameReceiver::reject(const std::string& nonsense) {
  is_stopped_ = true;
  rejection_ =
      Status(Code::kProtocol, concat("rank ", peer_.value, ": ", nonsense), peer_);
  return false;
}

}  // namespace aikido::transport

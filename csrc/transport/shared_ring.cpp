// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "transport/shared_ring.h"

#include <algorithm>
#include <cstring>

namespace aikido::transport {
namespace {

// The other side may begin with what is there while the rest is being copied.
constexpr size_t kPublishBytes = 64 << 10;

// Calls `copy(at, n)` for at most `n` bytes from place `begin` of a ring, in two pieces
// where it turns.
template <class Copy>
void in_pieces(uint64_t begin, size_t n, size_t ring_bytes, Copy&& copy) {
  const size_t at = begin & (ring_bytes - 1);
  const size_t first = std::min(n, ring_bytes - at);
  copy(at, first);
  if (first < n) copy(size_t{0}, n - first);
}

}  // namespace

std::optional<size_t> RingWriter::write(std::span<const iovec> parts) {
  const uint64_t used = written_ - state_->read.load();
  if (used > bytes_) return std::nullopt;
  if (used == 0) {
    origin_ = written_;
    state_->origin.store(origin_, std::memory_order_relaxed);
  }
  size_t room = bytes_ - used;
  size_t taken = 0;
  size_t unpublished = 0;
  const auto publish = [&] {
    state_->written.store(written_);
    unpublished = 0;
  };
  for (const iovec& part : parts) {
    const auto* from = static_cast<const std::byte*>(part.iov_base);
    size_t left = std::min(part.iov_len, room);
    while (left > 0) {
      const size_t n = std::min(left, kPublishBytes - unpublished);
      in_pieces(written_ - origin_, n, bytes_, [&](size_t at, size_t piece) {
        std::memcpy(data_ + at, from, piece);
        from += piece;
      });
      written_ += n;
      unpublished += n;
      left -= n;
      room -= n;
      taken += n;
      if (unpublished == kPublishBytes) publish();
    }
  }
  if (unpublished > 0) publish();
  return taken;
}

bool RingWriter::must_wake_reader(Haste haste, bool has_blocks) {
  const uint32_t sleeps = state_->reader_sleeps.load();
  const bool can_wait = (sleeps == kPatient && haste < Haste::kServed) ||
                        (sleeps == kCalm && haste < Haste::kAwaited);
  if (can_wait && has_blocks && has_room() && state_->is_ended.load() == 0)
    return false;
  return sleeps != 0 && state_->reader_sleeps.exchange(0) != 0;
}

size_t RingWriter::room() const {
  const uint64_t used = written_ - state_->read.load();
  return used > bytes_ ? bytes_ : bytes_ - used;
}

bool RingWriter::has_room() const {
  const uint64_t used = written_ - state_->read.load();
  return used <= bytes_ / 2 || used > bytes_;
}

std::optional<size_t> RingReader::read(std::span<const iovec> parts, Caching caching) {
  const uint64_t ready = state_->written.load() - read_;
  if (ready > bytes_) return std::nullopt;
  // Published with `written`; whatever it is, in_pieces() stays in the ring.
  const uint64_t origin = state_->origin.load(std::memory_order_relaxed);
  size_t left = ready;
  for (const iovec& part : parts) {
    auto* to = static_cast<std::byte*>(part.iov_base);
    const size_t n = std::min(part.iov_len, left);
    in_pieces(read_ - origin, n, bytes_, [&](size_t at, size_t piece) {
      copy(to, data_ + at, piece, caching);
      to += piece;
    });
    caching = Caching::kKept;
    read_ += n;
    left -= n;
    if (left == 0) break;
  }
  const size_t taken = ready - left;
  if (taken > 0) state_->read.store(read_);
  return taken;
}

// In this order: what was written before the end was said is seen.
bool RingReader::is_at_end() const {
  return state_->is_ended.load() != 0 && !has_bytes();
}

bool RingReader::must_wake_writer() {
  const uint64_t used = state_->written.load() - read_;
  return used <= bytes_ / 2 && state_->writer_sleeps.load() != 0 &&
         state_->writer_sleeps.exchange(0) != 0;
}

bool RingReader::rest(Need need) {
  using enum Need;
  state_->reader_sleeps.store(need == kNow    ? kAsleep
                              : need == kNews ? kCalm
                                              : kPatient);
  if (!has_bytes() && state_->is_ended.load() == 0) return true;
  wake();
  return false;
}

}  // namespace aikido::transport

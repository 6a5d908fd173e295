// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "transport/shm/shared_ring.h"

#include <algorithm>
#include <cstring>

namespace aikido::transport {
namespace {

// After each part of this size the reader can begin, while the rest is copied.
constexpr size_t kPublishBytes = 64 << 10;

// Calls `copy(at, n)` for at most `n` bytes from position `begin` of a ring, in two
// pieces if they wrap around.
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
  // The reader's number is not trusted: this would be more than the ring holds.
  if (used > bytes_) return std::nullopt;
  // See Note [small messages stay in the cache].
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

bool RingWriter::must_wake_reader(Urgency urgency, bool has_blocks) {
  const uint32_t sleeps = state_->reader_sleeps.load();
  // The flag states for which data the reader may sleep on; kAsleep wakes for
  // everything.
  const bool can_wait = (sleeps == kPatient && urgency < Urgency::kServed) ||
                        (sleeps == kCalm && urgency < Urgency::kAwaited);
  if (can_wait && has_blocks && has_room() && state_->is_ended.load() == 0)
    return false;
  // exchange(), because the reader may have woken by itself: only one side clears the
  // flag.
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
  // Published together with `written`. in_pieces() stays inside the ring for any value.
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

// The order matters: the end is read first, so all bytes that were written before it
// are seen.
bool RingReader::is_at_end() const {
  return state_->is_ended.load() != 0 && !has_bytes();
}

bool RingReader::must_wake_writer() {
  const uint64_t used = state_->written.load() - read_;
  return used <= bytes_ / 2 && state_->writer_sleeps.load() != 0 &&
         state_->writer_sleeps.exchange(0) != 0;
}

bool RingReader::rest(WakePolicy policy) {
  using enum WakePolicy;
  state_->reader_sleeps.store(policy == kNow    ? kAsleep
                              : policy == kNews ? kCalm
                                                : kPatient);
  // Checked after the flag was stored; see Note [sleeping and waking].
  if (!has_bytes() && state_->is_ended.load() == 0) return true;
  wake();
  return false;
}

}  // namespace aikido::transport

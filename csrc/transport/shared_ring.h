// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// A ring of bytes in memory that two processes share: one writes, the other reads.
// Neither trusts the other's numbers, and neither ever waits here.
//
// Note [who wakes whom]
// Who is about to sleep says so in the ring, and looks once more; who has written
// (read) looks there afterwards. All four steps are sequentially consistent, so at
// least one of the two sees the other: nobody sleeps over bytes (room), and nobody is
// woken who is awake. A reader that awaits nothing is not woken either for what has no
// haste: it looks by itself once it needs that. Nor is one that needs what another ring
// brings first, unless others wait for it: it looks here once it has that.
//
// Note [small messages stay in the cache]
// A ring that turned all the time would touch all of its memory, however little is in
// it at once, and so push the rest out of the caches: of 64 KiB between 4 ranks each
// copy went to memory that was last used many calls ago. A writer that finds the ring
// empty begins at its first byte again, and says so in `origin`. The reader looks there
// after it has seen bytes, and as long as it has not read them the writer leaves it as
// it is.
//
// One writer and one reader, each on one thread.

#include <sys/uio.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "base/copy.h"
#include "transport/need.h"

namespace aikido::transport {

inline constexpr size_t kCacheLine = 64;

// In the shared memory; all zero is an empty ring.
struct RingState {
  // By the writer: bytes since the beginning, and whether those are all.
  alignas(kCacheLine) std::atomic<uint64_t> written;
  std::atomic<uint32_t> is_ended;
  // By the writer, while the ring is empty: the byte with that number is the first one.
  std::atomic<uint64_t> origin;
  // By the reader: bytes since the beginning.
  alignas(kCacheLine) std::atomic<uint64_t> read;
  // Set by the one that goes to sleep (kAsleep, kCalm, kPatient), taken back by either.
  alignas(kCacheLine) std::atomic<uint32_t> reader_sleeps;
  alignas(kCacheLine) std::atomic<uint32_t> writer_sleeps;
};
// PROTOCOL.md has them.
static_assert(sizeof(RingState) == 4 * kCacheLine);
static_assert(std::atomic<uint64_t>::is_always_lock_free);
inline constexpr uint32_t kAsleep = 1;
// The same, of a reader that needs nothing without haste, or nothing but what it is to
// serve, while half of the ring is free.
inline constexpr uint32_t kCalm = 2;
inline constexpr uint32_t kPatient = 3;

class RingWriter {
 public:
  // `bytes`, a power of two, are at `data`.
  RingWriter(RingState* state, std::byte* data, size_t bytes)
      : state_(state), data_(data), bytes_(bytes) {}

  // Takes what there is room for; empty: the reader's number is nonsense.
  std::optional<size_t> write(std::span<const iovec> parts);
  // Nothing follows.
  void end() { state_->is_ended.store(1); }
  // The reader sleeps over what was written, or over the end: wake it up. `has_blocks`:
  // there is room for much beside the ring, too.
  bool must_wake_reader(Haste haste, bool has_blocks = true);

  // What the next write takes at least; all of the ring where it is to say what is
  // wrong.
  size_t room() const;
  // There is room for much: worth a wake-up.
  bool has_room() const;
  // From now on the reader wakes us when there is. Look once more before you sleep.
  void rest() { state_->writer_sleeps.store(kAsleep); }
  void wake() { state_->writer_sleeps.store(0, std::memory_order_relaxed); }

 private:
  RingState* state_;
  std::byte* data_;
  size_t bytes_;
  uint64_t written_ = 0;
  uint64_t origin_ = 0;
};

class RingReader {
 public:
  RingReader(RingState* state, const std::byte* data, size_t bytes)
      : state_(state), data_(data), bytes_(bytes) {}

  // Fills the parts with what is here; empty: the writer's number is nonsense.
  // `caching` is of the first part.
  std::optional<size_t> read(std::span<const iovec> parts,
                             Caching caching = Caching::kKept);
  // All was read, and nothing follows.
  bool is_at_end() const;
  // The writer sleeps, and there is much room by now: wake it up.
  bool must_wake_writer();

  bool has_bytes() const { return state_->written.load() != read_; }
  // From now on the writer wakes us for what is needed, or when half of the ring is
  // full; false: there is something already.
  bool rest(Need need);
  void wake() { state_->reader_sleeps.store(0, std::memory_order_relaxed); }

 private:
  RingState* state_;
  const std::byte* data_;
  size_t bytes_;
  uint64_t read_ = 0;
};

}  // namespace aikido::transport

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Ring of bytes in memory that two processes share: one writes, the other reads.
// Neither trusts the other's numbers, and neither ever waits in these functions.
//
// Note [sleeping and waking]
// A reader or writer that is about to sleep sets a flag in the ring and then checks the
// ring once more. After a write (read), the other side checks that flag. All four steps
// are sequentially consistent, so at least one side sees the other. So no side sleeps
// while there are bytes (room), and no awake side is woken. A reader that waits for
// nothing is not woken for data without urgency; it reads this data when it needs it. A
// reader that first needs data of another ring is not woken either, unless other
// members wait for it. It checks this ring once it has that data.
//
// Note [small messages stay in the cache]
// A ring that always advances touches all of its memory, even if it holds few bytes at
// a time, and displaces other data from the caches. With messages of 64 KiB between 4
// ranks, each copy went to memory that was last used many calls ago. So a writer that
// finds the ring empty begins again at its first byte, and publishes that in `origin`.
// The reader reads `origin` after it has seen bytes. The writer does not change
// `origin` until these bytes are read.
//
// One writer and one reader, each on one thread.

#include <sys/uio.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "base/copy.h"
#include "transport/loop/wake_policy.h"

namespace aikido::transport {

inline constexpr size_t kCacheLine = 64;

// State in the shared memory. All zero is an empty ring.
struct RingState {
  // Written by the writer: bytes since the beginning, and whether no more follow.
  alignas(kCacheLine) std::atomic<uint64_t> written;
  std::atomic<uint32_t> is_ended;
  // Written by the writer, while the ring is empty: number of the byte that is at the
  // start of the memory.
  std::atomic<uint64_t> origin;
  // Written by the reader: bytes since the beginning.
  alignas(kCacheLine) std::atomic<uint64_t> read;
  // Set by the side that goes to sleep (kAsleep, kCalm, kPatient), and cleared by
  // either side.
  alignas(kCacheLine) std::atomic<uint32_t> reader_sleeps;
  alignas(kCacheLine) std::atomic<uint32_t> writer_sleeps;
};
// PROTOCOL.md has the layout.
static_assert(sizeof(RingState) == 4 * kCacheLine);
static_assert(std::atomic<uint64_t>::is_always_lock_free);
inline constexpr uint32_t kAsleep = 1;
// Sleeping reader that needs no data without urgency (kCalm), or only data that others
// wait for (kPatient), while half of the ring is free.
inline constexpr uint32_t kCalm = 2;
inline constexpr uint32_t kPatient = 3;

class RingWriter {
 public:
  // The `bytes` of the ring, a power of two, are at `data`.
  RingWriter(RingState* state, std::byte* data, size_t bytes)
      : state_(state), data_(data), bytes_(bytes) {}

  // Writes as many bytes as there is room for. Empty: the reader's number is invalid.
  std::optional<size_t> write(std::span<const iovec> parts);
  // Ends the stream.
  void end() { state_->is_ended.store(1); }
  // True if the reader sleeps although there are bytes for it, or the end, and must be
  // woken. `has_blocks`: there is also much room beside the ring.
  bool must_wake_reader(Urgency urgency, bool has_blocks = true);

  // Bytes that the next write takes at least. The whole ring if that write will report
  // an error.
  size_t room() const;
  // There is enough room to be worth a wake-up.
  bool has_room() const;
  // From now on the reader wakes the writer when there is room. Check once more before
  // sleeping.
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

  // Fills the parts with available bytes. Empty: the writer's number is invalid.
  // `caching` is for the first part.
  std::optional<size_t> read(std::span<const iovec> parts,
                             Caching caching = Caching::kKept);
  // All bytes are read, and no more follow.
  bool is_at_end() const;
  // True if the writer sleeps, and there is enough room to wake it.
  bool must_wake_writer();

  bool has_bytes() const { return state_->written.load() != read_; }
  // From now on the writer wakes the reader for the data of `need`, or when half of the
  // ring is full. False: there is such data already.
  bool rest(WakePolicy policy);
  void wake() { state_->reader_sleeps.store(0, std::memory_order_relaxed); }

 private:
  RingState* state_;
  const std::byte* data_;
  size_t bytes_;
  uint64_t read_ = 0;
};

}  // namespace aikido::transport

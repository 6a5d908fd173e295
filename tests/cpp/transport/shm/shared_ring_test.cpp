// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "transport/shm/shared_ring.h"

#include <thread>

#include "harness/catch.h"
#include "harness/recording_handler.h"

using namespace aikido;
using namespace aikido::testing;
using namespace aikido::transport;

namespace {

struct Ring {
  explicit Ring(size_t bytes) : data(bytes) {}
  size_t write(std::span<const std::byte> bytes) {
    const iovec part{const_cast<std::byte*>(bytes.data()), bytes.size()};
    return writer.write({&part, 1}).value();
  }
  std::vector<std::byte> read(size_t most, Caching caching = Caching::kKept) {
    std::vector<std::byte> got(most);
    const iovec part{got.data(), most};
    got.resize(reader.read({&part, 1}, caching).value());
    return got;
  }

  RingState state{};
  std::vector<std::byte> data;
  RingWriter writer{&state, data.data(), data.size()};
  RingReader reader{&state, data.data(), data.size()};
};

}  // namespace

TEST_CASE("a ring returns the written bytes, wherever it wraps", "[unit]") {
  Ring ring(64);
  const auto data = pattern(1000);
  std::vector<std::byte> got;
  size_t put = 0;
  for (size_t n = 1; got.size() < data.size(); n = (n * 7) % 61 + 1) {
    const auto next = std::span(data).subspan(put, std::min(n, data.size() - put));
    put += ring.write(next);
    const auto part =
        ring.read((n * 5) % 67 + 1, n % 2 == 0 ? Caching::kKept : Caching::kPassed);
    got.insert(got.end(), part.begin(), part.end());
  }
  CHECK((got == data));
  CHECK(ring.read(1).empty());
}

TEST_CASE("an empty ring is used from its first byte on", "[unit]") {
  Ring ring(64);
  const auto first = [&] { return ring.data[0]; };
  for (const size_t n : {40, 64, 1, 30}) {
    const auto data = pattern(n, static_cast<unsigned>(n));
    ring.write(data);
    CHECK(first() == data[0]);
    CHECK((ring.read(n) == data));
  }
  SECTION("a ring with data is used behind its data") {
    const auto data = pattern(103, 7);
    ring.write(std::span(data).first(40));
    CHECK(ring.read(39).size() == 39);
    CHECK(ring.write(std::span(data).subspan(40)) == 63);
    CHECK(first() == data[64]);
    CHECK((ring.read(64) == std::vector(data.begin() + 39, data.end())));
  }
}

TEST_CASE("parts are taken and filled in order", "[unit]") {
  Ring ring(64);
  const auto data = pattern(80);
  const auto part = [&](size_t at, size_t n) {
    return iovec{const_cast<std::byte*>(data.data()) + at, n};
  };
  const std::array<iovec, 4> out{part(0, 10), part(10, 0), part(10, 30), part(40, 40)};
  CHECK(ring.writer.write(out) == 64);
  std::vector<std::byte> got(64);
  const std::array<iovec, 3> in{iovec{got.data(), 3}, iovec{got.data() + 3, 50},
                                iovec{got.data() + 53, 11}};
  CHECK(ring.reader.read(in) == 64);
  CHECK(std::equal(got.begin(), got.end(), data.begin()));
}

TEST_CASE("the end is seen after the last byte", "[unit]") {
  Ring ring(64);
  CHECK_FALSE(ring.reader.is_at_end());
  ring.write(pattern(5));
  ring.writer.end();
  CHECK_FALSE(ring.reader.is_at_end());
  ring.read(5);
  CHECK(ring.reader.is_at_end());
}

TEST_CASE("only sleeping sides are woken, and no side sleeps while there is work",
          "[unit]") {
  Ring ring(64);
  const Urgency urgency = GENERATE(Urgency::kNone, Urgency::kServed);
  CHECK(ring.reader.rest(WakePolicy::kNow));
  ring.write(pattern(1));
  CHECK(ring.writer.must_wake_reader(urgency));
  CHECK_FALSE(ring.writer.must_wake_reader(urgency));  // once
  CHECK_FALSE(ring.reader.rest(WakePolicy::kNow));
  CHECK_FALSE(ring.writer.must_wake_reader(urgency));  // it did not sleep
  ring.read(1);
  CHECK(ring.reader.rest(WakePolicy::kNow));
  ring.reader.wake();
  ring.write(pattern(1));
  CHECK_FALSE(ring.writer.must_wake_reader(urgency));
  ring.read(1);
  ring.writer.end();
  CHECK_FALSE(ring.reader.rest(WakePolicy::kNow));
}

TEST_CASE("a reader that needs other data first is woken to serve, or if half is full",
          "[unit]") {
  Ring ring(64);
  CHECK(ring.reader.rest(WakePolicy::kLater));
  ring.write(pattern(32));
  CHECK_FALSE(ring.writer.must_wake_reader(Urgency::kAwaited));
  SECTION("data that other members wait for this member to handle") {
    CHECK(ring.writer.must_wake_reader(Urgency::kServed));
  }
  SECTION("more than half of the ring") {
    ring.write(pattern(1));
    CHECK(ring.writer.must_wake_reader(GENERATE(Urgency::kNone, Urgency::kAwaited)));
  }
}

TEST_CASE("a sleeping side is woken for the end", "[unit]") {
  Ring ring(64);
  CHECK(ring.reader.rest(
      GENERATE(WakePolicy::kNow, WakePolicy::kNews, WakePolicy::kLater)));
  ring.writer.end();
  CHECK(ring.writer.must_wake_reader(Urgency::kNone));
}

TEST_CASE(
    "a reader that waits for nothing is woken for urgent data, or if half is full",
    "[unit]") {
  Ring ring(64);
  CHECK(ring.reader.rest(WakePolicy::kNews));
  ring.write(pattern(32));
  CHECK_FALSE(ring.writer.must_wake_reader(Urgency::kNone));
  SECTION("urgent data") {
    CHECK(ring.writer.must_wake_reader(Urgency::kAwaited));
  }
  SECTION("more than half of the ring") {
    ring.write(pattern(1));
    CHECK(ring.writer.must_wake_reader(Urgency::kNone));
  }
  SECTION("the reader reads before it sleeps, and awaits data by then") {
    CHECK_FALSE(ring.reader.rest(WakePolicy::kNews));
    ring.read(32);
    CHECK(ring.reader.rest(WakePolicy::kNow));
    ring.write(pattern(1));
    CHECK(ring.writer.must_wake_reader(Urgency::kNone));
  }
}

TEST_CASE("a writer is woken when half of the ring is free", "[unit]") {
  Ring ring(64);
  ring.write(pattern(64));
  ring.writer.rest();
  CHECK_FALSE(ring.writer.has_room());
  ring.read(31);
  CHECK_FALSE(ring.reader.must_wake_writer());
  ring.read(1);
  CHECK(ring.writer.has_room());
  CHECK(ring.reader.must_wake_writer());
  CHECK_FALSE(ring.reader.must_wake_writer());
}

TEST_CASE("invalid numbers of the other side are detected", "[unit]") {
  Ring ring(64);
  std::byte byte{};
  const iovec part{&byte, 1};
  ring.state.read.store(1);
  CHECK_FALSE(ring.writer.write({&part, 1}).has_value());
  CHECK(ring.writer.has_room());  // so that the reader checks the ring
  CHECK(ring.writer.room() == 64);
  ring.state.read.store(0);
  ring.state.written.store(65);
  CHECK_FALSE(ring.reader.read({&part, 1}).has_value());
}

TEST_CASE("two threads exchange megabytes through a page, and both sleep at times",
          "[unit]") {
  Ring ring(4096);
  constexpr size_t kBytes = 8 << 20;
  const auto data = pattern(kBytes);
  std::atomic<int> reader_bell{0}, writer_bell{0};
  const auto wait_for = [](std::atomic<int>& bell) {
    while (bell.exchange(0) == 0) std::this_thread::yield();
  };
  std::thread writer([&] {
    for (size_t at = 0; at < kBytes;) {
      const size_t n =
          ring.write(std::span(data).subspan(at, std::min<size_t>(kBytes - at, 3000)));
      at += n;
      if (ring.writer.must_wake_reader(Urgency::kAwaited)) reader_bell.store(1);
      if (n > 0) continue;
      ring.writer.rest();
      if (ring.writer.has_room())
        ring.writer.wake();
      else
        wait_for(writer_bell);
    }
  });
  std::vector<std::byte> got;
  while (got.size() < kBytes) {
    const auto part = ring.read(1700);
    got.insert(got.end(), part.begin(), part.end());
    if (ring.reader.must_wake_writer()) writer_bell.store(1);
    if (part.empty() && ring.reader.rest(WakePolicy::kNow)) wait_for(reader_bell);
  }
  writer.join();
  CHECK((got == data));
}

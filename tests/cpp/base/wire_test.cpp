// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "base/wire.h"

#include <cstdint>

#include "harness/catch.h"

namespace aikido {
namespace {

struct Pair {
  uint16_t a, b;
  friend bool operator==(const Pair&, const Pair&) = default;
};

TEST_CASE("values come back in the order in which they were appended") {
  std::vector<std::byte> out;
  append_value(out, uint8_t{1});
  append_value(out, uint32_t{0x05040302});
  append_value(out, int64_t{-1});
  append_value(out, Pair{6, 7});
  REQUIRE(out.size() == 17);
  // Little endian, without padding.
  for (size_t i = 0; i < 5; ++i) CHECK(out[i] == static_cast<std::byte>(i + 1));
  std::span<const std::byte> bytes(out);
  WireReader reader{bytes};
  CHECK(reader.take<uint8_t>() == 1);
  CHECK(reader.take<uint32_t>() == 0x05040302);
  CHECK(reader.take<int64_t>() == -1);
  CHECK(reader.take<Pair>() == Pair{6, 7});
  CHECK(reader.ok);
  CHECK(bytes.empty());
}

TEST_CASE("a reader that has reached the end reads nothing more") {
  std::vector<std::byte> out;
  append_value(out, uint32_t{7});
  std::span<const std::byte> bytes(out);
  WireReader reader{bytes};
  CHECK(reader.take<uint64_t>() == 0);
  CHECK_FALSE(reader.ok);
  // A value that would fit is not read either, because its position is unknown by now.
  CHECK(reader.take<uint32_t>() == 0);
  CHECK_FALSE(reader.ok);
  CHECK(bytes.size() == 4);
}

TEST_CASE("a count is refused if fewer bytes follow than it announces") {
  struct Row {
    uint32_t count;
    size_t bytes_each, rest, expected;
    bool ok;
  };
  for (const Row& row : {
           Row{0, 8, 0, 0, true},
           Row{2, 8, 16, 2, true},
           Row{2, 8, 17, 2, true},
           Row{2, 8, 15, 0, false},
           Row{1, 1, 0, 0, false},
           Row{UINT32_MAX, 16, 100, 0, false},
           Row{1u << 31, size_t{1} << 33, 64, 0, false},
       }) {
    std::vector<std::byte> out;
    append_value(out, row.count);
    out.resize(out.size() + row.rest);
    std::span<const std::byte> bytes(out);
    WireReader reader{bytes};
    INFO("count " << row.count << " of " << row.bytes_each);
    CHECK(reader.take_count(row.bytes_each) == row.expected);
    CHECK(reader.ok == row.ok);
  }
  std::span<const std::byte> nothing;
  WireReader reader{nothing};
  CHECK(reader.take_count(1) == 0);
  CHECK_FALSE(reader.ok);
}

}  // namespace
}  // namespace aikido

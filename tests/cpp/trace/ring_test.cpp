// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "trace/ring.h"

#include <thread>

#include "harness/catch.h"

using namespace aikido;
using trace::Ring;
using trace::Span;

namespace {

Span numbered(uint64_t number) {
  Span span;
  span.number = number;
  span.begin_ns = static_cast<int64_t>(3 * number);
  return span;
}

}  // namespace

TEST_CASE("a full ring keeps the first spans and counts the dropped ones") {
  Ring ring(3);
  for (uint64_t i = 1; i <= 5; ++i) CHECK(ring.push(numbered(i)) == (i <= 3));
  std::vector<Span> spans;
  ring.pop_all(spans);
  CHECK(spans == std::vector<Span>{numbered(1), numbered(2), numbered(3)});
  CHECK(ring.take_dropped() == 2);
  CHECK(ring.take_dropped() == 0);
  CHECK(ring.push(numbered(6)));
  ring.pop_all(spans);
  CHECK(spans.size() == 4);
  CHECK(spans.back() == numbered(6));
}

TEST_CASE("a reader beside the writer gets each span once, complete and in order") {
  Ring ring(64);
  constexpr uint64_t kCount = 20'000;
  std::thread writer([&] {
    for (uint64_t i = 0; i < kCount;) i += ring.push(numbered(i)) ? 1 : 0;
  });
  std::vector<Span> spans;
  while (spans.size() < kCount) ring.pop_all(spans);
  writer.join();
  bool is_right = spans.size() == kCount;
  for (uint64_t i = 0; i < kCount && is_right; ++i) is_right = spans[i] == numbered(i);
  CHECK(is_right);
}

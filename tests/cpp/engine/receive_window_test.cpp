// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "engine/receive_window.h"

#include <random>

#include "engine/send_window.h"
#include "harness/catch.h"

using aikido::engine::ReceiveWindow;
using aikido::engine::SendWindow;

namespace {
constexpr uint64_t kWindow = 16 << 10;
constexpr uint64_t kCharge = SendWindow::kMessageCharge;
}  // namespace

TEST_CASE("twice the window may arrive for collectives that are not called") {
  ReceiveWindow window(kWindow);
  for (uint64_t seq = 2; seq < 2 + 2 * kWindow / kCharge; ++seq)
    CHECK(window.admit(seq, 0, 0));
  CHECK_FALSE(window.admit(100, 0, 0));
  // Called collectives make room.
  CHECK(window.admit(100, 0, 10));
}

TEST_CASE("the charge of a collective in several messages counts once") {
  ReceiveWindow window(kWindow);
  for (uint64_t seq = 2; seq < 2 + 2 * kWindow / kCharge; ++seq)
    for (int part = 0; part < 3; ++part) CHECK(window.admit(seq, 0, 0));
  CHECK(window.ahead_bytes() == 2 * kWindow);
  CHECK_FALSE(window.admit(5, 1, 0));
}

TEST_CASE("the next collective may have any size, and so may a single one") {
  ReceiveWindow window(kWindow);
  CHECK(window.admit(8, 1 << 30, 7));
  CHECK(window.admit(9, 1 << 30, 7));
  // It may have ended at its sender, but a second one is too much.
  CHECK(window.admit(10, 1, 7));
  CHECK_FALSE(window.admit(11, 1 << 30, 7));
  CHECK(window.admit(7, 1 << 30, 7));
  CHECK(window.ahead_bytes() == (uint64_t{3} << 30) + 1 + 4 * kCharge);
}

TEST_CASE("data that is not kept any more does not count") {
  ReceiveWindow window(kWindow);
  CHECK(window.admit(3, 1 << 20, 1));
  window.on_over(3);
  window.on_over(3);
  CHECK(window.ahead_bytes() == 0);
  CHECK(window.admit(4, 1000, 1));
  CHECK(window.admit(5, 1000, 1));
}

TEST_CASE("a sender that keeps to its window is never refused") {
  std::mt19937 random(7);
  for (int run = 0; run < 200; ++run) {
    SendWindow sender(kWindow);
    ReceiveWindow receiver(kWindow);
    uint64_t called = 0, known = 0, next = 1;
    for (int i = 0; i < 300; ++i) {
      const auto dice = random() % 8;
      if (dice == 0) called += random() % 3;
      if (dice == 1) {
        known = called;
        REQUIRE(sender.on_called(known).empty());  // nothing is held back
      }
      if (dice == 2) next += random() % 3;
      const uint64_t seq = next > 2 && random() % 4 == 0 ? next - random() % 3 : next;
      const uint64_t bytes =
          random() % 16 == 0 ? random() % (4 * kWindow) : random() % 2000;
      if (sender.admit(seq, bytes)) REQUIRE(receiver.admit(seq, bytes, called));
    }
  }
}

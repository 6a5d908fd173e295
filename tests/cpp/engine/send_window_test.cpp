// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "engine/send_window.h"

#include <random>

#include "harness/catch.h"

using namespace aikido;
using engine::SendWindow;
using Ids = std::vector<transport::MessageId>;

namespace {
constexpr uint64_t kCharge = SendWindow::kMessageCharge;
constexpr uint64_t kWindow = 10 * kCharge;

// Sends a message or holds it back. Returns true if it was sent.
bool send(SendWindow& window, uint64_t seq, uint64_t bytes, uint64_t id) {
  if (window.admit(seq, bytes)) return true;
  window.hold(seq, bytes, id);
  return false;
}
}  // namespace

TEST_CASE("calls that the peer has made are not counted") {
  SendWindow window(kWindow);
  window.on_called(5);
  for (uint64_t seq = 1; seq <= 5; ++seq) CHECK(send(window, seq, 1 << 30, seq));
  CHECK(window.ahead_bytes() == 0);
  CHECK_FALSE(window.ask().has_value());
}

TEST_CASE("messages beyond the window wait, and go in order as the peer calls") {
  SendWindow window(kWindow);
  CHECK(send(window, 1, 4 * kCharge, 1));
  CHECK(send(window, 2, 3 * kCharge, 2));        // 9 with the charges
  CHECK_FALSE(send(window, 4, 1 * kCharge, 4));  // 11
  CHECK_FALSE(send(window, 5, 0, 5));            // would fit, but is behind
  CHECK_FALSE(send(window, 3, 6 * kCharge, 3));
  CHECK(window.is_holding());
  CHECK(window.on_called(1) == Ids{});         // 4 in it, 3 needs 7
  CHECK(window.on_called(2) == Ids{3, 4, 5});  // 7, 9, 10
  CHECK(window.ahead_bytes() == kWindow);
  CHECK(window.on_called(5) == Ids{});
  CHECK(window.ahead_bytes() == 0);
}

TEST_CASE("data of the next call of the peer is sent for any size") {
  SendWindow window(kWindow);
  CHECK(send(window, 1, 100 * kCharge, 1));
  CHECK(send(window, 1, 100 * kCharge, 2));
  CHECK_FALSE(send(window, 2, 0, 3));
  CHECK_FALSE(send(window, 3, 100 * kCharge, 4));
  CHECK(window.on_called(1) == Ids{3});
  CHECK(send(window, 2, 50 * kCharge, 5));  // also past held messages
  CHECK(window.on_called(2) == Ids{4});
}

TEST_CASE("data of later calls does not hold back the next call") {
  SendWindow window(kWindow);
  CHECK(send(window, 3, 8 * kCharge, 3));
  CHECK_FALSE(send(window, 2, 8 * kCharge, 2));  // posted late
  CHECK(window.on_called(1) == Ids{2});
}

TEST_CASE("a single collective may be larger than the window") {
  SendWindow window(kWindow);
  CHECK(send(window, 7, 50 * kCharge, 1));  // 1 to 6 send nothing to this peer
  CHECK(send(window, 7, 50 * kCharge, 2));
  CHECK_FALSE(send(window, 8, 0, 3));
}

TEST_CASE("the peer is asked once when the window is half full") {
  SendWindow window(kWindow);
  CHECK(send(window, 1, 3 * kCharge, 1));
  CHECK_FALSE(window.ask().has_value());  // 4
  CHECK(send(window, 2, 0, 2));           // 5
  CHECK(window.ask() == 1);
  CHECK(send(window, 3, 0, 3));
  CHECK_FALSE(window.ask().has_value());
  CHECK(window.on_called(1).empty());  // 2 are left
  CHECK_FALSE(window.ask().has_value());
  CHECK(send(window, 4, 9 * kCharge, 4) == false);
  CHECK(window.ask() == 2);
}

TEST_CASE("messages that have ended, were cancelled or given up make room") {
  SendWindow window(kWindow);
  CHECK(send(window, 1, 3 * kCharge, 1));
  CHECK(send(window, 2, 4 * kCharge, 2));  // 9
  CHECK_FALSE(send(window, 3, 2 * kCharge, 3));
  CHECK_FALSE(send(window, 4, 0, 4));
  CHECK_FALSE(send(window, 5, 0, 5));
  CHECK(window.on_over(9) == Ids{});
  window.forget(4);
  CHECK(window.on_over(2) == Ids{3, 5});
  CHECK(window.ahead_bytes() == 8 * kCharge);
  CHECK(send(window, 6, 2 * kCharge, 6) == false);
  CHECK(window.clear() == Ids{6});
  CHECK_FALSE(window.is_holding());
}

TEST_CASE("random messages stay within the window, and no message is held for ever") {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    std::mt19937_64 random(seed);
    SendWindow window(kWindow);
    uint64_t called = 0, next = 1, num_out = 0, num_sent = 0;
    const uint64_t last = 100;
    uint64_t largest = 0;
    while (called < last) {
      if (next <= last && random() % 3 != 0) {
        const uint64_t bytes = random() % (3 * kCharge);
        largest = std::max(largest, bytes + kCharge);
        num_sent += send(window, next, bytes, next) ? 1 : 0;
        ++next;
      } else if (next > called + 1) {
        called += 1 + random() % (next - called - 1);
        num_out += window.on_called(called).size();
      }
      INFO("seed " << seed << ", called " << called);
      // In addition to the window there is only the data of the next call.
      REQUIRE(window.ahead_bytes() <= kWindow + largest);
    }
    CHECK(num_out + num_sent == last);
    CHECK_FALSE(window.is_holding());
    CHECK(window.ahead_bytes() == 0);
  }
}

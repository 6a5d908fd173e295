// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "transport/gong.h"

#include <unistd.h>

#include <array>

#include "harness/catch.h"

using aikido::transport::Gong;

namespace {

struct Other final : Gong::Sleeper {
  bool hears_gong() const override { return hears; }
  bool sleeps() const override { return is_asleep; }
  void ring() override { ++num_rings; }
  bool hears = true;
  bool is_asleep = false;  // and not due
  int num_rings = 0;
};

struct Three {
  Three() {
    for (Other& other : others) gong.add(&other);
  }
  // How often it was struck since it was last asked.
  uint64_t num_strikes() {
    uint64_t times = 0;
    return ::read(gong.fd(), &times, sizeof times) == sizeof times ? times : 0;
  }
  std::array<int, 3> rings() const {
    return {others[0].num_rings, others[1].num_rings, others[2].num_rings};
  }
  Gong gong;
  std::array<Other, 3> others;
};

using Rings = std::array<int, 3>;

}  // namespace

TEST_CASE("several are woken up at once, and one by itself", "[unit]") {
  Three three;
  three.gong.strike();
  CHECK(three.num_strikes() == 0);
  CHECK_FALSE(three.gong.is_due());
  for (Other& other : three.others) three.gong.ring_later(&other);
  CHECK(three.gong.is_due());
  three.gong.strike();
  CHECK(three.num_strikes() == 1);
  CHECK(three.rings() == Rings{0, 0, 0});
  CHECK_FALSE(three.gong.is_due());

  three.gong.ring_later(&three.others[1]);
  three.gong.strike();
  CHECK(three.num_strikes() == 0);
  CHECK(three.rings() == Rings{0, 1, 0});
}

TEST_CASE("who does not hear the gong, or would in vain, has the others rung for",
          "[unit]") {
  Three three;
  const auto wake_two = [&] {
    three.gong.ring_later(&three.others[0]);
    three.gong.ring_later(&three.others[2]);
    three.gong.strike();
    return three.num_strikes();
  };
  // Awake: it looks soon in any case.
  CHECK(wake_two() == 1);
  CHECK(three.rings() == Rings{0, 0, 0});
  three.others[1].is_asleep = true;
  CHECK(wake_two() == 0);
  CHECK(three.rings() == Rings{1, 0, 1});
  three.others[1].hears = false;
  CHECK(wake_two() == 1);
  three.others[2].hears = false;
  CHECK(wake_two() == 0);
  CHECK(three.rings() == Rings{2, 0, 2});
}

TEST_CASE("who goes is woken up at once, and never again", "[unit]") {
  Three three;
  three.gong.ring_later(&three.others[0]);
  three.gong.ring_later(&three.others[1]);
  three.gong.remove(&three.others[1]);
  CHECK(three.rings() == Rings{0, 1, 0});
  three.others[1].is_asleep = true;
  three.gong.ring_later(&three.others[2]);
  three.gong.strike();
  CHECK(three.num_strikes() == 1);
  three.gong.remove(&three.others[1]);
  CHECK(three.rings() == Rings{0, 1, 0});
}

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "engine/held_calls.h"

#include "harness/catch.h"

using namespace aikido;
using collectives::Hold;
using engine::HeldCalls;

namespace {

struct Case {
  std::vector<int> entered;
  HeldCalls calls{[](std::function<void()> work) { work(); }};

  std::shared_ptr<Hold> hold(int number) {
    auto hold = std::make_shared<Hold>();
    calls.enter(hold, [this, number] { entered.push_back(number); });
    return hold;
  }
  void call(int number) {
    calls.enter(nullptr, [this, number] { entered.push_back(number); });
  }
};

}  // namespace

TEST_CASE("a call without a hold enters at once, unless one before it waits") {
  Case c;
  c.call(1);
  CHECK(c.entered == std::vector{1});
  const auto second = c.hold(2);
  c.call(3);
  CHECK(c.entered == std::vector{1});
  CHECK(c.calls.size() == 2);
  CHECK(c.calls.release(*second, Status::ok()));
  CHECK(c.entered == std::vector{1, 2, 3});
  CHECK(c.calls.size() == 0);
}

TEST_CASE("calls enter in their order, in whatever order they are released") {
  Case c;
  const auto first = c.hold(1), second = c.hold(2);
  CHECK(c.calls.release(*second, Status::ok()));
  CHECK(c.entered.empty());
  CHECK(c.calls.release(*first, Status(Code::kAborted, "the device failed")));
  CHECK(c.entered == std::vector{1, 2});
  CHECK(first->failure.code() == Code::kAborted);
  CHECK(second->failure.is_ok());
  // Only the first release counts.
  CHECK_FALSE(c.calls.release(*first, Status::ok()));
  CHECK(first->failure.code() == Code::kAborted);
}

TEST_CASE("calls that are given up enter with the failure") {
  Case c;
  const auto first = c.hold(1), second = c.hold(2);
  c.call(3);
  c.calls.release(*second, Status::ok());
  c.calls.give_up(Status(Code::kAborted, "shut down"));
  CHECK(c.entered == std::vector{1, 2, 3});
  CHECK(first->failure.code() == Code::kAborted);
  CHECK(second->failure.is_ok());
}

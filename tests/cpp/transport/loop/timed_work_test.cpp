// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "transport/loop/timed_work.h"

#include "harness/catch.h"

using namespace aikido;
using namespace aikido::transport;

namespace {

constexpr Duration kMs = std::chrono::milliseconds(1);
constexpr TimePoint kStart{std::chrono::seconds(100)};

struct Alarm final : Timed {
  void on_time(TimePoint now) override {
    ran_at.push_back(now);
    due = next;
  }
  std::optional<TimePoint> next_look() const override {
    ++num_asked;
    return due;
  }
  std::optional<TimePoint> due, next;
  std::vector<TimePoint> ran_at;
  mutable int num_asked = 0;
};

}  // namespace

TEST_CASE("work runs when it is due, and the earliest due time is known") {
  TimedWork work;
  CHECK(work.next_due() == TimePoint::max());
  Alarm early, late;
  early.due = kStart;
  late.due = kStart + 2 * kMs;
  work.add(&late);
  work.add(&early);
  CHECK(work.next_due() == kStart);
  work.run(kStart);
  CHECK(early.ran_at == std::vector{kStart});
  CHECK(late.ran_at.empty());
  CHECK(work.next_due() == kStart + 2 * kMs);
  work.remove(&late);
  work.run(kStart + 5 * kMs);
  CHECK(late.ran_at.empty());
}

TEST_CASE("a spinning loop asks once in kMostLate, and before it sleeps") {
  TimedWork work;
  Alarm alarm;
  alarm.due = kStart + Duration(1);
  work.add(&alarm);
  work.run(kStart);
  const int asked = alarm.num_asked;
  work.run(kStart + Duration(1));
  work.run(kStart + TimedWork::kMostLate - Duration(1));
  CHECK(alarm.num_asked == asked);
  CHECK(alarm.ran_at.empty());
  SECTION("the time has passed") {
    work.run(kStart + TimedWork::kMostLate);
  }
  SECTION("the loop is about to sleep") {
    work.ask_soon();
    work.run(kStart + Duration(1));
  }
  CHECK(alarm.ran_at.size() == 1);
}

TEST_CASE("work that is due may add and remove work") {
  struct Adder final : Timed {
    explicit Adder(TimedWork* w) : work(w) {}
    void on_time(TimePoint) override {
      work->add(&added);
      work->remove(this);
    }
    std::optional<TimePoint> next_look() const override { return kStart; }
    TimedWork* work;
    Alarm added;
  };
  TimedWork work;
  Adder adder(&work);
  adder.added.due = kStart + kMs;
  work.add(&adder);
  work.run(kStart);
  CHECK(work.next_due() == kStart + kMs);
}

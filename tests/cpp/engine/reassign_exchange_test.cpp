// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "engine/reassign_exchange.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <future>
#include <map>
#include <thread>

#include "harness/catch.h"
#include "harness/members.h"

using namespace aikido;
using namespace aikido::testing;
using engine::ClaimedItem;
using engine::ReassignExchange;
using engine::ReassignExchangeOptions;
using reassign::ItemSpec;
using reassign::NamedItem;
using std::chrono::microseconds;
using std::chrono::milliseconds;

namespace {

const Duration kPatience = seconds(20);

std::unique_ptr<ReassignExchange> open(const Member& member,
                                       const ReassignExchangeOptions& options = {},
                                       uint64_t number = 0) {
  auto made = ReassignExchange::open(member.communicator, number, options);
  INFO(made.status().message());
  REQUIRE(made.is_ok());
  return std::move(*made);
}

// Members with one exchange each.
struct Exchanges {
  explicit Exchanges(int32_t size, const ReassignExchangeOptions& options = {})
      : members(connect_all(size)) {
    for (const Member& member : members) exchanges.push_back(open(member, options));
  }
  ReassignExchange& operator[](size_t rank) { return *exchanges[rank]; }

  std::vector<Member> members;
  std::vector<std::unique_ptr<ReassignExchange>> exchanges;
};

// `count` items with labels from `first` on, of cost 1.
std::vector<ItemSpec> items(uint64_t first, uint32_t count) {
  std::vector<ItemSpec> list;
  for (uint32_t i = 0; i < count; ++i) list.push_back({first + i, 1});
  return list;
}

// Runs a step to its end. An item takes `took`. Returns the labels of its items.
std::vector<uint64_t> run_step(ReassignExchange& exchange, uint64_t step,
                               std::vector<ItemSpec> own, Duration took) {
  std::vector<uint64_t> labels;
  if (exchange.begin(step, std::move(own)).has_failed()) return labels;
  while (true) {
    auto claimed = exchange.claim(kPatience);
    if (!claimed || !*claimed) return labels;
    std::this_thread::sleep_for(took);
    labels.push_back((*claimed)->item.spec.label);
    if (exchange.finished(took).has_failed()) return labels;
  }
}

constexpr uint32_t kOwn = 8;

// All members run step `step` with kOwn items each. Returns the labels by rank.
std::vector<std::vector<uint64_t>> run_all(Exchanges& all, uint64_t step,
                                           const std::vector<Duration>& took) {
  std::vector<std::future<std::vector<uint64_t>>> running;
  for (size_t r = 0; r < took.size(); ++r)
    running.push_back(std::async(std::launch::async, [&all, &took, step, r] {
      return run_step(all[r], step, items(100 * step + 10 * r, kOwn), took[r]);
    }));
  std::vector<std::vector<uint64_t>> labels;
  for (auto& one : running) labels.push_back(one.get());
  return labels;
}

std::vector<uint64_t> lost_labels(ReassignExchange& exchange) {
  std::vector<uint64_t> labels;
  const auto losses = *exchange.take_losses();
  for (const reassign::Loss& loss : losses) labels.push_back(loss.spec.label);
  return labels;
}

std::vector<uint64_t> joined(const std::vector<std::vector<uint64_t>>& labels) {
  std::vector<uint64_t> all;
  for (const auto& some : labels) all.insert(all.end(), some.begin(), some.end());
  std::sort(all.begin(), all.end());
  return all;
}

std::vector<uint64_t> labels_of_step(uint64_t step, size_t size) {
  std::vector<uint64_t> all;
  for (uint64_t r = 0; r < size; ++r)
    for (uint64_t i = 0; i < kOwn; ++i) all.push_back(100 * step + 10 * r + i);
  return all;
}

// Two members, of which the first waits for an answer of the second, whose progress
// thread is stopped.
struct Waiting {
  Waiting() : two(2, patient()) {
    for (uint64_t step = 0; step < 2; ++step)
      run_all(two, step, {milliseconds(1), milliseconds(1)});
    REQUIRE(two[1].begin(2, items(0, 100)).is_ok());
    REQUIRE(two[1].claim(kPatience).is_ok());
    std::this_thread::sleep_for(milliseconds(100));  // until its news are here
    std::promise<void> stands;
    two.members[1].engine->post([&stands, gate = gate.get_future().share()] {
      stands.set_value();
      gate.wait();
    });
    stands.get_future().wait();
    REQUIRE(two[0].begin(2, items(100, 1)).is_ok());
    const auto own = two[0].claim(kPatience);
    REQUIRE(own.is_ok());
    claiming = std::async(std::launch::async, [this] {
      (void)two[0].finished(milliseconds(1));
      return two[0].claim(kPatience).status();
    });
    std::this_thread::sleep_for(milliseconds(50));
    REQUIRE(claiming.wait_for(seconds(0)) == std::future_status::timeout);
  }
  ~Waiting() { gate.set_value(); }
  static ReassignExchangeOptions patient() {
    ReassignExchangeOptions options;
    options.reassign.answer_timeout = seconds(15);
    return options;
  }

  std::promise<void> gate;
  Exchanges two;
  std::future<Status> claiming;
};

}  // namespace

TEST_CASE("items move from a slow to the fast members, each to one of them", "[tcp]") {
  constexpr size_t kSize = 3;
  Exchanges all(kSize);
  const std::vector<Duration> took = {milliseconds(12), milliseconds(2),
                                      milliseconds(2)};
  for (uint64_t step = 0; step < 4; ++step) {
    const TimePoint begin = SystemClock().now();
    const auto labels = run_all(all, step, took);
    const Duration needed = SystemClock().now() - begin;
    REQUIRE(joined(labels) == labels_of_step(step, kSize));
    if (step == 0) continue;  // the speeds are not known yet
    CHECK(labels[0].size() < kOwn);
    CHECK(needed < 8 * took[0]);
    size_t num_taken = 0;
    std::map<uint64_t, int> takers;
    for (size_t r = 0; r < kSize; ++r) {
      const auto report = *all[r].report();
      CHECK(report.step == step);
      CHECK(report.num_begun_with == kOwn);
      CHECK(report.num_messages > 0);
      CHECK(report.num_bytes >= 40 * report.num_messages);
      num_taken += report.taken.size();
      for (const NamedItem& item : report.taken) {
        CHECK(item.id.step == step);
        CHECK(item.spec.label == 100 * step +
                                     10 * static_cast<uint64_t>(item.id.owner.value) +
                                     item.id.index);
      }
    }
    CHECK(num_taken == all[0].report()->num_given + all[1].report()->num_given +
                           all[2].report()->num_given);
    for (size_t r = 0; r < kSize; ++r) {
      REQUIRE(all[r].outcome(step, RankSet::full(kSize)).is_ok());
      CHECK(all[r].take_losses()->empty());
    }
  }
}

TEST_CASE("an owner learns that a helper was skipped, and which items that lost",
          "[tcp]") {
  Exchanges all(2);
  const std::vector<Duration> took = {milliseconds(12), milliseconds(2)};
  for (uint64_t step = 0; step < 3; ++step) run_all(all, step, took);
  const auto taken = all[1].report()->taken;
  REQUIRE_FALSE(taken.empty());
  RankSet without(2);
  without.insert(Rank(0));
  for (auto& exchange : all.exchanges) REQUIRE(exchange->outcome(2, without).is_ok());
  std::vector<uint64_t> expected, lost;
  const auto losses = *all[0].take_losses();
  for (const reassign::Loss& loss : losses) {
    CHECK(loss.id.step == 2);
    CHECK(loss.helper == Rank(1));
    CHECK(loss.reason == reassign::Loss::Reason::kSkipped);
    lost.push_back(loss.spec.label);
  }
  for (const NamedItem& item : taken) expected.push_back(item.spec.label);
  std::sort(lost.begin(), lost.end());
  std::sort(expected.begin(), expected.end());
  CHECK(lost == expected);
  CHECK(all[0].take_losses()->empty());
}

TEST_CASE("a member that dies in a step does not block the others", "[tcp]") {
  constexpr size_t kSize = 3;
  Exchanges all(kSize);
  const std::vector<Duration> took(kSize, milliseconds(3));
  for (uint64_t step = 0; step < 2; ++step) run_all(all, step, took);
  // It has begun the step, and the others want to help it.
  REQUIRE(all[2].begin(2, items(900, 50)).is_ok());
  REQUIRE(all[2].claim(kPatience).is_ok());
  std::thread death([&all] {
    std::this_thread::sleep_for(milliseconds(20));
    all.exchanges[2].reset();
    all.members[2] = {};
  });
  const TimePoint begin = SystemClock().now();
  const auto labels = run_all(all, 2, {took[0], took[1]});
  const Duration needed = SystemClock().now() - begin;
  death.join();
  CHECK(needed < seconds(1));
  // Items that it took are lost, and the others are computed.
  RankSet survivors(kSize);
  survivors.insert(Rank(0));
  survivors.insert(Rank(1));
  std::vector<std::vector<uint64_t>> found = labels;
  for (size_t r = 0; r < 2; ++r) {
    std::erase_if(found[r], [](uint64_t label) { return label >= 900; });
    REQUIRE(all[r].outcome(2, survivors).is_ok());
    found.push_back(lost_labels(all[r]));
  }
  CHECK(joined(found) == labels_of_step(2, 2));
  // Without it the next step works.
  const auto next = run_all(all, 3, {took[0], took[1]});
  CHECK(joined(next) == labels_of_step(3, 2));
}

TEST_CASE("a waiting claim ends at once", "[tcp]") {
  Waiting waiting;
  Status expected;
  const TimePoint begin = SystemClock().now();
  SECTION("with stop()") {
    waiting.two[0].stop();
    const Status ended = waiting.claiming.get();
    CHECK(ended.code() == Code::kAborted);
    CHECK(ended.message().find("it was stopped; make a new one") != std::string::npos);
    waiting.two[0].stop();
    CHECK(waiting.two[0].begin(9, {}).code() == Code::kAborted);
  }
  SECTION("with the abort of the group") {
    waiting.two.members[0].communicator->abort({Code::kAborted, "given up in a test"});
    const Status ended = waiting.claiming.get();
    CHECK(ended.code() == Code::kAborted);
    CHECK(ended.message().find("given up in a test") != std::string::npos);
  }
  SECTION("with the end of the group") {
    waiting.two.members[0].communicator->shutdown(milliseconds(1));
    CHECK(waiting.claiming.get().code() == Code::kAborted);
  }
  SECTION("with the destruction of the group") {
    waiting.two.members[0].communicator.reset();
    CHECK(waiting.claiming.get().code() == Code::kAborted);
  }
  CHECK(SystemClock().now() - begin < seconds(5));
}

TEST_CASE("a claim ends after its time, and can be repeated", "[tcp]") {
  Waiting waiting;
  waiting.two[0].stop();
  REQUIRE(waiting.claiming.get().has_failed());
  ReassignExchangeOptions options = Waiting::patient();
  auto first = open(waiting.two.members[0], options, 1);
  auto second = open(waiting.two.members[1], options, 1);
  // The first member knows that the second has not begun.
  REQUIRE(first->begin(0, items(0, 1)).is_ok());
  REQUIRE(first->claim(kPatience).is_ok());
  REQUIRE(first->finished(seconds(60)).is_ok());
  REQUIRE_FALSE(first->claim(kPatience)->has_value());  // the patience is over
  REQUIRE(first->begin(1, items(0, 1)).is_ok());
  REQUIRE(first->claim(kPatience).is_ok());
  for (int i = 0; i < 2; ++i) {
    const auto late = first->claim(milliseconds(20));
    CHECK(late.status().code() == Code::kTimedOut);
    CHECK(late.status().message().find("claim() in step 1 Timed out after 20 ms") !=
          std::string::npos);
  }
}

TEST_CASE("a wait for a member that has not begun ends with its death", "[tcp]") {
  Exchanges two(2, Waiting::patient());
  REQUIRE(two[0].begin(0, items(0, 1)).is_ok());
  REQUIRE(two[0].claim(kPatience).is_ok());
  REQUIRE(two[0].finished(seconds(60)).is_ok());  // so its patience becomes 15 s
  REQUIRE_FALSE(two[0].claim(kPatience)->has_value());
  REQUIRE(two[0].begin(1, items(0, 1)).is_ok());
  REQUIRE(two[0].claim(kPatience).is_ok());
  const TimePoint begin = SystemClock().now();
  auto waiting = std::async(std::launch::async,
                            [&two] { return two[0].claim(kPatience).status(); });
  CHECK(waiting.wait_for(milliseconds(50)) == std::future_status::timeout);
  two.exchanges[1].reset();
  two.members[1] = {};
  CHECK(waiting.get().is_ok());
  CHECK(SystemClock().now() - begin < seconds(5));
}

TEST_CASE("a rank that leaves a step gives back what it took", "[tcp]") {
  Exchanges all(2);
  const std::vector<Duration> took = {milliseconds(12), milliseconds(2)};
  for (uint64_t step = 0; step < 2; ++step) run_all(all, step, took);
  std::vector<NamedItem> left;
  auto helper = std::async(std::launch::async, [&] {
    std::vector<uint64_t> labels;
    REQUIRE(all[1].begin(2, items(210, kOwn)).is_ok());
    for (size_t i = 0;; ++i) {
      auto claimed = all[1].claim(kPatience);
      REQUIRE((claimed.is_ok() && claimed.status().is_ok()));
      if (i == 4) break;
      std::this_thread::sleep_for(took[1]);
      REQUIRE(all[1].finished(took[1]).is_ok());
      labels.push_back((*claimed)->item.spec.label);
    }
    left = *all[1].leave();
    return labels;
  });
  auto labels = run_step(all[0], 2, items(200, kOwn), took[0]);
  const std::vector<uint64_t> computed = helper.get();
  const auto num_own = std::count_if(computed.begin(), computed.end(),
                                     [](uint64_t label) { return label >= 210; });
  labels.insert(labels.end(), computed.begin(), computed.end());
  for (const NamedItem& item : left) {
    labels.push_back(item.spec.label);
    CHECK(item.id.step == 2);
    CHECK(item.id.owner == Rank(1));
  }
  CHECK(left.size() == kOwn - static_cast<size_t>(num_own));
  // Items that came back after the end of the owner's step are lost.
  CHECK(joined({labels, lost_labels(all[0])}) == labels_of_step(2, 2));
  CHECK_FALSE(all[1].claim(kPatience)->has_value());
}

TEST_CASE("news go out while the training thread computes", "[tcp]") {
  Exchanges all(2);
  const std::vector<Duration> took(2, milliseconds(2));
  for (uint64_t step = 0; step < 2; ++step) run_all(all, step, took);
  REQUIRE(all[0].begin(2, items(0, kOwn)).is_ok());
  REQUIRE(all[0].claim(kPatience).is_ok());
  const uint32_t before = all[0].report()->num_messages;
  const TimePoint until = SystemClock().now() + kHangs;
  // The item takes much longer than before, which only the timer notices.
  while (all[0].report()->num_messages == before && SystemClock().now() < until)
    std::this_thread::sleep_for(milliseconds(5));
  CHECK(all[0].report()->num_messages > before);
}

TEST_CASE("a rank alone computes its own items", "[tcp]") {
  Exchanges one(1);
  const auto report = *one[0].report();
  CHECK_FALSE(report.step.has_value());
  CHECK(run_step(one[0], 7, items(0, 3), milliseconds(0)) ==
        std::vector<uint64_t>{0, 1, 2});
  CHECK(one[0].report()->step == 7);
  CHECK(one[0].report()->num_messages == 0);
}

TEST_CASE("the last own item of a rank alone is known as the last", "[tcp]") {
  Exchanges one(1);
  REQUIRE(one[0].begin(0, items(5, 2)).is_ok());
  const auto first = **one[0].claim(kPatience), second = **one[0].claim(kPatience);
  CHECK(first.num_left == 1);
  CHECK_FALSE(first.is_last);
  CHECK(second.num_left == 0);
  CHECK(second.is_last);
  CHECK(second.item.id == reassign::ItemId{0, Rank(0), 1});
  CHECK(second.item.spec.label == 6);
}

TEST_CASE("an exchange refuses calls out of order, and says what to do", "[tcp]") {
  Exchanges all(2);
  const auto refused = [](const Status& status, const std::string& text) {
    INFO(status.message());
    CHECK(status.code() == Code::kInvalidArgument);
    CHECK(status.message().find("exchange of items on rank 0 of group \"tcp\"") == 0);
    CHECK(status.message().find(text) != std::string::npos);
  };
  const RankSet both = RankSet::full(2);
  refused(all[0].outcome(0, both), "the outcome of step 0 comes before its end here");
  REQUIRE(all[0].begin(3, items(0, 2)).is_ok());
  refused(all[0].begin(4, {}),
          "step 4 begins, and step 3 is not over; claim its items to the end, or "
          "leave() it");
  refused(all[0].outcome(3, both), "the outcome of step 3 comes before its end here");
  CHECK(all[0].leave()->size() == 2);
  refused(all[0].begin(3, {}), "step 3 begins after step 3; steps must ascend");
  refused(all[0].begin(4, {{0, 1}, {1, 0}}),
          "item 1 of step 4 has cost 0; costs must be above 0 and finite");
  refused(all[0].outcome(3, RankSet::full(5)),
          "an outcome of 5 ranks, and the group has 2");
  REQUIRE(all[0].outcome(3, both).is_ok());
  refused(all[0].outcome(2, both), "the outcome of step 2 comes after that of step 3");
  ReassignExchangeOptions options;
  options.num_helpers = -1;
  CHECK(
      ReassignExchange::open(all.members[0].communicator, 1, options).status().code() ==
      Code::kInvalidArgument);
  options = {};
  options.reassign.answer_timeout = Duration::zero();
  CHECK(
      ReassignExchange::open(all.members[0].communicator, 1, options).status().code() ==
      Code::kInvalidArgument);
}

TEST_CASE("members with different options refuse to go on", "[tcp]") {
  const auto members = connect_all(3);
  std::vector<std::unique_ptr<ReassignExchange>> exchanges;
  ReassignExchangeOptions options;
  for (const Member& member : members) {
    options.num_helpers = member.communicator->options().self == Rank(1) ? 1 : 2;
    exchanges.push_back(open(member, options));
  }
  for (size_t rank = 0; rank < 3; ++rank) {
    const TimePoint until = SystemClock().now() + kHangs;
    Status failure;
    for (uint64_t step = 0; failure.is_ok() && SystemClock().now() < until; ++step) {
      failure = exchanges[rank]->begin(step, {});
      if (failure.is_ok()) failure = exchanges[rank]->claim(milliseconds(10)).status();
      if (failure.code() == Code::kTimedOut) failure = Status::ok();
      if (failure.is_ok()) (void)exchanges[rank]->leave();
      // Steps without any sum do not wait for each other: their news would pile up.
      std::this_thread::sleep_for(milliseconds(1));
    }
    INFO(failure.message());
    CHECK(failure.code() == Code::kInvalidArgument);
    const std::string text =
        rank == 1 ? "helpers is 1 and there 2" : "rank 1: helpers is 2 and there 1";
    CHECK(failure.message().find(text) != std::string::npos);
  }
}

TEST_CASE("an exchange does not keep its group alive, and may outlive it", "[tcp]") {
  Exchanges all(2);
  const std::weak_ptr<Communicator> group = all.members[0].communicator;
  REQUIRE(all[0].begin(0, items(0, 2)).is_ok());
  all.members[0] = {};
  CHECK(group.expired());
  CHECK(all[0].claim(kPatience).status().code() == Code::kAborted);
  CHECK(all[0].leave()->size() == 2);
  CHECK(all[0].report()->step == 0);
  all.exchanges[0].reset();
}

TEST_CASE("a group ends at once after its exchange has stopped", "[tcp]") {
  auto all = std::make_unique<Exchanges>(3);
  run_all(*all, 0, std::vector<Duration>(3, milliseconds(1)));
  for (auto& exchange : all->exchanges) exchange->stop();
  const TimePoint begin = SystemClock().now();
  std::vector<std::future<void>> ends;
  for (Member& member : all->members)
    ends.push_back(std::async(std::launch::async,
                              [&] { member.communicator->shutdown(seconds(10)); }));
  for (auto& end : ends) end.get();
  CHECK(SystemClock().now() - begin < seconds(5));
}

TEST_CASE("a forked child takes no part", "[tcp]") {
  Exchanges all(2);
  REQUIRE(all[0].begin(0, items(0, 2)).is_ok());
  const pid_t child = ::fork();
  if (child == 0) {
    const bool is_refused =
        all[0].claim(kPatience).status().code() == Code::kInvalidArgument &&
        all[0].begin(1, {}).has_failed() && all[0].leave().has_failed() &&
        all[0].report().has_failed();
    all[0].stop();
    all.exchanges[0].reset();
    ::_exit(is_refused ? 7 : 8);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(WEXITSTATUS(status) == 7);
  CHECK((**all[0].claim(kPatience)).item.spec.label == 0);
}

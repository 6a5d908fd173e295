// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "reassign/grant_ledger.h"

#include "harness/catch.h"

using namespace aikido;
using namespace aikido::reassign;

namespace {

constexpr Rank kSelf{0}, kHelper{1}, kOther{2};
constexpr GrantKey kKey{kHelper, 5};
constexpr TimePoint kDeadline{std::chrono::milliseconds(50)};

// A ledger of step 3 with items 6 and 7 at the helper.
struct Fixture {
  GrantLedger ledger{kSelf};
  Fixture() { ledger.add(kKey, 3, 6, {{60, 1}, {70, 2}}, kDeadline); }
  void outcome(bool has_helper) {
    RankSet contributors(3);
    if (has_helper) contributors.insert(kHelper);
    ledger.on_outcome(3, contributors);
  }
  // "6 7 skipped" and the like.
  std::string losses() {
    static const char* kNames[] = {"skipped", "refused", "returned", "doubt"};
    std::string text;
    std::string reason;
    for (const Loss& loss : ledger.take_losses()) {
      CHECK(loss.id.owner == kSelf);
      CHECK(loss.id.step == 3);
      CHECK(loss.helper == kHelper);
      CHECK(loss.spec.label == 10 * loss.id.index);
      text += std::to_string(loss.id.index) + " ";
      reason = kNames[static_cast<size_t>(loss.reason)];
    }
    return text + reason;
  }
};

}  // namespace

TEST_CASE_METHOD(Fixture, "confirmed items of a contributor are in the sum") {
  CHECK(ledger.answers_until(3) == kDeadline);
  CHECK(ledger.open_items(kHelper, 3).empty());
  ledger.confirm(kKey);
  CHECK_FALSE(ledger.answers_until(3));
  CHECK(ledger.open_items(kHelper, 3).size() == 2);
  CHECK(ledger.done(kHelper, 3, 6).is_ok());
  CHECK(ledger.open_items(kHelper, 3).size() == 1);
  outcome(true);
  ledger.helper_gone(kHelper);
  CHECK(losses().empty());
}

TEST_CASE_METHOD(Fixture, "items of a skipped helper are lost once, done or not") {
  ledger.confirm(kKey);
  CHECK(ledger.done(kHelper, 3, 6).is_ok());
  outcome(false);
  CHECK(losses() == "6 7 skipped");
  outcome(false);
  CHECK(ledger.give_back(kHelper, 3, {7, 1}, true)->items.empty());
  CHECK(ledger.refuse(kKey, true).items.empty());
  ledger.helper_gone(kHelper);
  CHECK(losses().empty());
}

TEST_CASE_METHOD(Fixture, "lost items may come back, one after the other") {
  ledger.confirm(kKey);
  outcome(false);
  CHECK(losses() == "6 7 skipped");
  CHECK(ledger.give_back(kHelper, 3, {7, 1}, true)->items.empty());
  CHECK(ledger.give_back(kHelper, 3, {6, 1}, true)->items.empty());
  CHECK(losses().empty());
}

TEST_CASE_METHOD(Fixture, "refused items are computed by the owner in the same step") {
  const ReturnedItems back = ledger.refuse(kKey, false);
  CHECK(back.first == 6);
  CHECK(back.items.size() == 2);
  outcome(false);
  CHECK(losses().empty());
}

TEST_CASE_METHOD(Fixture, "items that are refused after the end of the step are lost") {
  CHECK(ledger.refuse(kKey, true).items.empty());
  CHECK(losses() == "6 7 refused");
  outcome(true);
  CHECK(losses().empty());
}

TEST_CASE_METHOD(Fixture, "a grant without an answer is open beyond the outcome") {
  outcome(true);
  CHECK(losses().empty());
  SECTION("refused") {
    ledger.refuse(kKey, true);
    CHECK(losses() == "6 7 refused");
  }
  SECTION("confirmed") {
    ledger.confirm(kKey);
    ledger.helper_gone(kHelper);
    CHECK(losses().empty());
  }
  SECTION("the helper dies") {
    ledger.helper_gone(kHelper);
    CHECK(losses() == "6 7 doubt");
  }
}

TEST_CASE_METHOD(Fixture, "a helper that dies before the outcome leaves no answer") {
  ledger.helper_gone(kHelper);
  CHECK_FALSE(ledger.answers_until(3));
  SECTION("and has not contributed") {
    outcome(false);
    CHECK(losses() == "6 7 skipped");
  }
  SECTION("and has contributed") {
    outcome(true);
    CHECK(losses() == "6 7 doubt");
  }
}

TEST_CASE_METHOD(Fixture, "the tail of a grant comes back") {
  ledger.confirm(kKey);
  const auto back = ledger.give_back(kHelper, 3, {7, 1}, false).value();
  CHECK(back.first == 7);
  CHECK(back.items.size() == 1);
  outcome(false);
  CHECK(losses() == "6 skipped");
}

TEST_CASE_METHOD(Fixture, "items that come back after the outcome are lost") {
  ledger.confirm(kKey);
  outcome(true);
  CHECK(ledger.give_back(kHelper, 3, {7, 1}, true)->items.empty());
  CHECK(losses() == "7 returned");
}

TEST_CASE_METHOD(Fixture,
                 "open items are in doubt if a helper dies and owes an answer") {
  ledger.confirm(kKey);
  CHECK(ledger.done(kHelper, 3, 6).is_ok());
  ledger.recall(kHelper, 3, 9);
  SECTION("no answer") {
    outcome(true);
    ledger.helper_gone(kHelper);
    CHECK(losses() == "7 doubt");
  }
  SECTION("answered") {
    ledger.end_recall(kHelper, 9);
    outcome(true);
    ledger.helper_gone(kHelper);
    CHECK(losses().empty());
  }
}

TEST_CASE_METHOD(Fixture,
                 "items that a helper does not have are refused by a sentence") {
  ledger.confirm(kKey);
  CHECK(ledger.give_back(kHelper, 3, {6, 1}, false).status().message() ==
        "rank 1 gives back 1 items of step 3 from index 6 on, which are not at the end "
        "of any grant to it; check that all ranks run the same version");
  CHECK(ledger.give_back(kOther, 3, {7, 1}, false).has_failed());
  CHECK(ledger.give_back(kHelper, 3, {4, 4}, false).has_failed());
  CHECK(ledger.done(kHelper, 3, 7).message() ==
        "rank 1 has done item 7 of step 3, which is not the next item of any grant to "
        "it; check that all ranks run the same version");
}

TEST_CASE_METHOD(Fixture, "messages about forgotten steps change nothing") {
  ledger.forget_before(4);
  CHECK_FALSE(ledger.has_granted(kHelper, 3));
  ledger.confirm(kKey);
  CHECK(ledger.refuse(kKey, true).items.empty());
  CHECK(ledger.done(kHelper, 3, 6).is_ok());
  outcome(false);
  CHECK(losses().empty());
}

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
//
// Exclusion of members from a view, and their return.

#include "membership/members.h"

using namespace aikido;
using namespace aikido::membership;
using namespace aikido::membership::testing;
using namespace aikido::testing;
using std::chrono::milliseconds;
using std::chrono::seconds;

namespace {

// Report of a member that has received all results up to operation 5, and keeps none of
// them.
Report received_up_to_5(int32_t size) {
  Report report = report_of(size, 5, 5);
  report.kept = Seq(6);
  return report;
}

}  // namespace

TEST_CASE("a member is left out although it would answer, and is not waited for") {
  Members members(4);
  for (auto& m : members.all) m->verdict = std::nullopt;  // does not rejoin at once
  members[1].change.exclude(Rank(3), members.now);
  members.run(
      milliseconds(30));  // time for the turn of rank 1, but not for an answer time-out
  for (const int32_t r : {0, 1, 2}) {
    CHECK(members.view(r).number == 2);
    CHECK(members.view(r).members == set_of(4, {0, 1, 2}));
  }
  // Rank 3 has learned of its exclusion, and asks to rejoin like any excluded member.
  CHECK(members[3].installed.size() >= 1);
  CHECK(members.sent[ViewStep::kJoin] > 0);
}

TEST_CASE("a member to exclude is asked if the others are no majority") {
  for (const bool is_silent : {false, true}) {
    Members members(4);
    members.is_lost = without({0});
    for (auto& m : members.all) m->verdict = std::nullopt;  // does not rejoin at once
    for (const int32_t r : {2, 3}) members[r].change.exclude(Rank(1), members.now);
    for (const int32_t r : {1, 2, 3}) {
      if (is_silent)
        members[r].change.on_silent(Rank(0), members.now);
      else
        members[r].change.on_lost(Rank(0), members.now);
    }
    members.run(seconds(3));
    for (const int32_t r : {1, 2, 3})
      CHECK(members.view(r).members == set_of(4, {1, 2, 3}));
    members[2].change.exclude(Rank(1), members.now);
    members.run(seconds(1));
    for (const int32_t r : {2, 3}) CHECK(members.view(r).members == set_of(4, {2, 3}));
  }
}

TEST_CASE("a member to exclude is asked if open operations need it") {
  for (const int32_t needed : {2, 3, 4}) {
    for (const bool answers : {true, false}) {
      Members members(4);
      for (auto& m : members.all) m->verdict = std::nullopt;  // does not rejoin at once
      for (const int32_t r : {0, 1, 2}) {
        // If 2 members are needed, ranks 1 and 2 have received the result, so they
        // compute no other.
        const bool has_received = needed == 2 && r > 0;
        if (has_received) members[r].mine = received_up_to_5(4);
        members[r].mine.open = Seq(has_received ? 0 : 5);
        members[r].mine.needed = needed;
      }
      if (!answers) members.is_lost = without({3});
      members[1].change.exclude(Rank(3), members.now);
      members.run(milliseconds(30));  // the turn of rank 1
      const bool is_needed = needed != 3;
      CHECK((members.view(1).number == 2) == (answers || !is_needed));
      // The other members notice, too, that rank 3 does not answer.
      for (const int32_t r : {0, 1, 2})
        if (!answers) members[r].change.on_silent(Rank(3), members.now);
      members.run(seconds(10));
      INFO("needs " << needed << ", " << (answers ? "answers" : "does not"));
      for (const int32_t r : {0, 1, 2})
        CHECK(members.view(r).has(Rank(3)) == (answers && is_needed));
    }
  }
}

TEST_CASE("a member asked late for a result that only it keeps has time to answer") {
  struct Row {
    bool has_received, answers;
  };
  for (const Row& row : {Row{true, true}, Row{true, false}, Row{false, true}}) {
    Members members(5);
    members.is_lost = row.answers ? without({0}) : without({0, 4});
    for (auto& m : members.all) m->verdict = std::nullopt;  // does not rejoin at once
    for (const int32_t r : {2, 3})
      if (row.has_received) members[r].mine = received_up_to_5(5);
    members[1].mine.open = Seq(5);
    members[1].mine.needed = 2;
    members[1].change.exclude(Rank(4), members.now);
    members[1].change.on_silent(Rank(0), members.now);
    // Rank 1 waits for the answer of rank 0 first.
    members.run(milliseconds(99));
    CHECK(members.view(1).number == 1);
    CHECK(members.count(ViewStep::kPrepare) == 2);
    members.run(milliseconds(10));
    INFO(row.has_received << " " << row.answers);
    const bool waits = row.has_received && !row.answers;
    CHECK((members.view(1).number == 1) == waits);
    // The wait takes no longer than for any other silent member.
    members.run(milliseconds(400));
    CHECK(members.view(1).number == 2);
    CHECK(members.view(1).has(Rank(4)) == (row.has_received && row.answers));
  }
}

TEST_CASE("a member that stays out does not ask until it has another state") {
  Members members(4);
  members[3].change.stay_excluded();
  members[1].change.exclude(Rank(3), members.now);
  members.run(seconds(3));
  CHECK(members.sent[ViewStep::kJoin] == 0);
  CHECK_FALSE(members.view(0).has(Rank(3)));
  members[3].change.rejoin(members.now);
  members.run(milliseconds(100));
  CHECK(members.sent[ViewStep::kJoin] == 1);
  for (int32_t r = 0; r < 4; ++r) CHECK(members.view(r).has(Rank(3)));
}

namespace {

// A group of 3 in which rank 2 is excluded and has learned of it.
struct LeftOut : Members {
  LeftOut() : Members(3) {
    is_lost = without({2});
    for (const int32_t r : {0, 1}) (*this)[r].change.on_silent(Rank(2), now);
    run(milliseconds(110));
    REQUIRE(view(0).members == set_of(3, {0, 1}));
    is_lost = nullptr;
    CHECK((*this)[0].change.on_message(Rank(2), prepare_of(Rank(2)), now).is_ok());
  }
};

}  // namespace

namespace {

// Delivers messages until rank 2 knows that it is excluded, and asks to rejoin.
void tell(LeftOut& members) {
  while (!members[2].change.is_removed()) {
    const Letter letter = members.post.front();
    members.post.pop_front();
    REQUIRE(members[letter.to.value]
                .change.on_message(letter.from, letter.message, members.now)
                .is_ok());
  }
}

}  // namespace

TEST_CASE(
    "a member that rejoined with another state reports its results in another view") {
  LeftOut members;
  for (int32_t r = 0; r < 3; ++r) members[r].mine = report_of(3, 5, 5);
  tell(members);
  const auto has = [&](uint64_t acked) {
    members[2].mine.known = members[2].mine.acked = Seq(acked);
    members[2].mine.kept = Seq(acked + 1);
  };
  const auto is_lacking = [&](const View& view) {
    const Held* held = view.held_at(Seq(5), 0);
    return held != nullptr && held->lacking.contains(Rank(2));
  };
  has(4);
  members.is_lost = [](const Letter& letter) {
    return letter.message.step == ViewStep::kJoin && letter.to == Rank(1);
  };
  members[2].change.rejoin(members.now);
  members.run(milliseconds(50));
  REQUIRE(members.agree({0, 1, 2}));
  REQUIRE(members[2].installed.size() == 3);
  CHECK(members[2].installed[1].has(Rank(2)));
  CHECK_FALSE(is_lacking(members[2].installed[1]));
  CHECK(is_lacking(members[2].installed[2]));
}

TEST_CASE("a refusal of an earlier state has no effect") {
  LeftOut members;
  for (const int32_t r : {0, 1})
    members[r].verdict = Status(Code::kPeerLost, "too far behind");
  Member& out = members[2];
  tell(members);
  out.change.rejoin(members.now);  // its first question is on its way
  members[1].verdict = Status::ok();
  members.run(milliseconds(20));
  CHECK(out.refusals.empty());
  CHECK(members.view(2).has(Rank(2)));
}

TEST_CASE("a refusal from before the member heard of another view has no effect") {
  const bool has_dropped = GENERATE(false, true);
  LeftOut members;
  Member& out = members[2];
  out.mine.received = {{Seq(5), 0, 77}};
  tell(members);
  REQUIRE(members.post.back().message.step == ViewStep::kJoin);
  ViewMessage refusal;
  refusal.step = ViewStep::kRefuse;
  refusal.view = members.view(2).number;
  refusal.ballot = members.post.back().message.ballot;
  refusal.text = "it has seen another result";
  // Rank 2 has rejoined and was excluded again meanwhile, so the refused result may be
  // gone.
  ViewMessage newer;
  newer.step = ViewStep::kView;
  newer.proposed = members.view(2);
  newer.view = newer.proposed->number += 2;
  if (has_dropped) out.mine.received.clear();
  CHECK(out.change.on_message(Rank(0), newer, members.now).is_ok());
  CHECK(out.change.on_message(Rank(1), refusal, members.now).is_ok());
  CHECK(out.refusals.empty());
  CHECK(out.change.next_look());
  // The state of its present question may be refused.
  refusal.ballot = members.post.back().message.ballot;
  CHECK(out.change.on_message(Rank(1), refusal, members.now).is_ok());
  CHECK(out.refusals.size() == 1);
}

TEST_CASE("an excluded member is told, rejoins, and counts as a new member") {
  LeftOut members;
  members.run(milliseconds(20));
  REQUIRE(members.agree({0, 1, 2}));
  CHECK(members.view(2).number == 3);
  CHECK(members.view(2).members == RankSet::full(3));
  CHECK(members.view(2).seats[2] == Seat{3, Seq(6)});
  CHECK_FALSE(members.view(2).is_owner(Rank(2)));
  REQUIRE(members[2].installed.size() == 2);
  CHECK_FALSE(members[2].installed[0].has(Rank(2)));
}

TEST_CASE("an excluded member that must not return gets the reason, and asks no more") {
  LeftOut members;
  const Status why(Code::kPeerLost, "it has seen another result\x01");
  members[0].verdict = members[1].verdict = why;
  members.run(seconds(5));
  CHECK(members[2].refusals == std::vector<std::string>{"it has seen another result?"});
  CHECK(members.count(ViewStep::kJoin) == 1);
  CHECK(members[2].change.is_removed());
  CHECK_FALSE(members[2].change.next_look());
  CHECK(members.view(0).number == 2);
}

TEST_CASE("all members learn that a member was refused, until it has another state") {
  LeftOut members;
  members[0].verdict = members[1].verdict = Status(Code::kPeerLost, "another result");
  members.run(seconds(1));
  for (const int32_t r : {0, 1}) CHECK(members[r].change.needs_state(Rank(2)));
  CHECK_FALSE(members[2].change.needs_state(Rank(0)));
  members[0].verdict = members[1].verdict = Status::ok();
  members[2].change.rejoin(members.now);
  members.run(seconds(1));
  CHECK_FALSE(members[2].change.is_removed());
  for (const int32_t r : {0, 1}) CHECK_FALSE(members[r].change.needs_state(Rank(2)));
}

TEST_CASE("a member without an answer to its join asks the next member") {
  LeftOut members;
  members[0].verdict.reset();  // cannot decide yet
  members[1].verdict.reset();
  std::vector<int32_t> sponsors;
  members.is_lost = [&](const Letter& letter) {
    if (letter.message.step == ViewStep::kJoin) sponsors.push_back(letter.to.value);
    return false;
  };
  members.run(milliseconds(1600));
  CHECK(sponsors == std::vector<int32_t>{0, 1, 0, 1});
  members[1].verdict = Status::ok();
  members[0].verdict = Status::ok();
  members.run(milliseconds(600));
  CHECK(members.agree({0, 1, 2}));
  CHECK(members.view(0).members == RankSet::full(3));
}

namespace {

const Status kNeverSaid(Code::kRetryLater, "");

// The operation failed on the other members. Rank 2 alone has received a result of it,
// and the others cannot compare that result.
struct ReceivedAlone : LeftOut {
  ReceivedAlone() {
    (*this)[2].mine.received = {{Seq(5), 0, 77}};
    for (const int32_t r : {0, 1}) (*this)[r].verdict = kNeverSaid;
  }
};

}  // namespace

TEST_CASE("a member with a result that none can compare is refused after all answers") {
  ReceivedAlone members;
  members.run(milliseconds(20));
  REQUIRE(members[2].refusals.size() == 1);
  CHECK(members[2].refusals[0].find("up to operation 5, no other member has") !=
        std::string::npos);
  CHECK(members.count(ViewStep::kJoin) == 2);
  CHECK_FALSE(members[2].change.next_look());
  CHECK(members.view(0).number == 2);
  // With another state, rank 2 asks all members again.
  members[1].verdict = Status::ok();
  members[2].change.rejoin(members.now);
  members.run(milliseconds(50));
  CHECK(members.agree({0, 1, 2}));
  CHECK(members.view(2).has(Rank(2)));
}

TEST_CASE("a member with a result that one member can compare asks it without delay") {
  ReceivedAlone members;
  members[1].verdict = Status::ok();
  members.run(milliseconds(20));
  CHECK(members[2].refusals.empty());
  CHECK(members.view(2).has(Rank(2)));
}

TEST_CASE("no member is refused while one answer may still come") {
  ReceivedAlone members;
  members[1].verdict.reset();
  std::vector<int32_t> sponsors;
  members.is_lost = [&](const Letter& letter) {
    if (letter.message.step == ViewStep::kJoin) sponsors.push_back(letter.to.value);
    return false;
  };
  members.run(milliseconds(1600));
  CHECK(sponsors == std::vector<int32_t>{0, 1, 0, 1, 0});
  CHECK(members[2].refusals.empty());
  members[1].verdict = kNeverSaid;
  members.run(milliseconds(600));
  CHECK(members[2].refusals.size() == 1);
}

TEST_CASE("a member whose operation has failed meanwhile asks without its result") {
  ReceivedAlone members;
  members.is_lost = [&](const Letter& letter) {
    if (letter.from == Rank(1) && letter.message.step == ViewStep::kRefuse) {
      members[2].mine.received.clear();
      for (const int32_t r : {0, 1}) members[r].verdict = Status::ok();
    }
    return false;
  };
  members.run(milliseconds(20));
  CHECK(members[2].refusals.empty());
  CHECK(members.view(2).has(Rank(2)));
}

TEST_CASE("answers of another view are asked for again") {
  ReceivedAlone members;
  tell(members);
  // Rank 0 has refused. Rank 1 refuses in a view that rank 2 does not know yet.
  ViewMessage refusal;
  refusal.step = ViewStep::kRefuse;
  for (const int32_t r : {0, 1}) {
    refusal.view = members.view(2).number - static_cast<uint32_t>(r);
    CHECK(members[2].change.on_message(Rank(r), refusal, members.now).is_ok());
  }
  CHECK(members[2].refusals.empty());
}

TEST_CASE("no member waits for a view that has lost its majority") {
  for (const bool stays_excluded : {false, true}) {
    for (const bool hears_first : {false, true}) {
      LeftOut members;
      Member& out = members[2];
      if (stays_excluded) out.change.stay_excluded();
      for (auto& m : members.all) {
        m->verdict.reset();  // does not rejoin at once
        if (stays_excluded) m->verdict = Status(Code::kPeerLost, "its log is full");
      }
      members.run(milliseconds(20));
      CHECK(out.refusals.empty());
      members.is_lost = without({0});
      if (hears_first) out.change.on_lost(Rank(0), members.now);
      members.run(milliseconds(20));
      members[1].change.on_lost(Rank(0), members.now);
      if (!hears_first) members.run(milliseconds(700));
      if (!hears_first) out.change.on_lost(Rank(0), members.now);
      members.run(milliseconds(700));
      INFO(stays_excluded << " " << hears_first);
      REQUIRE_FALSE(out.refusals.empty());
      CHECK(out.refusals.back().find(
                "rank 0 left the group or failed, and only 1 of the 2") !=
            std::string::npos);
      CHECK(out.culprit == Rank(0));
      CHECK_FALSE(out.change.next_look());
    }
  }
}

TEST_CASE("a member that a view member cannot take in asks the others") {
  Members members(5);
  members.is_lost = without({4});
  for (const int32_t r : {0, 1, 2, 3})
    members[r].change.on_silent(Rank(4), members.now);
  members.run(milliseconds(110));
  REQUIRE(members.view(0).members == set_of(5, {0, 1, 2, 3}));
  // Rank 0 is cut off from ranks 1 and 2. Ranks 3 and 4 do not know it.
  members.is_lost = [](const Letter& letter) {
    const auto is = [&](int32_t a, int32_t b) {
      return (letter.from == Rank(a) && letter.to == Rank(b)) ||
             (letter.from == Rank(b) && letter.to == Rank(a));
    };
    return is(0, 1) || is(0, 2);
  };
  members.lose(Rank(1), {0});
  members.lose(Rank(2), {0});
  CHECK(
      members[0].change.on_message(Rank(4), prepare_of(Rank(4)), members.now).is_ok());
  members.run(milliseconds(2000));
  CHECK(members[4].refusals.empty());
  CHECK(members.view(3).has(Rank(4)));
}

TEST_CASE(
    "a member that would wait in vain does not rejoin, with one attempt per join") {
  LeftOut members;
  for (const int32_t r : {0, 1}) {
    Report& mine = members[r].mine;
    mine = report_of(3, 6, 6);
    mine.skipped_from = Seq(5);
    mine.skipped_through = Seq(6);
    mine.kept = Seq(7);
  }
  members.run(milliseconds(1600));
  CHECK(members.view(0).members == set_of(3, {0, 1}));
  CHECK(members.count(ViewStep::kJoin) > 1);
  // One attempt for each join.
  CHECK(members.view(0).number <=
        2 + static_cast<uint32_t>(members.count(ViewStep::kJoin)));
}

TEST_CASE("a member too far behind, or with operations without a cut, cannot return") {
  struct Row {
    uint64_t known, acked, first_cut;
    const char* why;
  };
  for (const Row& row : {
           Row{5, 4, 7, "how those before 7 are cut is not known any more"},
           Row{100'000, 4, 1, "operations can be open"},
       }) {
    LeftOut members;
    // A view as it may be after many view changes.
    View later = members.view(0);
    later.number = 9;
    later.cuts[0].first = Seq(row.first_cut);
    later.cuts.resize(1);
    later.cuts[0].owners = ranks_of({0, 1});
    later.cuts[0].divisions.clear();
    members[2].mine = report_of(3, row.known, row.acked);
    ViewMessage message;
    message.step = ViewStep::kView;
    message.view = 9;
    message.proposed = later;
    CHECK(members[0].change.on_message(Rank(1), message, members.now).is_ok());
    members.run(seconds(2));
    REQUIRE(members[2].refusals.size() == 1);
    CHECK(members[2].refusals[0].find(row.why) != std::string::npos);
  }
}

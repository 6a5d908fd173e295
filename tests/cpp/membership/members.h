// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Members of a group, reduced to their view changes. Messages wait in a queue, and the
// test moves the time. Not thread-safe.

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "harness/catch.h"
#include "harness/views.h"
#include "membership/view_change.h"

namespace aikido::membership::testing {

// One of several members. Its messages wait in a queue until the test delivers them.
struct Member final : ViewChangeHost, MemberReports {
  struct Letter {
    Rank from, to;
    ViewMessage message;
  };

  Member(Rank rank, int32_t size, std::deque<Letter>* queue)
      : self(rank),
        mine(aikido::testing::report_of(size, 5, 4)),
        change(rank, size, this),
        post(queue) {}

  const MemberReports& reports() const override { return *this; }
  void send_view(Rank to, const ViewMessage& message) override {
    // The message passes through its encoding.
    auto decoded =
        decode_view_message(encode(message), change.view().members.world_size());
    REQUIRE(decoded.is_ok());
    post->push_back({self, to, *decoded});
  }
  Report report() const override {
    CHECK_FALSE(change.is_promised());
    return mine;
  }
  void note_calls(Report& report) const override {
    report.known = std::max(report.known, mine.known);
    report.needed = std::max(report.needed, mine.needed);
    if (report.open == Seq()) report.open = mine.open;
  }
  std::vector<Seq> withheld() const override { return held_back; }
  bool can_do_without(Rank) const override { return is_spare; }
  void on_promise() override { ++num_promises; }
  void on_install(const View& view) override { installed.push_back(view); }
  std::optional<Status> compare(Rank, const Report&) const override { return verdict; }
  void on_refused(const Status& why) override {
    refusals.push_back(why.message());
    culprit = why.culprit();
  }

  const Rank self;
  Report mine;
  std::vector<Seq> held_back;
  bool is_spare = true;
  ViewChange change;
  std::deque<Letter>* post;
  int num_promises = 0;
  std::vector<View> installed;
  std::vector<std::string> refusals;
  Rank culprit = kNoRank;  // culprit of the last refusal
  std::optional<Status> verdict = Status::ok();
};
using Letter = Member::Letter;

struct Members {
  explicit Members(int32_t n) : size(n) {
    for (int32_t r = 0; r < n; ++r)
      all.push_back(std::make_unique<Member>(Rank(r), n, &post));
  }
  Member& operator[](int32_t r) { return *all[static_cast<size_t>(r)]; }
  const View& view(int32_t r) { return (*this)[r].change.view(); }

  // Delivers the waiting messages and the messages that they cause, except those for
  // which `is_lost` is true.
  void pump() {
    while (!post.empty()) {
      const Letter letter = post.front();
      post.pop_front();
      if (is_lost && is_lost(letter)) continue;
      ++sent[letter.message.step];
      Member& to = (*this)[letter.to.value];
      REQUIRE(to.change.on_message(letter.from, letter.message, now).is_ok());
      // A member has read its other links by then.
      if (letter.message.step == ViewStep::kPrepare) to.change.on_time(now);
    }
  }
  // Moves the time of all members, in steps of a millisecond.
  void run(Duration time) {
    for (const TimePoint end = now + time; now < end;) {
      pump();
      now += std::chrono::milliseconds(1);
      for (auto& m : all) m->change.on_time(now);
    }
    pump();
  }
  void lose(Rank rank, std::initializer_list<int32_t> seen_by) {
    for (const int32_t r : seen_by) (*this)[r].change.on_lost(rank, now);
  }
  // True if all of `ranks` are in the same view and none of them changes it.
  bool agree(std::initializer_list<int32_t> ranks) {
    const View& first = view(*ranks.begin());
    return std::all_of(ranks.begin(), ranks.end(), [&](int32_t r) {
      const ViewChange& change = (*this)[r].change;
      return change.view() == first && !change.is_promised() && !change.next_look();
    });
  }
  int count(ViewStep step) { return sent[step]; }

  const int32_t size;
  std::deque<Letter> post;
  std::vector<std::unique_ptr<Member>> all;
  std::function<bool(const Letter&)> is_lost;
  std::map<ViewStep, int> sent;
  TimePoint now{std::chrono::milliseconds(1)};
};

// True for messages from or to these ranks.
inline auto without(std::initializer_list<int32_t> ranks) {
  return [cut = aikido::testing::ranks_of(ranks)](const Letter& letter) {
    return std::any_of(cut.begin(), cut.end(),
                       [&](Rank r) { return letter.from == r || letter.to == r; });
  };
}

// Prepare of a member that does not know the view. The answer tells it.
inline ViewMessage prepare_of(Rank rank) {
  ViewMessage prepare;
  prepare.ballot = {9, rank};
  return prepare;
}

}  // namespace aikido::membership::testing

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "membership/view_liveness.h"

#include "harness/catch.h"
#include "harness/views.h"

using namespace aikido;
using namespace aikido::membership;
using namespace aikido::testing;

namespace {

using Reports = std::map<Rank, Report>;
constexpr Makers kAll = Makers::kParticipants;

// Report of a member that waits for operation 5, which needs `needed` members.
Report waiting(int32_t needed) {
  Report report = report_of(4, 5, 4);
  report.open = Seq(5);
  report.needed = needed;
  return report;
}

// Report of a member that has received all results up to `acked`, and keeps none of
// them.
Report received(uint64_t acked) {
  Report report = report_of(4, acked, acked);
  report.kept = Seq(acked + 1);
  return report;
}

// Rank 3 holds shard 0 of operation 5 for rank 1.
View held_by_3() {
  View view = View::first_of(4);
  view.held.push_back({Seq(5), 0, Rank(3), set_of(4, {1})});
  return view;
}

}  // namespace

TEST_CASE("an open operation is in danger if too few members answered to compute it") {
  const View view = View::first_of(4);
  const Reports three{
      {Rank(0), waiting(3)}, {Rank(1), waiting(3)}, {Rank(2), received(4)}};
  CHECK_FALSE(would_block(view, three, kAll));
  const Reports two{{Rank(0), waiting(3)}, {Rank(1), waiting(3)}};
  CHECK(would_block(view, two, kAll));
  // No member waits for a result.
  CHECK_FALSE(
      would_block(view, {{Rank(0), received(5)}, {Rank(1), received(5)}}, kAll));
  // Members that came later do not take part. They wait for a result that the others
  // compute.
  View later = view;
  later.seats[2] = {2, Seq(6)};
  CHECK(would_block(later, three, kAll));
  // Rank 1 has the result.
  Reports one = two;
  one[Rank(1)] = report_of(4, 5, 5);
  CHECK_FALSE(would_block(view, one, kAll));
}

TEST_CASE("an open operation is in danger behind one that some member can send") {
  Reports answers{
      {Rank(0), waiting(4)}, {Rank(1), waiting(4)}, {Rank(2), report_of(4, 5, 5)}};
  CHECK_FALSE(would_block(View::first_of(4), answers, kAll));
  answers[Rank(1)].known = Seq(6);
  CHECK(would_block(View::first_of(4), answers, kAll));
  answers[Rank(1)].needed = 3;
  CHECK_FALSE(would_block(View::first_of(4), answers, kAll));
}

TEST_CASE("one of two members that have lost each other does not compute") {
  Reports answers{{Rank(0), waiting(3)}, {Rank(1), waiting(3)}, {Rank(2), waiting(3)}};
  CHECK_FALSE(would_block(View::first_of(4), answers, kAll));
  answers[Rank(2)].lost = set_of(4, {3});  // rank 3 has not answered
  CHECK_FALSE(would_block(View::first_of(4), answers, kAll));
  answers[Rank(2)].lost = set_of(4, {1});  // rank 1 has not noticed it yet
  CHECK(would_block(View::first_of(4), answers, kAll));
  // Rank 1, to which all others have lost the connection, counts as lost only once,
  // although both ends report it.
  answers[Rank(0)].lost = set_of(4, {1});
  answers[Rank(1)].lost = set_of(4, {0, 2});
  for (auto& [rank, report] : answers) report.needed = 2;
  CHECK_FALSE(would_block(View::first_of(4), answers, kAll));
}

TEST_CASE("a result of a silent holder is in danger if too few can compute another") {
  Reports answers{
      {Rank(0), received(5)}, {Rank(1), waiting(4)}, {Rank(2), received(5)}};
  answers[Rank(1)].open = Seq();
  CHECK(would_block(held_by_3(), answers, kAll));
  CHECK_FALSE(would_block(View::first_of(4), answers, kAll));
  answers[Rank(1)].needed = 3;
  CHECK_FALSE(would_block(held_by_3(), answers, kAll));
  answers[Rank(1)].needed = 4;
  answers[Rank(2)].kept = Seq(5);
  CHECK_FALSE(would_block(held_by_3(), answers, kAll));
  answers[Rank(2)].failed = {Seq(5)};
  CHECK(would_block(held_by_3(), answers, kAll));
  answers[Rank(1)] = received(5);  // no member lacks it
  CHECK_FALSE(would_block(held_by_3(), answers, kAll));
}

TEST_CASE("a member that waits in vain is in danger if the others are no majority") {
  Report passed = received(5);
  passed.skipped_from = passed.skipped_through = Seq(5);
  Report lacks = waiting(1);
  lacks.open = Seq();
  Reports answers{{Rank(0), received(5)}, {Rank(1), lacks}, {Rank(2), passed}};
  CHECK(would_block(View::first_of(4), answers, kAll));
  answers[Rank(3)] = received(5);
  CHECK_FALSE(would_block(View::first_of(4), answers, kAll));
}

TEST_CASE("a member that has received a result computes no other") {
  // Rank 1 waits for operation 5. Ranks 0 and 2 have received its result, and keep it
  // no more.
  Reports answers{
      {Rank(0), received(5)}, {Rank(1), waiting(2)}, {Rank(2), received(5)}};
  CHECK_FALSE(would_block(View::first_of(4), answers, kAll));
  CHECK(would_block(View::first_of(4), answers, Makers::kLacking));
  answers[Rank(1)].open = Seq();  // its caller is late
  CHECK_FALSE(would_block(held_by_3(), answers, kAll));
  CHECK(would_block(held_by_3(), answers, Makers::kLacking));
  CHECK_FALSE(would_block(View::first_of(4), answers, Makers::kLacking));
  answers[Rank(1)].needed = 0;  // it has not even heard of the operation
  View later = held_by_3();
  later.seats[1] = {2, Seq(6)};
  CHECK_FALSE(would_block(later, answers, kAll));
  CHECK(would_block(later, answers, Makers::kLacking));
  // Two members that lack the result compute it.
  answers[Rank(0)] = answers[Rank(1)] = waiting(2);
  CHECK_FALSE(would_block(held_by_3(), answers, Makers::kLacking));
  // A member that keeps the result sends it.
  answers[Rank(0)] = report_of(4, 5, 5);
  CHECK_FALSE(would_block(held_by_3(), answers, Makers::kLacking));
}

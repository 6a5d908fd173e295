// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "membership/rejoin_question.h"

#include "harness/catch.h"

using namespace aikido;
using namespace aikido::membership;

namespace {

std::vector<ReceivedShard> results_up_to(uint64_t seq) {
  ReceivedShard received;
  received.seq = Seq(seq);
  return {received};
}

}  // namespace

TEST_CASE(
    "requests with the same results are one question, sent to one after another") {
  RejoinQuestion question(4);
  CHECK(question.ask(results_up_to(3)) == 0);
  const uint32_t number = question.number();
  CHECK(question.ask(results_up_to(3)) == 1);
  CHECK(question.number() == number);
  CHECK(question.is_about(results_up_to(3)));
  CHECK(question.note_unsure(Rank(2)));
  CHECK_FALSE(question.note_unsure(Rank(2)));
  RankSet ranks(4);
  ranks.insert(Rank(2));
  CHECK(question.are_unsure(ranks));
  ranks.insert(Rank(3));
  CHECK_FALSE(question.are_unsure(ranks));
  // Other results: answers to the question before do not count.
  CHECK(question.ask(results_up_to(2)) == 2);
  CHECK(question.number() == number + 1);
  CHECK_FALSE(question.is_unsure(Rank(2)));
}

TEST_CASE("a refused member asks anew with another state") {
  RejoinQuestion question(4);
  question.ask({});
  question.note_unsure(Rank(1));
  question.refuse();
  CHECK(question.is_refused());
  const uint32_t number = question.number();
  question.ask_anew(/*is_excluded=*/true);
  CHECK_FALSE(question.is_refused());
  CHECK_FALSE(question.is_unsure(Rank(1)));
  CHECK(question.number() == number + 1);
  // The request with the old state may still take it in.
  CHECK(question.is_outdated());
  question.on_view(/*is_excluded=*/false, /*was_excluded=*/true);
  CHECK(question.is_outdated());
  question.on_view(/*is_excluded=*/false, /*was_excluded=*/false);
  CHECK_FALSE(question.is_outdated());
}

TEST_CASE("a state that nobody was asked about is not outdated") {
  RejoinQuestion question(4);
  question.ask_anew(/*is_excluded=*/true);
  CHECK_FALSE(question.is_outdated());
  question.ask({});
  question.ask_anew(/*is_excluded=*/false);
  CHECK_FALSE(question.is_outdated());
}

TEST_CASE("a view asks the question anew, and a refusal lasts while excluded") {
  RejoinQuestion question(4);
  question.ask({});
  question.refuse();
  const uint32_t number = question.number();
  question.on_view(/*is_excluded=*/true, /*was_excluded=*/true);
  CHECK(question.is_refused());
  CHECK(question.number() == number + 1);
  question.on_view(/*is_excluded=*/false, /*was_excluded=*/true);
  CHECK_FALSE(question.is_refused());
  CHECK(question.number() == number + 1);  // nothing was asked in between
}

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "membership/agreement_calls.h"

#include "harness/catch.h"

using namespace aikido;
using namespace aikido::membership;
using std::chrono::milliseconds;

namespace {

constexpr TimePoint kStart{milliseconds(1000)};

View view_with(uint32_t agreement) {
  View view = View::first_of(3);
  view.number = agreement + 1;
  view.agreed = {agreement, RankSet::full(3)};
  return view;
}

}  // namespace

TEST_CASE("a call waits for the next view with a new agreement, and takes it once") {
  AgreementCalls calls;
  CHECK_FALSE(calls.is_wanted());
  CHECK(calls.call(view_with(0), kStart));
  CHECK(calls.is_wanted());
  calls.on_view(view_with(0));
  CHECK(calls.is_wanted());
  CHECK_FALSE(calls.take(view_with(0)));
  calls.on_view(view_with(1));
  CHECK_FALSE(calls.is_wanted());
  CHECK(calls.take(view_with(1)) == Agreement{1, RankSet::full(3)});
  CHECK_FALSE(calls.take(view_with(1)));
}

TEST_CASE("an agreement that exists is enough, and the newest is taken") {
  AgreementCalls calls;
  CHECK_FALSE(calls.call(view_with(3), kStart));
  CHECK_FALSE(calls.is_wanted());
  CHECK(calls.take(view_with(3))->number == 3);
  CHECK(calls.call(view_with(3), kStart));
}

TEST_CASE("each call and each loss moves the time of the proposal") {
  AgreementCalls calls;
  calls.call(view_with(0), kStart);
  CHECK(calls.quiet_at() == kStart + AgreementCalls::kQuiet);
  calls.note_loss(kStart + milliseconds(5));
  CHECK(calls.quiet_at() == kStart + milliseconds(5) + AgreementCalls::kQuiet);
  calls.give_up();
  CHECK_FALSE(calls.is_wanted());
}

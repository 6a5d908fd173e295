// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "straggler/skip_record.h"

#include "harness/catch.h"

using namespace aikido;
using straggler::SkipRecord;

namespace {

void skip(SkipRecord& record, uint64_t seq, bool is_lost = true) {
  record.note_skipped(Seq(seq), is_lost, false, false);
}

}  // namespace

TEST_CASE("skips in a row are counted until the member is in a result") {
  SkipRecord record;
  skip(record, 1);
  skip(record, 2);
  skip(record, 2);  // in another shard
  CHECK(record.consecutive() == 2);
  CHECK(record.late() == 2);
  CHECK(record.last_skipped() == Seq(2));
  record.note_included(Seq(3));
  CHECK(record.consecutive() == 0);
  CHECK(record.late() == 0);
  CHECK(record.healthy() == 1);
}

TEST_CASE("a skip that becomes known later is added") {
  SkipRecord record;
  skip(record, 5);
  skip(record, 3);
  CHECK(record.consecutive() == 2);
}

TEST_CASE("a covered member was late, but lost no data") {
  SkipRecord record;
  skip(record, 1, false);
  CHECK(record.consecutive() == 0);
  CHECK(record.late() == 1);
}

TEST_CASE("small lags and rests of an earlier lateness are no news") {
  SkipRecord record;
  record.note_skipped(Seq(1), true, true, false);
  record.note_skipped(Seq(2), true, false, true);
  CHECK(record.consecutive() == 2);
  CHECK(record.late() == 0);
}

TEST_CASE("a late operation is taken back, or ends the run, when its lag is known") {
  SkipRecord record;
  skip(record, 1);
  skip(record, 2);
  REQUIRE(record.is_last_late(Seq(2)));
  SECTION("it was a rest") {
    record.take_back_last_late();
    CHECK(record.late() == 1);
    CHECK_FALSE(record.is_last_late(Seq(2)));
  }
  SECTION("it was small") {
    record.note_little(Seq(1));
    CHECK(record.late() == 1);
    record.note_little(Seq(2));
    CHECK(record.late() == 0);
  }
}

TEST_CASE("a forgiven member is late only in later operations") {
  SkipRecord record;
  skip(record, 1);
  record.forgive(Seq(4));
  skip(record, 4);
  CHECK(record.late() == 0);
  skip(record, 5);
  CHECK(record.late() == 1);
  CHECK(record.consecutive() == 3);
  record.forget_skips();
  CHECK(record.consecutive() == 0);
}

TEST_CASE("an absent member is skipped, but not late") {
  SkipRecord record;
  record.note_absent(Seq(1));
  record.note_absent(Seq(1));
  record.note_absent(Seq(2));
  CHECK(record.consecutive() == 2);
  CHECK(record.late() == 0);
}

TEST_CASE("a member is behind from a skip until it calls again") {
  SkipRecord record;
  skip(record, 2);
  CHECK_FALSE(record.is_behind(Seq(2)));  // another shard of the same operation
  CHECK(record.is_behind(Seq(3)));
  CHECK(record.note_called(Seq(1)));
  CHECK_FALSE(record.note_called(Seq(1)));
  CHECK_FALSE(record.is_behind(Seq(3)));
}

TEST_CASE("a member that has caught up has called the operations before") {
  SkipRecord record;
  record.note_caught_up(Seq(7));
  record.note_caught_up(Seq(5));
  CHECK(record.called() == Seq(7));
}

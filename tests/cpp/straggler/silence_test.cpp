// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "straggler/silence.h"

#include "harness/catch.h"
#include "straggler/play.h"

namespace aikido::straggler {
namespace {

using testing::ms;

TEST_CASE("silence adds up over operations, and counts shards of one operation once") {
  Silence silence;
  CHECK(silence.on_close(Seq(5), ms(70)) == ms(70));
  CHECK(silence.on_close(Seq(5), ms(90)) == ms(90));  // another shard of the operation
  CHECK(silence.on_close(Seq(5), ms(80)) == ms(90));
  CHECK(silence.on_close(Seq(7), ms(40)) == ms(130));
  CHECK(silence.on_close(Seq(8), ms(30)) == ms(160));
  silence.end();
  CHECK(silence.on_close(Seq(9), ms(20)) == ms(20));
}

}  // namespace
}  // namespace aikido::straggler

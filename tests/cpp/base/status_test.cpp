// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "base/status.h"

#include <string>
#include <type_traits>

#include "harness/catch.h"

namespace aikido {
namespace {

Status lost() {
  return {Code::kPeerLost, "rank 3 is gone", Rank(3)};
}

// Returns a failure of `first`; otherwise reports that it continued.
Status go_on_after(const Status& first) {
  AIKIDO_TRY(first);
  return {Code::kRetryLater, "went on"};
}

// A variable named for a failure must not read as its opposite.
static_assert(!std::is_constructible_v<bool, Status>);

TEST_CASE("a status is ok until it is given a code", "[base]") {
  CHECK(Status().is_ok());
  CHECK(Status::ok().is_ok());
  CHECK(Status().message().empty());
  CHECK(Status().culprit() == kNoRank);
  CHECK(lost().has_failed());
  CHECK_FALSE(lost().is_ok());
  CHECK_FALSE(Status().has_failed());
  CHECK(lost().culprit() == Rank(3));
}

TEST_CASE("context goes in front of the message and keeps code and culprit", "[base]") {
  const Status status = lost().with_context("broadcast 7");
  CHECK(status.message() == "broadcast 7: rank 3 is gone");
  CHECK(status.code() == Code::kPeerLost);
  CHECK(status.culprit() == Rank(3));
  CHECK(Status().with_context("broadcast 7").message().empty());
}

TEST_CASE("the try macro returns a failure and lets success pass", "[base]") {
  CHECK(go_on_after(lost()).message() == "rank 3 is gone");
  CHECK(go_on_after(Status()).message() == "went on");
}

TEST_CASE("a result holds either a value or the reason why not", "[base]") {
  Result<std::string> good(std::string("seven"));
  CHECK(good.is_ok());
  CHECK(*good == "seven");
  CHECK(good->size() == 5);
  CHECK(good.status().is_ok());

  Result<std::string> bad(lost());
  CHECK_FALSE(bad);
  CHECK(bad.has_failed());
  CHECK(bad.status().code() == Code::kPeerLost);
  CHECK_THROWS_AS(bad.value(), InternalError);
}

TEST_CASE("a result without a value refuses an ok status", "[base]") {
  CHECK_THROWS_AS(Result<int>(Status()), InternalError);
}

TEST_CASE("every code has a name of its own", "[base]") {
  CHECK(name_of(Code::kOk) == "ok");
  CHECK(name_of(Code::kRetryLater) == "retry_later");
  CHECK(name_of(Code::kPeerLost) == "peer_lost");
  CHECK(name_of(Code::kTimedOut) == "timed_out");
  CHECK(name_of(Code::kAborted) == "aborted");
  CHECK(name_of(Code::kUnsupported) == "unsupported");
  CHECK(name_of(Code::kInvalidArgument) == "invalid_argument");
  CHECK(name_of(Code::kProtocol) == "protocol");
  CHECK(name_of(Code::kInternal) == "internal");
  CHECK(name_of(static_cast<Code>(200)) == "unknown");
}

}  // namespace
}  // namespace aikido

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "membership/roster.h"

#include <algorithm>
#include <set>

#include "harness/catch.h"
#include "harness/hex.h"

using namespace aikido;
using membership::MemberHandle;
using membership::Order;
using membership::Roster;

namespace {

std::vector<MemberHandle> members(size_t count) {
  std::vector<MemberHandle> made;
  for (size_t i = 0; i < count; ++i)
    made.push_back(
        MemberHandle::random({"127.0.0.1", static_cast<uint16_t>(1000 + i)}, false));
  return made;
}

std::vector<std::string> texts(const std::vector<MemberHandle>& handles) {
  std::vector<std::string> out;
  for (const MemberHandle& h : handles) out.push_back(h.to_string());
  return out;
}

Roster roster(int64_t uuid, const std::vector<MemberHandle>& handles,
              const MemberHandle& self, Order order = Order::kGiven) {
  auto made = Roster::make(uuid, texts(handles), order, self);
  INFO(made.status().message());
  REQUIRE(made.is_ok());
  return *made;
}

std::string refusal(const std::vector<std::string>& handles, const MemberHandle& self) {
  const auto made = Roster::make(1, handles, Order::kGiven, self);
  REQUIRE(!made.is_ok());
  CHECK(made.status().code() == Code::kInvalidArgument);
  return made.status().message();
}

bool says(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("the handles tell the reliable ranks, and the token depends on them") {
  auto all = members(3);
  const transport::Token before = roster(7, all, all[2]).token(Rank(0));
  CHECK(roster(7, all, all[2]).reliable() == RankSet(3));
  all[1].is_reliable = true;
  const Roster r = roster(7, all, all[2]);
  CHECK(r.reliable().count() == 1);
  CHECK(r.reliable().contains(Rank(1)));
  CHECK_FALSE(r.token(Rank(0)) == before);
}

TEST_CASE("the order of the handles is the order of the ranks") {
  const auto all = members(3);
  const Roster r = roster(7, all, all[2]);
  CHECK(r.uuid() == 7);
  CHECK(r.size() == 3);
  CHECK(r.self() == Rank(2));
  for (int32_t i = 0; i < 3; ++i)
    CHECK(r.member(Rank(i)) == all[static_cast<size_t>(i)]);
}

TEST_CASE("without an order all members find the same order") {
  auto all = members(5);
  const Roster first = roster(7, all, all[0], Order::kCommon);
  for (int turn = 0; turn < 5; ++turn) {
    std::rotate(all.begin(), all.begin() + 1, all.end());
    const Roster r = roster(7, all, all[0], Order::kCommon);
    for (int32_t i = 0; i < 5; ++i) {
      CHECK(r.member(Rank(i)) == first.member(Rank(i)));
      CHECK(r.token(Rank(i)) == first.token(Rank(i)));
    }
    CHECK(r.member(r.self()) == all[0]);
  }
}

TEST_CASE("a single member is a roster") {
  const auto all = members(1);
  CHECK(roster(1, all, all[0]).self() == Rank(0));
}

TEST_CASE("members of one roster agree on the token of each of them") {
  const auto all = members(3);
  const Roster a = roster(7, all, all[0]), b = roster(7, all, all[1]);
  std::set<transport::Token> different;
  for (int32_t i = 0; i < 3; ++i) {
    CHECK(a.token(Rank(i)) == b.token(Rank(i)));
    different.insert(a.token(Rank(i)));
  }
  CHECK(different.size() == 3);
}

TEST_CASE("another uuid, other members or another order give another token") {
  auto all = members(3);
  const auto token = [&](int64_t uuid, const std::vector<MemberHandle>& handles) {
    const Roster r = roster(uuid, handles, all[0]);
    return r.token(r.self());
  };
  const auto usual = token(7, all);
  CHECK(token(8, all) != usual);
  CHECK(token(-7, all) != usual);
  CHECK(token(7, {all[0], all[1]}) != usual);
  CHECK(token(7, {all[0], all[2], all[1]}) != usual);
  CHECK(token(7, {all[1], all[0], all[2]}) != usual);
  auto restarted = all;
  restarted[1].id += 1;
  CHECK(token(7, restarted) != usual);
}

TEST_CASE("a token is of no use without the secret of the member") {
  const auto all = members(2);
  auto guessed = all;
  guessed[1].secret[15] ^= std::byte{1};
  CHECK(roster(7, all, all[0]).token(Rank(1)) !=
        roster(7, guessed, all[0]).token(Rank(1)));
  // The message does not contain the secrets of other members.
  guessed = all;
  guessed[0].secret = {};
  CHECK(roster(7, all, all[1]).token(Rank(1)) ==
        roster(7, guessed, all[1]).token(Rank(1)));
}

TEST_CASE("a token has the bytes of PROTOCOL.md") {
  const std::string first =
      "aikido1/127.0.0.1/4711/00000000000000ff/000102030405060708090a0b0c0d0e0f";
  const std::string second =
      "aikido1/10.0.0.2/80/0000000000000001/ffffffffffffffffffffffffffffffff";
  auto self = MemberHandle::parse(second);
  REQUIRE(self.is_ok());
  auto made = Roster::make(-2, {first, second}, Order::kGiven, *self);
  REQUIRE(made.is_ok());
  CHECK(testing::to_hex(made->token(Rank(0))) ==
        "00 01 02 03 04 05 06 07 08 09 0a 0b 0c 0d 0e 0f\n"
        "fe ff ff ff ff ff ff ff 47 1d 09 01 d9 e5 2f 67");
}

TEST_CASE("lists that are no roster are refused with the reason") {
  const auto all = members(3);
  CHECK(says(refusal({}, all[0]), "not among the 0 handles"));
  CHECK(says(refusal(texts({all[1], all[2]}), all[0]),
             "this member's handle is not among the 2 handles"));
  CHECK(says(refusal({all[0].to_string(), "garbage", all[2].to_string()}, all[0]),
             "handle 2 of 3: \"garbage\" is no handle"));
  CHECK(says(refusal(texts({all[0], all[1], all[0]}), all[0]),
             "handles 1 and 3 of 3 are of the same member (127.0.0.1 1000)"));
  // A handle that only looks like this member's handle belongs to another member.
  auto forged = all;
  forged[0].secret = {};
  CHECK(says(refusal(texts(forged), all[0]), "not among"));
}

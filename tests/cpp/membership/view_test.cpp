// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "membership/view.h"

#include <functional>

#include "harness/catch.h"
#include "harness/hex.h"
#include "harness/views.h"

using namespace aikido;
using namespace aikido::membership;
using namespace aikido::testing;

namespace {

// A group of 4. Rank 1 is excluded. Rank 3 came in view 5 and takes part from operation
// 21 on. Shards 2 and 1 had lost their owner, and have the parts 4, 5 and 6, 7, 8.
View sample() {
  View view;
  view.number = 5;
  view.members = set_of(4, {0, 2, 3});
  view.reliable = set_of(4, {1, 2});
  view.agreed = {3, set_of(4, {0, 1, 3})};
  view.seats.resize(4);
  view.seats[3] = {5, Seq(21)};
  view.cuts = {{Seq(11),
                ranks_of({0, 2, 2, 3}),
                RankSet(4),
                {{2, ranks_of({2, 0})}, {1, ranks_of({0, 2, 3})}}},
               {Seq(21), ranks_of({0, 2}), set_of(4, {1})}};
  view.held = {{Seq(12), 3, Rank(2), set_of(4, {0, 3})},
               {Seq(12), 8, Rank(3), set_of(4, {0})},
               {Seq(13), 0, Rank(0), set_of(4, {3})}};
  return view;
}

std::vector<std::byte> encoded(const View& view) {
  std::vector<std::byte> bytes;
  append(bytes, view);
  return bytes;
}

Result<View> decoded(const std::vector<std::byte>& bytes, int32_t size = 4) {
  std::span<const std::byte> rest(bytes);
  return read_view(rest, size);
}

}  // namespace

TEST_CASE(
    "in the first view each member takes part in each operation and owns a shard") {
  for (const int32_t n : {1, 2, 65}) {
    const View view = View::first_of(n);
    CHECK(view.number == 1);
    CHECK(view.members == RankSet::full(n));
    CHECK(view.participants(Seq(1)) == RankSet::full(n));
    CHECK(view.held.empty());
    REQUIRE(view.cut_of(Seq(77)).owners.size() == static_cast<size_t>(n));
    for (int32_t r = 0; r < n; ++r) {
      CHECK(view.has(Rank(r)));
      CHECK(view.is_owner(Rank(r)));
      CHECK(view.cut_of(Seq(77)).owners[static_cast<size_t>(r)] == Rank(r));
    }
    auto again = decoded(encoded(view), n);
    REQUIRE(again.is_ok());
    CHECK(*again == view);
  }
}

TEST_CASE("participation depends on the view in which a member came") {
  const View view = sample();
  CHECK(view.participants(Seq(20)) == set_of(4, {0, 2}));
  CHECK(view.participants(Seq(21)) == set_of(4, {0, 2, 3}));
  CHECK_FALSE(view.takes_part(Rank(1), Seq(30)));
}

TEST_CASE("an operation is cut by the last cut that begins at or before it") {
  const View view = sample();
  for (const auto& [seq, cut] : {std::pair(1, 0), {11, 0}, {20, 0}, {21, 1}, {900, 1}})
    CHECK(&view.cut_of(Seq(static_cast<uint64_t>(seq))) == &view.cuts[cut ? 1 : 0]);
  // Owners of future operations are those of the last cut.
  CHECK(view.is_owner(Rank(2)));
  CHECK_FALSE(view.is_owner(Rank(3)));
}

TEST_CASE("only reliable members have a vote, or all members without any") {
  View view = sample();
  for (int32_t r = 0; r < 4; ++r) CHECK(view.votes(Rank(r)) == (r == 2));
  CHECK(is_majority(view, set_of(4, {2})));
  CHECK_FALSE(is_majority(view, set_of(4, {0, 1, 3})));
  CHECK(no_majority_text(view, RankSet(4)) == "the only reliable member is lost");
  view.reliable = set_of(4, {2, 3});
  CHECK(no_majority_text(view, set_of(4, {0, 2})) ==
        "only 1 of the 2 reliable members are left, not more than half");
  view.reliable = RankSet(4);
  for (int32_t r = 0; r < 4; ++r) CHECK(view.votes(Rank(r)) == (r != 1));
  CHECK(no_majority_text(view, set_of(4, {0})) ==
        "only 1 of the 3 members that took part are left, not more than half");
}

TEST_CASE("parts are numbered after the shards") {
  const Cut cut = sample().cuts[0];
  CHECK(cut.num_numbers() == 9);
  CHECK(cut.first_part(0) == 4);
  CHECK(cut.first_part(1) == 6);
  const int32_t owners[] = {0, 2, 2, 3, 2, 0, 0, 2, 3};
  const int32_t shards[] = {0, 1, 2, 3, 2, 2, 1, 1, 1};
  for (int32_t n = 0; n < 9; ++n) {
    CHECK(cut.owner(n) == Rank(owners[n]));
    CHECK(cut.shard_of(n) == shards[n]);
  }
  CHECK(cut.owner(9) == kNoRank);
  for (int32_t s = 0; s < 4; ++s) CHECK(cut.is_divided(s) == (s == 1 || s == 2));
  CHECK(sample().cuts[1].num_numbers() == 2);
}

TEST_CASE("a held shard is found by both its numbers") {
  const View view = sample();
  REQUIRE(view.held_at(Seq(12), 3) != nullptr);
  CHECK(view.held_at(Seq(12), 3)->holder == Rank(2));
  CHECK(view.held_at(Seq(13), 0)->lacking == set_of(4, {3}));
  for (const auto& [seq, shard] :
       {std::pair(12, 2), {12, 4}, {13, 3}, {11, 0}, {14, 0}})
    CHECK(view.held_at(Seq(static_cast<uint64_t>(seq)), shard) == nullptr);
}

TEST_CASE("an encoded view has these bytes") {
  View view;
  view.number = 2;
  view.members = set_of(2, {1});
  view.reliable = set_of(2, {0, 1});
  view.agreed = {1, set_of(2, {0})};
  view.seats.resize(2);
  view.cuts = {{Seq(1), ranks_of({1}), set_of(2, {0}), {{0, ranks_of({1, 1})}}}};
  view.held = {{Seq(3), 0, Rank(1), set_of(2, {1})}};
  CHECK(to_hex(encoded(view)) ==
        "02 00 00 00 02 00 00 00 00 00 00 00 03 00 00 00\n"
        "00 00 00 00 01 00 00 00 01 00 00 00 00 00 00 00\n"
        "01 00 00 00 01 00 00 00 00 00 00 00 01 00 00 00\n"
        "01 00 00 00 00 00 00 00 01 00 00 00 01 00 00 00\n"
        "01 00 00 00 00 00 00 00 01 00 00 00 00 00 00 00\n"
        "02 00 00 00 01 00 00 00 01 00 00 00 01 00 00 00\n"
        "03 00 00 00 00 00 00 00 00 00 00 00 01 00 00 00\n"
        "02 00 00 00 00 00 00 00");
}

TEST_CASE("views survive encoding and decoding, also with bytes behind them") {
  auto bytes = encoded(sample());
  bytes.push_back(std::byte{9});
  std::span<const std::byte> rest(bytes);
  auto view = read_view(rest, 4);
  REQUIRE(view.is_ok());
  CHECK(*view == sample());
  CHECK(rest.size() == 1);
  for (size_t n = 0; n + 1 < bytes.size(); ++n) {
    const std::vector<std::byte> part(bytes.begin(),
                                      bytes.begin() + static_cast<ptrdiff_t>(n));
    REQUIRE_FALSE(decoded(part).is_ok());
  }
}

TEST_CASE("an invalid view is refused with the reason") {
  struct Row {
    const char* why;
    std::function<void(View&)> change;
  };
  const Row rows[] = {
      {"its number is none", [](View& v) { v.number = 0; }},
      {"its number is none", [](View& v) { v.number = UINT32_MAX; }},
      {"nobody is in it", [](View& v) { v.members = RankSet(4); }},
      {"its agreement is later than it", [](View& v) { v.agreed.number = 6; }},
      {"no reliable member", [](View& v) { v.reliable = set_of(4, {1}); }},
      {"a member came later than it", [](View& v) { v.seats[3].since = 6; }},
      {"a member came later than it", [](View& v) { v.seats[0].since = 0; }},
      {"a member came later than it", [](View& v) { v.seats[0].first = Seq(0); }},
      {"nobody owns anything", [](View& v) { v.cuts.clear(); }},
      {"its cuts do not ascend", [](View& v) { v.cuts[1].first = Seq(11); }},
      {"its cuts do not ascend", [](View& v) { std::swap(v.cuts[0], v.cuts[1]); }},
      {"a cut has no owners or too many", [](View& v) { v.cuts[0].owners.clear(); }},
      {"a cut has no owners or too many",
       [](View& v) { v.cuts[1].owners.assign(5, Rank(0)); }},
      {"an owner is no member", [](View& v) { v.cuts[1].owners[0] = Rank(1); }},
      {"an owner is no member",
       [](View& v) { v.cuts[0].divisions[1].owners[2] = Rank(1); }},
      {"is none of its cut", [](View& v) { v.cuts[0].divisions[0].shard = 4; }},
      {"is none of its cut", [](View& v) { v.cuts[0].divisions[0].shard = -1; }},
      {"or is so twice", [](View& v) { v.cuts[0].divisions[1].shard = 2; }},
      {"no parts or too many", [](View& v) { v.cuts[0].divisions[0].owners.clear(); }},
      {"no parts or too many",
       [](View& v) {
         v.cuts[0].divisions[0].owners.assign(Division::kMaxParts + 1, Rank(0));
       }},
      {"its held shards do not ascend", [](View& v) { v.held[1] = v.held[0]; }},
      {"its held shards do not ascend",
       [](View& v) { std::swap(v.held[0], v.held[1]); }},
      {"a held shard is none of its cut", [](View& v) { v.held[1].shard = 9; }},
      {"a held shard is none of its cut", [](View& v) { v.held[0].shard = -1; }},
      {"is no member", [](View& v) { v.held[0].holder = Rank(1); }},
      {"is no member", [](View& v) { v.held[0].lacking = set_of(4, {1}); }},
      {"a number is none", [](View& v) { v.cuts[1].owners[0] = Rank(4); }},
      {"a number is none", [](View& v) { v.cuts[1].owners[0] = Rank(-1); }},
      {"a number is none", [](View& v) { v.cuts[1].first = Seq(kMaxSeq + 1); }},
      {"a number is none", [](View& v) { v.seats[2].first = Seq(kMaxSeq + 1); }},
      {"a number is none", [](View& v) { v.held[2].seq = Seq(UINT64_MAX); }},
  };
  for (const Row& row : rows) {
    View view = sample();
    row.change(view);
    auto again = decoded(encoded(view));
    INFO(row.why << ", line " << &row - rows);
    REQUIRE_FALSE(again.is_ok());
    CHECK(again.status().code() == Code::kProtocol);
    CHECK(again.status().message().find(row.why) != std::string::npos);
  }
  // A rank beyond the group.
  CHECK_FALSE(decoded(encoded(View::first_of(4)), 3).is_ok());
}

TEST_CASE("sets of ranks take whole words, and no rank beyond the group") {
  std::vector<std::byte> bytes;
  append(bytes, set_of(65, {0, 63, 64}));
  CHECK(to_hex(bytes) == "01 00 00 00 00 00 00 80 01 00 00 00 00 00 00 00");
  for (const auto& [size, is_right] : {std::pair(65, true), {128, true}, {64, true}}) {
    std::span<const std::byte> rest(bytes);
    WireReader reader{rest};
    const RankSet set = take_set(reader, size);
    CHECK(reader.ok == is_right);
    CHECK(set.contains(Rank(63)));
    CHECK(rest.size() == (size == 64 ? 8u : 0u));
  }
  std::span<const std::byte> rest(bytes);
  WireReader reader{rest};
  take_set(reader, 63);
  CHECK_FALSE(reader.ok);
}

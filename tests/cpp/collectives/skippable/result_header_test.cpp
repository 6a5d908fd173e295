// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "collectives/skippable/result_header.h"

#include <utility>
#include <vector>

#include "harness/catch.h"
#include "harness/hex.h"
#include "harness/views.h"
#include "transport/frame.h"

using namespace aikido;
using namespace aikido::collectives;
using namespace aikido::testing;
using straggler::Reason;
using straggler::StandIn;

TEST_CASE("result headers survive encoding and decoding") {
  for (const int32_t n : {1, 8, 9, 65}) {
    for (const Reason reason :
         {Reason::kComplete, Reason::kDeadline, Reason::kLogFull}) {
      ResultHeader header{RankSet(n), reason, std::chrono::microseconds(1234)};
      header.mask.insert(Rank(0));
      header.mask.insert(Rank(n - 1));
      auto decoded = decode_result_header(encode_result_header(header), n, n);
      REQUIRE(decoded.is_ok());
      CHECK(decoded->mask == header.mask);
      CHECK(decoded->reason == reason);
      CHECK(decoded->deadline == std::chrono::microseconds(1234));
    }
  }
}

TEST_CASE("a result header of a weighted call has the sum of the weights") {
  for (const int32_t n : {1, 9, 960}) {
    for (const double weight : {0.0, 2.5, 1e300}) {
      ResultHeader header{RankSet::full(n), Reason::kComplete, {}};
      header.weight = weight;
      const auto bytes = encode_result_header(header);
      auto decoded = decode_result_header(bytes, n, n, true);
      REQUIRE(decoded.is_ok());
      CHECK(decoded->weight == weight);
      CHECK(decoded->mask == header.mask);
      CHECK_FALSE(decode_result_header(bytes, n, n).is_ok());
      const auto part = std::span(bytes).first(bytes.size() - 1);
      CHECK_FALSE(decode_result_header(part, n, n, true).is_ok());
      CHECK_FALSE(
          decode_result_header(std::span(bytes).first(bytes.size() - 8), n, n, true)
              .is_ok());
      // It fits into the first frame, with the largest call.
      CHECK(bytes.size() + kMaxCallBytes <= transport::kMaxExtensionBytes);
    }
  }
}

TEST_CASE("a result header has these bytes, and as many as the group needs") {
  const ResultHeader header{set_of(10, {0, 3, 9}), Reason::kComplete,
                            std::chrono::microseconds(0x0102)};
  const auto bytes = encode_result_header(header);
  REQUIRE(bytes.size() == 10);
  CHECK(to_hex(std::span(bytes).subspan(1)) == "00 00 00 02 01 00 00 09 02");
  CHECK(static_cast<Reason>(bytes[0]) == Reason::kComplete);
  for (size_t n = 0; n < bytes.size(); ++n) {
    const auto part = decode_result_header(std::span(bytes).first(n), 10, 10);
    REQUIRE_FALSE(part.is_ok());
    CHECK(part.status().message() == concat("a result with ", n, " bytes of header"));
  }
  CHECK_FALSE(decode_result_header(bytes, 17, 17).is_ok());
}

TEST_CASE("an owner reports the same deadline for its own shard as the others read") {
  const auto most = std::chrono::microseconds(UINT32_MAX);
  for (const auto& [chosen, told] : std::vector<std::pair<Duration, Duration>>{
           {Duration(0), Duration(0)},
           {Duration(59'723'742), Duration(59'723'000)},
           {Duration(999), Duration(0)},
           {most, most},
           {std::chrono::hours(9999), most}}) {
    CHECK(told_deadline(chosen) == told);
    const ResultHeader header{set_of(1, {0}), Reason::kComplete, told};
    CHECK(decode_result_header(encode_result_header(header), 1, 1)->deadline == told);
  }
}

TEST_CASE(
    "a result header without contributors, or with an unknown reason, is refused") {
  auto nobody = decode_result_header(
      encode_result_header({RankSet(3), Reason::kComplete, {}}), 3, 3);
  REQUIRE_FALSE(nobody.is_ok());
  CHECK(nobody.status().code() == Code::kProtocol);
  CHECK(nobody.status().message() ==
        "a result of 0 contributions for reason " +
            std::to_string(static_cast<int>(Reason::kComplete)));
  auto bytes = encode_result_header({set_of(3, {1}), Reason::kWaitingPays, {}});
  bytes[0] = static_cast<std::byte>(static_cast<uint8_t>(Reason::kWaitingPays) + 1);
  CHECK_FALSE(decode_result_header(bytes, 3, 3).is_ok());
}

TEST_CASE("an outcome combines the result headers of the owners of its shards") {
  Call call;
  call.dtype = DType::kFloat32;
  call.op = ReduceOp::kAvg;
  call.policy.kind = straggler::Kind::kSkip;
  using std::chrono::milliseconds;
  const ResultHeader full{RankSet::full(3), Reason::kComplete, {}};
  const ResultHeader short_of_1{set_of(3, {0, 2}), Reason::kExpectedLate, {}};
  const ResultHeader alone{set_of(3, {0}), Reason::kDeadline, milliseconds(5)};
  const std::vector<OwnedResultHeader> shards{
      {Rank(2), alone}, {Rank(0), short_of_1}, {Rank(1), full}, {Rank(2), short_of_1}};
  const Outcome outcome = outcome_of(call, Rank(1), 3, shards);
  using Ranks = std::vector<Rank>;
  CHECK(outcome.kind == OutcomeKind::kPartial);
  CHECK(outcome.contributors == Ranks{Rank(0)});
  CHECK(outcome.skipped == Ranks{Rank(1), Rank(2)});
  CHECK(outcome.skipped_by == Ranks{Rank(0), Rank(2)});
  CHECK(outcome.reason == "deadline");
  CHECK(outcome.deadline == milliseconds(5));
  REQUIRE(outcome.shards.size() == 4);
  CHECK(outcome.shards[1].owner == Rank(0));
  CHECK(outcome.shards[1].contributors == Ranks{Rank(0), Rank(2)});
  CHECK(outcome.shards[1].scale == 0.5);
  const std::vector<OwnedResultHeader> one{{Rank(1), full}};
  const Outcome complete = outcome_of(call, Rank(1), 3, one);
  CHECK(complete.kind == OutcomeKind::kComplete);
  CHECK(complete.reason == "complete");
  CHECK(complete.skipped_by.empty());
}

TEST_CASE("stand-ins are decoded with the mask, and cost no bytes if there are none") {
  const ResultHeader covered{set_of(10, {0, 1, 3, 6}),
                             Reason::kDeadline,
                             {},
                             {{Rank(1), Rank(9)}, {Rank(6), Rank(7)}}};
  const auto bytes = encode_result_header(covered);
  // The first byte has bits 0, 1, 3, 6 and 7, and the second has bit 9. Then follow 6
  // and 1.
  CHECK(to_hex(std::span(bytes).subspan(8)) == "cb 02 06 00 01 00");
  auto decoded = decode_result_header(bytes, 10, 7);
  REQUIRE(decoded.is_ok());
  CHECK(decoded->mask == covered.mask);
  CHECK(decoded->stand_ins == covered.stand_ins);
  for (size_t n = 0; n < bytes.size(); ++n)
    CHECK_FALSE(decode_result_header(std::span(bytes).first(n), 10, 7).is_ok());
  ResultHeader none = covered;
  none.stand_ins.clear();
  CHECK(encode_result_header(none).size() == 10);
}

TEST_CASE("excluded members are decoded behind the stand-ins, if there are backups") {
  const ResultHeader covered{set_of(10, {0, 1, 3}),
                             Reason::kDeadline,
                             {},
                             {{Rank(1), Rank(9)}},
                             {Rank(2), Rank(8)}};
  const auto bytes = encode_result_header(covered);
  CHECK(to_hex(std::span(bytes).subspan(8)) == "0b 02 01 00 02 00 08 00");
  auto decoded = decode_result_header(bytes, 10, 7);
  REQUIRE(decoded.is_ok());
  CHECK(decoded->stand_ins == covered.stand_ins);
  CHECK(decoded->out == covered.out);
  CHECK_FALSE(
      decode_result_header(std::span(bytes).first(bytes.size() - 1), 10, 7).is_ok());
  for (const auto& [place, wrong] : {std::pair{12, 9}, {12, 8}, {14, 10}, {15, 1}}) {
    auto other = bytes;
    other[static_cast<size_t>(place)] = std::byte(wrong);
    const auto refused = decode_result_header(other, 10, 7);
    REQUIRE_FALSE(refused.is_ok());
    CHECK(refused.status().code() == Code::kProtocol);
    CHECK(refused.status().message().find("of 10 members, or not in order") !=
          std::string::npos);
  }
  // Without backups nothing follows the mask.
  const ResultHeader none{set_of(10, {0, 9}), Reason::kDeadline, {}, {}, {Rank(2)}};
  CHECK_FALSE(decode_result_header(encode_result_header(none), 10, 10).is_ok());
}

TEST_CASE(
    "stand-ins for a data shard outside the mask, or for one shard twice, are "
    "refused") {
  const ResultHeader covered{set_of(5, {0, 1}),
                             Reason::kDeadline,
                             {},
                             {{Rank(0), Rank(3)}, {Rank(1), Rank(4)}}};
  const auto bytes = encode_result_header(covered);
  REQUIRE(bytes.size() == 13);
  CHECK(decode_result_header(bytes, 5, 3).is_ok());
  for (const int wrong : {1, 2, 3, 200}) {  // twice, missing, a backup, no member
    auto other = bytes;
    other[9] = std::byte(wrong);
    const auto refused = decode_result_header(other, 5, 3);
    REQUIRE_FALSE(refused.is_ok());
    CHECK(refused.status().code() == Code::kProtocol);
    CHECK(refused.status().message().find("stands in for data shard") !=
          std::string::npos);
  }
}

TEST_CASE("as many stand-ins are named as fit behind the largest call") {
  Call call;
  call.policy.kind = straggler::Kind::kSkip;
  call.policy.backups = 512;
  call.shape.num_dims = Shape::kMaxDims;
  for (const int32_t n : {4, 128, 1024}) {
    const size_t most = max_stand_ins(call, n);
    ResultHeader header{RankSet(n), Reason::kComplete, {}, {}};
    for (int32_t d = 0; d < n / 2; ++d) {
      header.mask.insert(Rank(d));
      if (static_cast<size_t>(d) < most)
        header.stand_ins.push_back({Rank(d), Rank(n / 2 + d)});
    }
    const auto bytes = encode_result_header(header);
    CHECK(encode(call).size + bytes.size() <= transport::kMaxExtensionBytes);
    auto decoded = decode_result_header(bytes, n, n / 2);
    REQUIRE(decoded.is_ok());
    CHECK(decoded->stand_ins == header.stand_ins);
    CHECK(most == (n == 1024 ? 3 : n == 128 ? 59 : 67));
  }
}

TEST_CASE("an outcome names data shards, and names a backup only as a stand-in") {
  Call call;
  call.dtype = DType::kFloat32;
  call.op = ReduceOp::kAvg;
  call.policy.kind = straggler::Kind::kSkip;
  call.policy.backups = 1;
  const ResultHeader covered{
      set_of(4, {0, 1, 2}), Reason::kComplete, {}, {{Rank(1), Rank(3)}}};
  const ResultHeader without_2{
      set_of(4, {0, 1}), Reason::kDeadline, {}, {{Rank(1), Rank(3)}}, {Rank(1)}};
  using Ranks = std::vector<Rank>;
  using StandIns = std::vector<straggler::StandIn>;
  const std::vector<OwnedResultHeader> all{{Rank(0), covered}, {Rank(3), covered}};
  for (int32_t self = 0; self < 4; ++self) {
    const Outcome outcome = outcome_of(call, Rank(self), 4, all);
    CHECK(outcome.kind == OutcomeKind::kComplete);
    CHECK(outcome.contributors == Ranks{Rank(0), Rank(1), Rank(2)});
    CHECK(outcome.skipped.empty());
    CHECK(outcome.skipped_by.empty());
    CHECK(outcome.stand_ins == StandIns{{Rank(1), Rank(3)}});
    CHECK(outcome.shards[0].scale == 1.0 / 3);
    CHECK(outcome.shards[0].stand_ins == outcome.stand_ins);
  }
  const std::vector<OwnedResultHeader> some{{Rank(0), covered}, {Rank(3), without_2}};
  for (int32_t self = 0; self < 4; ++self) {
    const Outcome outcome = outcome_of(call, Rank(self), 4, some);
    CHECK(outcome.kind == OutcomeKind::kPartial);
    CHECK(outcome.skipped == Ranks{Rank(2)});
    CHECK(outcome.out == Ranks{Rank(1)});
    CHECK(outcome.skipped_by == (self == 2 ? Ranks{Rank(3)} : Ranks{}));
    CHECK(outcome.shards[1].scale == 0.5);
  }
}

TEST_CASE("holes are added up over the shards, with the backups that filled them") {
  Call call;
  call.dtype = DType::kFloat64;
  call.policy.kind = straggler::Kind::kSkip;
  call.policy.backups = 2;
  const StandIn by_4{Rank(1), Rank(4)};
  const StandIn by_3{Rank(2), Rank(3)};
  const auto header = [](const RankSet& mask, std::vector<StandIn> stand_ins) {
    return ResultHeader{mask, Reason::kComplete, {}, std::move(stand_ins)};
  };
  const std::vector<OwnedResultHeader> shards{
      {Rank(0), header(set_of(5, {0, 1, 2}), {by_4}), 0, 10},
      {Rank(1), header(set_of(5, {0, 1, 2}), {by_4, by_3}), 10, 20},
      {Rank(2), header(set_of(5, {0}), {}), 30, 5},
      {Rank(3), header(set_of(5, {0, 1, 2}), {}), 35, 100}};
  const auto holes = holes_of(call, 5, outcome_of(call, Rank(0), 5, shards));
  CHECK(holes == std::vector<Hole>{{Rank(1), kNoRank, 40},
                                   {Rank(1), Rank(4), 240},
                                   {Rank(2), kNoRank, 40},
                                   {Rank(2), Rank(3), 160}});
  const std::vector<OwnedResultHeader> whole{shards[3]};
  CHECK(holes_of(call, 5, outcome_of(call, Rank(0), 5, whole)).empty());
}

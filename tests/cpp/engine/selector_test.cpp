// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "engine/selector.h"

#include <string>
#include <vector>

#include "harness/catch.h"

using namespace aikido;
using namespace aikido::engine;
using collectives::Call;
using collectives::CallKind;

namespace {

Call all_reduce(uint64_t bytes) {
  Call call;
  call.count = bytes;
  return call;
}

// Messages of one sender hardly overlap. A shard has at least 16 KiB.
cost::CollectiveCosts costs(double alpha_s) {
  return {{alpha_s, 1e-9}, 0, 0.9 * alpha_s, 16 << 10};
}

}  // namespace

TEST_CASE("a fixed algorithm is used for strict all_reduces only") {
  CHECK(Selector().choose(all_reduce(8), 4) == Algorithm::kDirect);
  Selector selector(Algorithm::kTree);
  CHECK(selector.choose(all_reduce(8), 4) == Algorithm::kTree);
  REQUIRE(selector.set_costs(costs(1)).is_ok());
  CHECK(selector.choose(all_reduce(8), 4) == Algorithm::kTree);
  Call call = all_reduce(8);
  call.policy.kind = straggler::Kind::kSkip;
  CHECK(selector.choose(call, 4) == Algorithm::kDirect);
  call = all_reduce(8);
  call.is_weighted = true;
  for (int i = 0; i < kNumAlgorithms; ++i) {
    const auto fixed = static_cast<Algorithm>(i);
    if (!is_by_owners(fixed))
      CHECK(Selector(fixed).choose(call, 4) == Algorithm::kDirect);
  }
  for (const CallKind kind : {CallKind::kBarrier, CallKind::kReduce,
                              CallKind::kReduceScatter, CallKind::kSparseAllreduce}) {
    call = all_reduce(8);
    call.kind = kind;
    CHECK(selector.choose(call, 4) == Algorithm::kDirect);
  }
}

TEST_CASE("a direct call has one owner within a range of sizes") {
  Selector selector(Algorithm::kDirect);
  CHECK(selector.choose(all_reduce(40), 4) == Algorithm::kDirect);
  selector.set_one_owner(32, 64);
  for (const uint64_t count : {0, 7, 8, 16, 17, 1000}) {
    const bool is_between = count == 8 || count == 16;
    Call call = all_reduce(count);
    call.dtype = DType::kFloat32;
    INFO(count);
    CHECK(selector.choose(call, 4) ==
          (is_between ? Algorithm::kOneOwner : Algorithm::kDirect));
    call.kind = CallKind::kReduce;
    CHECK(selector.choose(call, 4) == Algorithm::kDirect);
    call.kind = CallKind::kAllreduce;
    call.policy.kind = straggler::Kind::kSkip;
    CHECK(selector.choose(call, 4) ==
          (is_between ? Algorithm::kOneOwner : Algorithm::kDirect));
  }
  selector.forget();
  CHECK(selector.choose(all_reduce(40), 4) == Algorithm::kDirect);
  Selector ring(Algorithm::kRing), by_costs;
  for (Selector* other : {&ring, &by_costs}) other->set_one_owner(1, 1000);
  CHECK(ring.choose(all_reduce(40), 4) == Algorithm::kRing);
  CHECK(by_costs.choose(all_reduce(40), 4) == Algorithm::kOneOwner);
  REQUIRE(by_costs.set_costs(costs(1)).is_ok());
  CHECK(by_costs.choose(all_reduce(40), 8) == Algorithm::kHalvingDoubling);
  Call may_skip = all_reduce(40);
  may_skip.policy.kind = straggler::Kind::kSkip;
  CHECK(by_costs.choose(may_skip, 8) == Algorithm::kOneOwner);
}

TEST_CASE("with costs the algorithm depends on size, members and alpha") {
  struct Row {
    int32_t members;
    uint64_t bytes;
    double alpha_s;
    Algorithm algorithm;
  };
  constexpr auto kHalving = Algorithm::kHalvingDoubling;
  for (const Row& row :
       {Row{8, 4 << 10, 50e-6, kHalving}, Row{8, 64 << 20, 50e-6, kHalving},
        Row{7, 4 << 10, 50e-6, kHalving},
        // A rank beyond a power of two costs all bytes twice.
        Row{7, 1 << 20, 50e-6, Algorithm::kDirect},
        Row{7, 64 << 20, 50e-6, Algorithm::kDirect},
        // Small sums have one owner. Its link takes most of the time.
        Row{3, 4 << 10, 10e-6, Algorithm::kRing},
        Row{2, 4 << 10, 50e-6, Algorithm::kRing}, Row{4, 4 << 10, 0, Algorithm::kRing},
        // The hops are as many, and so are the bytes.
        Row{2, 4 << 20, 50e-6, Algorithm::kDirect},
        Row{4, 1 << 20, 0, Algorithm::kDirect}}) {
    Selector selector;
    REQUIRE(selector.set_costs(costs(row.alpha_s)).is_ok());
    INFO(row.members << " members, " << row.bytes << " bytes, alpha " << row.alpha_s);
    CHECK(name_of(selector.choose(all_reduce(row.bytes), row.members)) ==
          std::string(name_of(row.algorithm)));
  }
}

TEST_CASE(
    "the size from which few bytes matter more than few messages grows with alpha") {
  uint64_t before = 0;
  for (const double alpha_s : {10e-6, 100e-6, 1e-3}) {
    Selector selector;
    REQUIRE(selector.set_costs(costs(alpha_s)).is_ok());
    uint64_t bytes = 1 << 10;
    while (selector.choose(all_reduce(bytes), 7) == Algorithm::kHalvingDoubling)
      bytes += bytes / 8;
    CHECK(bytes > 3 * before);
    before = bytes;
  }
}

TEST_CASE("costs that make no sense are refused, and forgotten costs are not used") {
  Selector selector;
  CHECK(selector.set_costs({{-1, 0}, 0, 0}).message() ==
        "alpha of the link is -1; it takes a finite number from 0 up");
  CHECK(selector.choose(all_reduce(8), 8) == Algorithm::kDirect);
  REQUIRE(selector.set_costs(costs(1)).is_ok());
  CHECK(selector.choose(all_reduce(8), 8) == Algorithm::kHalvingDoubling);
  selector.forget();
  CHECK(selector.choose(all_reduce(8), 8) == Algorithm::kDirect);
}

TEST_CASE("two levels are used if it is known which ranks share a host") {
  Selector selector(Algorithm::kTwoLevel);
  CHECK(selector.choose(all_reduce(8), 4) == Algorithm::kDirect);
  for (const auto& hosts :
       {std::vector<int32_t>{0, 1, 0, 1}, {0, 0, 0, 0}, {3, 2, 1, 0}}) {
    selector.set_hosts(hosts);
    CHECK(selector.choose(all_reduce(8), 4) == Algorithm::kTwoLevel);
  }
  Call call = all_reduce(8);
  call.policy.kind = straggler::Kind::kSkip;
  CHECK(selector.choose(call, 4) == Algorithm::kDirect);
  selector.forget();
  CHECK(selector.choose(all_reduce(8), 4) == Algorithm::kDirect);
}

TEST_CASE("with costs two levels are used for large sums on hosts with several ranks") {
  auto of_links = costs(100e-6);
  of_links.local = {5e-6, 1e-10};
  const auto chosen = [&](const std::vector<int32_t>& hosts, uint64_t bytes) {
    Selector first, last;
    first.set_hosts(hosts);
    REQUIRE(first.set_costs(of_links).is_ok());
    REQUIRE(last.set_costs(of_links).is_ok());
    last.set_hosts(hosts);
    const Algorithm algorithm = first.choose(all_reduce(bytes), 8);
    CHECK(last.choose(all_reduce(bytes), 8) == algorithm);
    return algorithm;
  };
  const std::vector<int32_t> two{0, 1, 1, 0, 0, 1, 0, 1};
  CHECK(chosen(two, 4 << 20) == Algorithm::kTwoLevel);
  // More hosts with fewer ranks each need as many hops and bytes as a ring.
  CHECK(chosen({0, 0, 1, 2, 3, 4, 5, 6}, 4 << 10) == Algorithm::kHalvingDoubling);
  // Only one of the two levels exists.
  CHECK(chosen({0, 1, 2, 3, 4, 5, 6, 7}, 4 << 20) == Algorithm::kHalvingDoubling);
  // All ranks are on one host, and its inner links are as slow as links between hosts.
  of_links.local = of_links.message;
  CHECK(chosen({0, 0, 0, 0, 0, 0, 0, 0}, 4 << 20) == Algorithm::kHalvingDoubling);
  CHECK(chosen(two, 4 << 10) == Algorithm::kHalvingDoubling);
  // The result is called a ring, also if the hosts of the ring are not known.
  of_links = costs(10e-6);
  of_links.local = of_links.message;
  for (const auto& hosts : {std::vector<int32_t>{}, {0, 0, 0}, {0, 1, 2}}) {
    Selector selector;
    selector.set_hosts(hosts);
    REQUIRE(selector.set_costs(of_links).is_ok());
    CHECK(selector.choose(all_reduce(4 << 10), 3) == Algorithm::kRing);
  }
}

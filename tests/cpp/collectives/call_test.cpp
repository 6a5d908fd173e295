// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "collectives/call.h"

#include "harness/catch.h"

using namespace aikido;
using namespace aikido::collectives;
using std::chrono::milliseconds;

namespace {

Call sample(bool is_partial) {
  Call call;
  call.kind = CallKind::kAllreduce;
  call.dtype = DType::kFloat32;
  call.op = ReduceOp::kAvg;
  call.count = 1024;
  call.shape = Shape::of(std::array<int64_t, 2>{32, 32});
  if (is_partial) {
    call.policy.kind = straggler::Kind::kSkip;
    call.policy.min_contributors = 3;
  }
  return call;
}

}  // namespace

TEST_CASE("a call survives encoding and decoding") {
  for (const bool is_partial : {false, true}) {
    for (int kind = 1; kind <= 11; ++kind) {
      Call call = sample(is_partial);
      call.kind = static_cast<CallKind>(kind);
      call.root = Rank(kind - 2);
      call.algorithm = static_cast<Algorithm>(kind % kNumAlgorithms);
      call.is_inner = kind % 2 == 0;
      call.is_weighted = kind % 3 == 0;
      const auto bytes = encode(call);
      CHECK(bytes.size == (is_partial ? 80 : 32));
      auto decoded = decode_call(bytes.view());
      REQUIRE(decoded.is_ok());
      CHECK(decoded->call == call);
      CHECK(decoded->rest.empty());
    }
  }
}

TEST_CASE("bytes that follow an encoded call are returned unchanged") {
  for (const bool is_partial : {false, true}) {
    const auto encoded = encode(sample(is_partial));
    std::vector<std::byte> bytes(encoded.view().begin(), encoded.view().end());
    bytes.resize(bytes.size() + 9, std::byte{0xff});
    auto decoded = decode_call(bytes);
    REQUIRE(decoded.is_ok());
    CHECK(decoded->call == sample(is_partial));
    CHECK(decoded->rest.size() == 9);
    CHECK(decoded->rest.data() == bytes.data() + encoded.size);
  }
}

TEST_CASE("a shape keeps six sizes, and all shapes of one element are equal") {
  const auto of = [](std::vector<int64_t> sizes) { return Shape::of(sizes); };
  CHECK(of({2, 3}) == of({2, 3}));
  CHECK_FALSE(of({2, 3}) == of({3, 2}));
  CHECK_FALSE(of({6}) == of({2, 3}));
  CHECK(of({}) == of({1}));
  CHECK(of({1, 1, 1}) == of({1}));
  CHECK_FALSE(of({0}) == of({1}));
  CHECK_FALSE(of({0, 4}) == of({0, 5}));
  CHECK(of({2, 2, 2, 2, 2, 2, 3}) == of({2, 2, 2, 2, 2, 6}));
}

TEST_CASE("bytes that encode no call are refused") {
  const auto good = encode(sample(true));
  for (size_t n = 0; n < good.size; ++n) {
    CHECK_FALSE(decode_call(good.view().first(n)).is_ok());
  }
  for (const auto& [at, value] : {std::pair{0, 0},
                                  {0, 12},
                                  {1, 12},
                                  {2, 8},
                                  {3, 0x87},
                                  {3, 0xe2},
                                  {15, 1},
                                  {32, 9}}) {
    auto bad = good;
    bad.bytes[static_cast<size_t>(at)] = static_cast<std::byte>(value);
    auto decoded = decode_call(bad.view());
    INFO("byte " << at << " is " << value);
    REQUIRE_FALSE(decoded.is_ok());
    CHECK(decoded.status().code() == Code::kProtocol);
  }
}

TEST_CASE("calls that differ in any field are not equal") {
  const Call call = sample(true);
  const auto differs = [&](auto change) {
    Call other = call;
    change(other);
    return !(other == call);
  };
  CHECK(differs([](Call& c) { c.kind = CallKind::kAllgather; }));
  CHECK(differs([](Call& c) { c.dtype = DType::kFloat64; }));
  CHECK(differs([](Call& c) { c.op = ReduceOp::kSum; }));
  CHECK(differs([](Call& c) { c.root = Rank(0); }));
  CHECK(differs([](Call& c) { c.count = 1; }));
  CHECK(differs([](Call& c) { c.shape.dims[1] = 31; }));
  CHECK(differs([](Call& c) { c.shape.num_dims = 1; }));
  CHECK(differs([](Call& c) { c.algorithm = Algorithm::kTree; }));
  CHECK(differs([](Call& c) { c.policy.slack = 2; }));
  CHECK(differs([](Call& c) { c.is_inner = true; }));
  CHECK(differs([](Call& c) { c.is_weighted = true; }));
}

TEST_CASE("a call is described as its user wrote it") {
  CHECK(describe(sample(false)) == "all_reduce(avg, float32[32, 32])");
  CHECK(describe(sample(true))
            .find("all_reduce(avg, float32[32, 32]) with "
                  "SkipStraggler(min_contributors=3") == 0);
  Call call = sample(false);
  call.algorithm = Algorithm::kHalvingDoubling;
  CHECK(describe(call) == "all_reduce(avg, float32[32, 32]) by halving_doubling");
  call.algorithm = Algorithm::kTwoLevel;
  CHECK(describe(call) == "all_reduce(avg, float32[32, 32]) by two_level");
  call.algorithm = Algorithm::kDirect;
  call.is_inner = true;
  CHECK(describe(call) == "all_reduce(avg, float32[32, 32]) directly between devices");
  call.is_inner = false;
  call.is_weighted = true;
  CHECK(describe(call) == "all_reduce(avg, float32[32, 32]) with a weight");
  call.policy = sample(true).policy;
  CHECK(describe(call).find("with a weight and SkipStraggler(") != std::string::npos);
  call.policy = {};
  call.is_weighted = false;
  call.kind = CallKind::kBarrier;
  CHECK(describe(call) == "barrier()");
  call.kind = CallKind::kBroadcast;
  call.root = Rank(2);
  CHECK(describe(call) == "broadcast(src 2, float32[32, 32])");
  call.kind = CallKind::kReduce;
  CHECK(describe(call) == "reduce(avg, dst 2, float32[32, 32])");
  call.kind = CallKind::kGather;
  CHECK(describe(call) == "gather(dst 2, float32[32, 32])");
  call.kind = CallKind::kAllgather;
  call.shape = {};
  CHECK(describe(call) == "all_gather(float32[1024])");
  call.kind = CallKind::kAlltoall;
  CHECK(describe(call) == "all_to_all(float32)");
  call.kind = CallKind::kMonitoredBarrier;
  CHECK(describe(call) == "monitored_barrier()");
}

TEST_CASE("a partial result is scaled by its contributors, or by the world size") {
  Call call = sample(true);
  const auto scales = [&] {
    call.op = ReduceOp::kSum;
    const double sum = scale_of(call, 3, 4);
    call.op = ReduceOp::kAvg;
    return std::pair(sum, scale_of(call, 3, 4));
  };
  call.policy.divisor = straggler::Divisor::kContributors;
  CHECK(scales() == std::pair(4.0 / 3, 1.0 / 3));
  call.policy.divisor = straggler::Divisor::kWorld;
  CHECK(scales() == std::pair(1.0, 1.0 / 4));
}

TEST_CASE("members agree on a skippable all_reduce, but not on a reduce_scatter") {
  Call call = sample(true);
  CHECK(call.is_agreed());
  call.kind = CallKind::kReduceScatter;
  CHECK(call.is_partial());
  CHECK_FALSE(call.is_agreed());
  CHECK(validate(call, 4).is_ok());
  CHECK_FALSE(sample(false).is_agreed());
}

TEST_CASE("only calls that a group can carry out are valid") {
  const auto message = [](auto change, int32_t size = 4) {
    Call call = sample(true);
    change(call);
    return validate(call, size).message();
  };
  CHECK(message([](Call&) {}) == "");
  CHECK(message([](Call& c) {
          c.policy = {};
          c.dtype = DType::kBool;
        }) == "all_reduce(avg, bool[32, 32]): avg is not defined for bool");
  CHECK(message([](Call& c) {
          c.policy = {};
          c.dtype = DType::kInt32;
        }) == "");
  CHECK(message([](Call& c) {
          c.dtype = DType::kInt32;
        }).find("only sums and means of floating point") != std::string::npos);
  CHECK(message([](Call& c) {
          c.op = ReduceOp::kMax;
        }).find("only sums and means of floating point") != std::string::npos);
  CHECK(message([](Call& c) {
          c.op = ReduceOp::kSum;
          c.dtype = DType::kInt32;
        }).find("only sums and means of floating point") != std::string::npos);
  CHECK(message([](Call& c) {
          c.kind = CallKind::kAllgather;
        }).find("only all_reduce and reduce_scatter may leave a rank out") !=
        std::string::npos);
  CHECK(message([](Call& c) {
          c.is_inner = true;
        }).find("the inner backend leaves no rank out") != std::string::npos);
  CHECK(message([](Call& c) {
          c.policy = {};
          c.is_inner = true;
        }) == "");
  CHECK(message([](Call& c) {
          c.policy.min_contributors = 5;
        }).find("min_contributors is 5") != std::string::npos);
  for (const CallKind kind :
       {CallKind::kReduce, CallKind::kReduceScatter, CallKind::kSparseAllreduce}) {
    CHECK(message([kind](Call& c) {
            c.policy = {};
            c.kind = kind;
            c.root = Rank(0);
            c.dtype = DType::kBool;
          }).find("avg is not defined for bool") != std::string::npos);
  }
  const auto other_way = [&](CallKind kind, bool is_strict) {
    return message([&](Call& c) {
      if (is_strict) c.policy = {};
      c.kind = kind;
      c.algorithm = Algorithm::kRing;
    });
  };
  CHECK(other_way(CallKind::kAllreduce, true) == "");
  CHECK(other_way(CallKind::kAllreduce, false)
            .find("only an all_reduce that waits for all ranks goes another way") !=
        std::string::npos);
  CHECK(other_way(CallKind::kReduceScatter, true) != "");
  CHECK(message([](Call&) {}, 1025).find("has 1025 ranks") != std::string::npos);
  CHECK(message([](Call& c) {
          c.policy = {};
          c.kind = CallKind::kBroadcast;
          c.root = Rank(4);
        }).find("the root is none of the 4 ranks") != std::string::npos);
}

TEST_CASE("a weight is for a mean of floating point over the contributors") {
  const auto message = [](bool is_partial, auto change, int32_t size = 4) {
    Call call = sample(is_partial);
    call.is_weighted = true;
    change(call);
    return validate(call, size).message();
  };
  for (const bool is_partial : {false, true}) {
    const auto refuses = [&](const char* why, auto change, int32_t size = 4) {
      return message(is_partial, change, size).find(why) != std::string::npos;
    };
    for (const DType dtype : {DType::kFloat16, DType::kBFloat16, DType::kFloat64,
                              DType::kComplex64, DType::kComplex128})
      CHECK(message(is_partial, [&](Call& c) { c.dtype = dtype; }) == "");
    CHECK(message(is_partial, [](Call& c) { c.kind = CallKind::kReduceScatter; }) ==
          "");
    CHECK(message(is_partial, [](Call& c) { c.algorithm = Algorithm::kOneOwner; }) ==
          "");
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMax, ReduceOp::kProduct})
      CHECK(refuses("needs op=AVG", [&](Call& c) { c.op = op; }));
    CHECK(refuses("needs a floating-point", [](Call& c) { c.dtype = DType::kInt32; }));
    CHECK(refuses("only all_reduce and reduce_scatter take a weight", [](Call& c) {
      c.kind = CallKind::kReduce;
      c.root = Rank(0);
    }));
    CHECK(refuses("directly and through the host",
                  [](Call& c) { c.algorithm = Algorithm::kRing; }));
    CHECK(refuses("directly and through the host", [](Call& c) { c.is_inner = true; }));
  }
  CHECK(message(true, [](Call& c) {
          c.policy.divisor = straggler::Divisor::kWorld;
        }).find("the weights of missing ranks") != std::string::npos);
  CHECK(message(true, [](Call& c) {
          c.policy.backups = 1;
        }).find("ActiveBackup takes no weight") != std::string::npos);
  CHECK(message(
            true, [](Call&) {}, 960) == "");
  CHECK(message(
            true, [](Call&) {}, 961)
            .find("at most 960") != std::string::npos);
}

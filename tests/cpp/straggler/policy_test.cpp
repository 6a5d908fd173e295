// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "straggler/policy.h"

#include <functional>
#include <limits>
#include <set>
#include <string>

#include "harness/catch.h"
#include "straggler/play.h"

namespace aikido::straggler {
namespace {

using testing::skip_options;

using Change = std::function<void(PolicyOptions&)>;

TEST_CASE("options out of range are refused with argument, value and range") {
  struct Row {
    Change change;
    const char* sentence;
  };
  const Row rows[] = {
      {[](auto& o) { o.min_contributors = 5; },
       "SkipStraggler: min_contributors is 5 but must be between 1 and the world size "
       "of 4, or None for more than half of it."},
      {[](auto& o) { o.min_contributors = -1; },
       "SkipStraggler: min_contributors is -1 but must be between 1 and the world size "
       "of 4, or None for more than half of it."},
      {[](auto& o) { o.floor = from_ms(-1); },
       "SkipStraggler: floor_ms is -1 ms but must be between 0 ms and 3.6e+06 ms."},
      {[](auto& o) { o.ceiling = from_ms(10); },
       "SkipStraggler: ceiling_ms is 10 ms but must be between the floor_ms of 20 ms "
       "and "
       "3.6e+06 ms."},
      {[](auto& o) { o.ceiling = std::chrono::hours(2); },
       "SkipStraggler: ceiling_ms is 7.2e+06 ms but must be between the floor_ms of 20 "
       "ms "
       "and 3.6e+06 ms."},
      {[](auto& o) { o.floor = o.ceiling = std::chrono::hours(2); },
       "SkipStraggler: floor_ms is 7.2e+06 ms but must be between 0 ms and 3.6e+06 "
       "ms."},
      {[](auto& o) { o.max_consecutive_skips = 0; },
       "SkipStraggler: max_consecutive_skips is 0 but must be between 1 and 1000000."},
      {[](auto& o) { o.max_consecutive_skips = 1000001; },
       "SkipStraggler: max_consecutive_skips is 1000001 but must be between 1 and "
       "1000000."},
      {[](auto& o) { o.warmup_operations = 0; },
       "SkipStraggler: warmup_operations is 0 but must be between 1 and 64."},
      {[](auto& o) { o.warmup_operations = 65; },
       "SkipStraggler: warmup_operations is 65 but must be between 1 and 64."},
      {[](auto& o) { o.worth = -0.1; },
       "SkipStraggler: worth is -0.1 but must be between 0 and 1."},
      {[](auto& o) { o.worth = 1.5; },
       "SkipStraggler: worth is 1.5 but must be between 0 and 1."},
      {[](auto& o) { o.slack = 0.5; },
       "SkipStraggler: slack is 0.5 but must be between 1 and 100."},
      {[](auto& o) { o.slack = std::numeric_limits<double>::quiet_NaN(); },
       "SkipStraggler: slack is nan but must be between 1 and 100."},
  };
  for (const Row& row : rows) {
    PolicyOptions options = skip_options();
    row.change(options);
    const Status status = validate(options, 4);
    CHECK(status.code() == Code::kInvalidArgument);
    CHECK(status.message() == row.sentence);
    options.kind = Kind::kWaitAll;  // has no such arguments
    CHECK(validate(options, 4).is_ok());
  }
  CHECK(validate(skip_options(), 0).message() ==
        "SkipStraggler: world_size is 0 but must be at least 1.");
}

TEST_CASE("an option of one policy is refused for another policy") {
  PolicyOptions options = skip_options();
  options.rebalance = true;
  CHECK(validate(options, 4).message() ==
        "rebalance=True is an option of WaitAll only.");
  options.kind = Kind::kWaitAll;
  CHECK(validate(options, 4).is_ok());
  options.masks = Masks::kBucket;
  CHECK(validate(options, 4).message() ==
        "granularity=\"bucket\" is an option of SkipStraggler only.");
  options = {};
  options.log_full = LogFull::kLeave;
  CHECK(validate(options, 4).message() ==
        "on_log_full=\"exclude\" is an option of SkipStraggler only.");
  CHECK(validate(options, 4).code() == Code::kInvalidArgument);
}

TEST_CASE("backups out of range are refused with the argument and both numbers") {
  struct Row {
    Change change;
    int32_t size;
    const char* sentence;
  };
  const Row rows[] = {
      {[](auto& o) { o.backups = 3; }, 5,
       "ActiveBackup: backups is 3 but must be between 0 and 2: at most as many as "
       "there are primaries, and the world size of 5 holds both."},
      {[](auto& o) { o.backups = -1; }, 4,
       "ActiveBackup: backups is -1 but must be between 0 and 2: at most as many as "
       "there are primaries, and the world size of 4 holds both."},
      {[](auto& o) {
         o.backups = 1;
         o.backup_mode = BackupMode::kReplicate;
       },
       4,
       "ActiveBackup: backups is 1 but must be half of the world size of 4 with "
       "mode=\"replicate\": one for each primary."},
      {[](auto& o) {
         o.backups = 1;
         o.backup_mode = BackupMode::kNPlusB;
         o.min_contributors = 2;
       },
       4,
       "ActiveBackup: min_contributors is 2 but must be None with mode=\"n_plus_b\", "
       "which ends with as many as there are primaries."},
      {[](auto& o) {
         o.backups = 1;
         o.backup_mode = BackupMode::kSubstitute;
         o.verify_shadows = true;
       },
       4,
       "ActiveBackup: verify_shadows is True but must be False with "
       "mode=\"substitute\", where no two ranks compute the same."},
      {[](auto& o) {
         o.backups = 1;
         o.min_contributors = 4;
       },
       4,
       "ActiveBackup: min_contributors is 4 but must be between 1 and the number of "
       "primaries of 3, or None for more than half of it."},
      {[](auto& o) {
         o.backups = 1;
         o.kind = Kind::kWaitAll;
       },
       4, "backups is an option of ActiveBackup only."},
  };
  for (const Row& row : rows) {
    PolicyOptions options = skip_options();
    row.change(options);
    const Status status = validate(options, row.size);
    CHECK(status.code() == Code::kInvalidArgument);
    CHECK(status.message() == row.sentence);
  }
}

TEST_CASE("with backups a quorum counts data shards, or all primaries of N + b") {
  PolicyOptions options = skip_options();
  options.backups = 2;
  CHECK(validate(options, 5).is_ok());
  CHECK(num_data_shards(options, 5) == 3);
  CHECK(quorum_of(options, 5) == 2);
  CHECK(options.has_stand_ins());
  options.backup_mode = BackupMode::kNPlusB;
  CHECK(validate(options, 5).is_ok());
  CHECK(num_data_shards(options, 5) == 5);
  CHECK(quorum_of(options, 5) == 3);
  CHECK_FALSE(options.has_stand_ins());
}

TEST_CASE("options without backups equal the skip policy, byte for byte") {
  PolicyOptions options = skip_options();
  options.backups = 0;
  CHECK_FALSE(options.has_stand_ins());
  CHECK(encode(options) == encode(skip_options()));
  CHECK(to_string(options).starts_with("SkipStraggler("));
  options.backups = 1;
  CHECK(to_string(options).starts_with(
      "ActiveBackup(backups=1, mode=\"shadow\", verify_shadows=False, "
      "min_contributors=None, "));
}

TEST_CASE("half of an even number of members are enough by default") {
  PolicyOptions options = skip_options();
  const int32_t fewest[] = {1, 2, 2, 2, 3, 3, 4, 4};
  for (int32_t n = 1; n <= 8; ++n) {
    INFO(n << " members");
    CHECK(fewest_of(options, n) == fewest[n - 1]);
    CHECK(fewest_of(PolicyOptions{}, n) == n);
  }
  options.min_contributors = 3;
  CHECK(fewest_of(options, 4) == 3);
  options = skip_options();
  options.backups = 1;
  CHECK(fewest_of(options, 4) == quorum_of(options, 4));
}

TEST_CASE(
    "a policy that waits for all has a quorum of all, and rebalancing uses the view") {
  PolicyOptions options;
  CHECK(quorum_of(options, 4) == 4);
  CHECK_FALSE(options.uses_view());
  options.rebalance = true;
  CHECK(quorum_of(options, 4) == 4);
  CHECK(options.uses_view());
  CHECK(skip_options().uses_view());
}

TEST_CASE("the ends of every range are allowed") {
  const Change changes[] = {
      [](auto&) {},
      [](auto& o) { o.min_contributors = 1; },
      [](auto& o) { o.min_contributors = 4; },
      [](auto& o) { o.floor = Duration::zero(); },
      [](auto& o) { o.floor = o.ceiling; },
      [](auto& o) { o.ceiling = std::chrono::hours(1); },
      [](auto& o) { o.max_consecutive_skips = 1; },
      [](auto& o) { o.max_consecutive_skips = 1'000'000; },
      [](auto& o) { o.warmup_operations = 1; },
      [](auto& o) { o.warmup_operations = 64; },
      [](auto& o) { o.slack = 1; },
      [](auto& o) { o.slack = 100; },
  };
  for (const Change& change : changes) {
    PolicyOptions options = skip_options();
    change(options);
    CHECK(validate(options, 4).message().empty());
  }
}

TEST_CASE("the default quorum is more than half") {
  const int32_t expected[] = {1, 2, 2, 3, 3, 4, 4, 5};
  for (int32_t n = 1; n <= 8; ++n)
    CHECK(quorum_of(skip_options(), n) == expected[n - 1]);
  PolicyOptions options = skip_options();
  options.min_contributors = 2;
  CHECK(quorum_of(options, 8) == 2);
}

TEST_CASE("options print as a Python user writes them") {
  PolicyOptions exact;
  CHECK(to_string(exact) == "WaitAll()");
  exact.rebalance = true;
  CHECK(to_string(exact) == "WaitAll(rebalance=True)");
  PolicyOptions options = skip_options();
  options.min_contributors = 3;
  CHECK(to_string(options) ==
        "SkipStraggler(min_contributors=3, floor_ms=20, ceiling_ms=10000, "
        "max_consecutive_skips=100, warmup_operations=3, slack=1.5, "
        "worth=1, divisor=\"contributors\", granularity=\"shard\")");
  options.divisor = Divisor::kWorld;
  options.floor = std::chrono::microseconds(2500);
  CHECK(to_string(options).find("floor_ms=2.5,") != std::string::npos);
  CHECK(to_string(options).find("divisor=\"world\",") != std::string::npos);
  options.masks = Masks::kBucket;
  CHECK(to_string(options).find("granularity=\"bucket\")") != std::string::npos);
  options.log_full = LogFull::kLeave;
  CHECK(to_string(options).find("\"bucket\", on_log_full=\"exclude\")") !=
        std::string::npos);
}

TEST_CASE("every field is in the encoding and in the fingerprint") {
  const Change changes[] = {
      [](auto&) {},
      [](auto& o) { o.kind = Kind::kWaitAll; },
      [](auto& o) { o.divisor = Divisor::kWorld; },
      [](auto& o) { o.rebalance = true; },
      [](auto& o) { o.masks = Masks::kBucket; },
      [](auto& o) { o.min_contributors = 300; },
      [](auto& o) { o.floor = Duration(123'456'789'012); },
      [](auto& o) { o.ceiling = Duration(3'000'000'000'001); },
      [](auto& o) { o.max_consecutive_skips = 70'000; },
      [](auto& o) { o.warmup_operations = 9; },
      [](auto& o) { o.slack = 1.25; },
      [](auto& o) { o.log_full = LogFull::kLeave; },
      [](auto& o) { o.backups = 300; },
      [](auto& o) { o.backup_mode = BackupMode::kSubstitute; },
      [](auto& o) { o.backup_mode = BackupMode::kNPlusB; },
      [](auto& o) { o.backup_mode = BackupMode::kReplicate; },
      [](auto& o) { o.verify_shadows = true; },
  };
  std::set<uint64_t> prints;
  for (const Change& change : changes) {
    PolicyOptions options = skip_options();
    change(options);
    const PolicyOptions same = options;
    CHECK(fingerprint(options) == fingerprint(same));
    prints.insert(fingerprint(options));
    auto decoded = decode_policy(encode(options));
    REQUIRE(decoded.is_ok());
    CHECK(*decoded == options);
  }
  CHECK(prints.size() == std::size(changes));
}

std::string hex(const EncodedPolicy& bytes) {
  std::string text;
  for (std::byte b : bytes) {
    text += "0123456789abcdef"[std::to_integer<int>(b) >> 4];
    text += "0123456789abcdef"[std::to_integer<int>(b) & 15];
  }
  return text;
}

TEST_CASE("the wire form of the default skip policy does not change") {
  PolicyOptions options = skip_options();
  options.min_contributors = 3;
  options.divisor = Divisor::kWorld;
  CHECK(hex(encode(options)) ==
        "01010000"
        "03000000"
        "002d310100000000"
        "00e40b5402000000"
        "64000000"
        "03000000"
        "000000000000f83f"
        "000000000000f03f");
  options.masks = Masks::kBucket;
  CHECK(hex(encode(options)).substr(0, 8) == "01010001");
  options = {};
  options.rebalance = true;
  CHECK(hex(encode(options)).substr(0, 8) == "00000100");
  options = skip_options();
  options.log_full = LogFull::kLeave;
  CHECK(hex(encode(options)).substr(0, 8) == "01000200");
  options = skip_options();
  options.backups = 2;
  options.backup_mode = BackupMode::kReplicate;
  options.verify_shadows = true;
  CHECK(hex(encode(options)).substr(0, 8) == "01001c00");
  CHECK(hex(encode(options)).substr(56, 8) == "03000200");
}

TEST_CASE("a member may leave for a full log if a majority and a quorum remain") {
  PolicyOptions options = skip_options();
  CHECK_FALSE(can_leave_one(options, 4, 4));
  options.log_full = LogFull::kLeave;
  CHECK(can_leave_one(options, 4, 4));
  CHECK(can_leave_one(options, 3, 3));
  CHECK_FALSE(can_leave_one(options, 2, 2));
  options.min_contributors = 4;
  CHECK_FALSE(can_leave_one(options, 4, 4));
  CHECK(can_leave_one(options, 5, 5));
  options.min_contributors = 0;
  options.backups = 1;
  CHECK_FALSE(can_leave_one(options, 3,
                            3));  // backups may all have computed the same data shard
  CHECK(can_leave_one(options, 4, 4));
  options.backups = 2;
  CHECK_FALSE(can_leave_one(options, 4, 4));
}

TEST_CASE("nonsense on the wire is a protocol failure, not a policy") {
  for (size_t at : {size_t{0}, size_t{1}, size_t{2}, size_t{3}}) {
    EncodedPolicy bytes = encode(skip_options());
    bytes[at] = std::byte{0x20};
    const auto decoded = decode_policy(bytes);
    REQUIRE_FALSE(decoded.is_ok());
    CHECK(decoded.status().code() == Code::kProtocol);
    CHECK(decoded.status().message().find("same version") != std::string::npos);
  }
}

}  // namespace
}  // namespace aikido::straggler

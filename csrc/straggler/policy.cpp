// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "straggler/policy.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <concepts>

#include "base/check.h"
#include "base/mutation.h"

namespace aikido::straggler {
namespace {

constexpr uint32_t kMostSkips = 1'000'000;
constexpr uint32_t kMostWarmup = 64;
constexpr double kMostSlack = 100;
constexpr uint8_t kRebalanceFlag = 1 << 0;
constexpr uint8_t kLeaveFlag = 1 << 1;
constexpr int kModeShift = 2;
constexpr uint8_t kModeFlags = 3 << kModeShift;
constexpr uint8_t kVerifyFlag = 1 << 4;
constexpr uint8_t kKnownFlags = kRebalanceFlag | kLeaveFlag | kModeFlags | kVerifyFlag;
// Fields of the wire form.
constexpr int32_t kMostBackups = 65535;

Status misplaced(const char* argument, const char* policy) {
  return {Code::kInvalidArgument,
          concat(argument, " is an option of ", policy, " only.")};
}

const char* name_of(BackupMode mode) {
  constexpr const char* kNames[] = {"shadow", "substitute", "n_plus_b", "replicate"};
  return kNames[static_cast<size_t>(mode)];
}

// Name of the policy in Python. Without backups ActiveBackup is the same as Skip.
bool is_active_backup(const PolicyOptions& o) {
  return o.backups != 0 || o.backup_mode != BackupMode::kShadow || o.verify_shadows;
}
const char* name_of(const PolicyOptions& o) {
  return is_active_backup(o) ? "ActiveBackup" : "SkipStraggler";
}

Status refuse(const PolicyOptions& o, const char* argument, const std::string& value,
              const std::string& range) {
  return {Code::kInvalidArgument, concat(name_of(o), ": ", argument, " is ", value,
                                         " but must be ", range, ".")};
}

std::string in_ms(Duration d) {
  return concat(to_ms(d), " ms");
}

// Writes and reads integers in little endian, in order.
class Writer {
 public:
  explicit Writer(EncodedPolicy& out) : out_(out) {}
  template <std::unsigned_integral T>
  void put(T value) {
    for (size_t i = 0; i < sizeof(T); ++i)
      out_[at_++] = static_cast<std::byte>((value >> (8 * i)) & 0xff);
  }

 private:
  EncodedPolicy& out_;
  size_t at_ = 0;
};

class Reader {
 public:
  explicit Reader(std::span<const std::byte, kEncodedPolicyBytes> in) : in_(in) {}
  template <std::unsigned_integral T>
  T get() {
    uint64_t value = 0;
    for (size_t i = 0; i < sizeof(T); ++i)
      value |= std::to_integer<uint64_t>(in_[at_++]) << (8 * i);
    return static_cast<T>(value);
  }

 private:
  std::span<const std::byte, kEncodedPolicyBytes> in_;
  size_t at_ = 0;
};

Status validate_backups(const PolicyOptions& o, int32_t world_size) {
  const int32_t most = std::min(kMostBackups, world_size / 2);
  if (o.backups < 0 || o.backups > most)
    return refuse(o, "backups", concat(o.backups),
                  concat("between 0 and ", most,
                         ": at most as many as there are primaries, and the world "
                         "size of ",
                         world_size, " holds both"));
  if (o.backup_mode == BackupMode::kReplicate && 2 * o.backups != world_size)
    return refuse(o, "backups", concat(o.backups),
                  concat("half of the world size of ", world_size,
                         " with mode=\"replicate\": one for each primary"));
  if (o.backup_mode == BackupMode::kNPlusB && o.min_contributors != 0)
    return refuse(o, "min_contributors", concat(o.min_contributors),
                  "None with mode=\"n_plus_b\", which ends with as many as there are "
                  "primaries");
  const bool has_shadows =
      o.backup_mode == BackupMode::kShadow || o.backup_mode == BackupMode::kReplicate;
  if (o.verify_shadows && !has_shadows)
    return refuse(o, "verify_shadows", "True",
                  concat("False with mode=\"", name_of(o.backup_mode),
                         "\", where no two ranks compute the same"));
  return Status::ok();
}

}  // namespace

Status validate(const PolicyOptions& o, int32_t world_size) {
  if (world_size < 1) return refuse(o, "world_size", concat(world_size), "at least 1");
  if (o.kind == Kind::kWaitAll && is_active_backup(o))
    return misplaced("backups", "ActiveBackup");
  if (o.kind == Kind::kSkip && o.rebalance)
    return misplaced("rebalance=True", "WaitAll");
  if (o.kind == Kind::kWaitAll && o.masks != Masks::kShard)
    return misplaced("granularity=\"bucket\"", "SkipStraggler");
  if (o.kind == Kind::kWaitAll && o.log_full != LogFull::kWait)
    return misplaced("on_log_full=\"exclude\"", "SkipStraggler");
  if (o.kind == Kind::kWaitAll) return Status::ok();
  if (is_active_backup(o)) AIKIDO_TRY(validate_backups(o, world_size));
  const int32_t most = num_data_shards(o, world_size);
  if (o.min_contributors < 0 || o.min_contributors > most)
    return refuse(o, "min_contributors", concat(o.min_contributors),
                  concat("between 1 and the ",
                         most == world_size ? "world size" : "number of primaries",
                         " of ", most, ", or None for more than half of it"));
  if (o.floor < Duration::zero() || o.floor > kLongestDeadline)
    return refuse(o, "floor_ms", in_ms(o.floor),
                  concat("between 0 ms and ", in_ms(kLongestDeadline)));
  if (o.ceiling < o.floor || o.ceiling > kLongestDeadline)
    return refuse(o, "ceiling_ms", in_ms(o.ceiling),
                  concat("between the floor_ms of ", in_ms(o.floor), " and ",
                         in_ms(kLongestDeadline)));
  if (o.max_consecutive_skips < 1 || o.max_consecutive_skips > kMostSkips)
    return refuse(o, "max_consecutive_skips", concat(o.max_consecutive_skips),
                  concat("between 1 and ", kMostSkips));
  if (o.warmup_operations < 1 || o.warmup_operations > kMostWarmup)
    return refuse(o, "warmup_operations", concat(o.warmup_operations),
                  concat("between 1 and ", kMostWarmup));
  if (!(o.slack >= 1 && o.slack <= kMostSlack))
    return refuse(o, "slack", concat(o.slack), concat("between 1 and ", kMostSlack));
  if (!(o.worth >= 0 && o.worth <= 1))
    return refuse(o, "worth", concat(o.worth), "between 0 and 1");
  return Status::ok();
}

int32_t num_data_shards(const PolicyOptions& options, int32_t world_size) {
  return options.has_stand_ins() ? world_size - options.backups : world_size;
}

int32_t quorum_of(const PolicyOptions& options, int32_t world_size) {
  if (options.kind == Kind::kWaitAll && !mutated(Mutation::kStrictShrinks))
    return world_size;
  if (options.backup_mode == BackupMode::kNPlusB) return world_size - options.backups;
  if (options.min_contributors > 0) return options.min_contributors;
  return num_data_shards(options, world_size) / 2 + 1;
}

int32_t fewest_of(const PolicyOptions& options, int32_t world_size) {
  const int32_t quorum = quorum_of(options, world_size);
  const bool is_open = options.kind == Kind::kSkip && options.min_contributors == 0;
  if (!is_open || options.backups > 0 || world_size % 2 != 0) return quorum;
  return std::min(quorum, std::max(2, world_size / 2));
}

bool can_leave_one(const PolicyOptions& options, int32_t members, int32_t world_size) {
  // A backup may have computed the same data shard as another member.
  const int32_t unsure = options.has_stand_ins() ? options.backups : 0;
  return options.log_full == LogFull::kLeave && 2 * (members - 1) > members &&
         members - 1 - unsure >= quorum_of(options, world_size);
}

std::string to_string(const PolicyOptions& o) {
  if (o.kind == Kind::kWaitAll)
    return o.rebalance ? "WaitAll(rebalance=True)" : "WaitAll()";
  const std::string least =
      o.min_contributors == 0 ? "None" : concat(o.min_contributors);
  const std::string head =
      is_active_backup(o)
          ? concat("ActiveBackup(backups=", o.backups, ", mode=\"",
                   name_of(o.backup_mode),
                   "\", verify_shadows=", o.verify_shadows ? "True" : "False", ", ")
          : "SkipStraggler(";
  return concat(head, "min_contributors=", least, ", floor_ms=", to_ms(o.floor),
                ", ceiling_ms=", to_ms(o.ceiling),
                ", max_consecutive_skips=", o.max_consecutive_skips,
                ", warmup_operations=", o.warmup_operations, ", slack=", o.slack,
                ", worth=", o.worth, ", divisor=\"",
                o.divisor == Divisor::kContributors ? "contributors" : "world",
                "\", granularity=\"", o.masks == Masks::kShard ? "shard" : "bucket",
                "\"", o.log_full == LogFull::kLeave ? ", on_log_full=\"exclude\"" : "",
                ")");
}

EncodedPolicy encode(const PolicyOptions& o) {
  EncodedPolicy bytes{};
  Writer out(bytes);
  out.put(static_cast<uint8_t>(o.kind));
  out.put(static_cast<uint8_t>(o.divisor));
  out.put(static_cast<uint8_t>((o.rebalance ? kRebalanceFlag : 0) |
                               (o.log_full == LogFull::kLeave ? kLeaveFlag : 0) |
                               static_cast<uint8_t>(o.backup_mode) << kModeShift |
                               (o.verify_shadows ? kVerifyFlag : 0)));
  out.put(static_cast<uint8_t>(o.masks));
  out.put(static_cast<uint32_t>(o.min_contributors));
  out.put(static_cast<uint64_t>(o.floor.count()));
  out.put(static_cast<uint64_t>(o.ceiling.count()));
  out.put(o.max_consecutive_skips);
  out.put(static_cast<uint16_t>(o.warmup_operations));
  out.put(static_cast<uint16_t>(o.backups));
  out.put(std::bit_cast<uint64_t>(o.slack));
  out.put(std::bit_cast<uint64_t>(o.worth));
  return bytes;
}

Result<PolicyOptions> decode_policy(std::span<const std::byte, kEncodedPolicyBytes> b) {
  Reader in(b);
  const auto kind = in.get<uint8_t>();
  const auto divisor = in.get<uint8_t>();
  const auto flags = in.get<uint8_t>();
  const auto masks = in.get<uint8_t>();
  if (kind > static_cast<uint8_t>(Kind::kSkip) ||
      divisor > static_cast<uint8_t>(Divisor::kWorld) || (flags & ~kKnownFlags) != 0 ||
      masks > static_cast<uint8_t>(Masks::kBucket))
    return Status(
        Code::kProtocol,
        concat("a straggler policy on the wire has kind ", +kind, ", divisor ",
               +divisor, ", flags ", +flags, " and masks ", +masks,
               "; this version knows flags up to ", +kKnownFlags,
               " and 0 and 1 of the others: run the same version on all members."));
  PolicyOptions o;
  o.kind = static_cast<Kind>(kind);
  o.divisor = static_cast<Divisor>(divisor);
  o.rebalance = (flags & kRebalanceFlag) != 0;
  o.log_full = (flags & kLeaveFlag) != 0 ? LogFull::kLeave : LogFull::kWait;
  o.backup_mode = static_cast<BackupMode>((flags & kModeFlags) >> kModeShift);
  o.verify_shadows = (flags & kVerifyFlag) != 0;
  o.masks = static_cast<Masks>(masks);
  o.min_contributors = static_cast<int32_t>(in.get<uint32_t>());
  o.floor = Duration(static_cast<int64_t>(in.get<uint64_t>()));
  o.ceiling = Duration(static_cast<int64_t>(in.get<uint64_t>()));
  o.max_consecutive_skips = in.get<uint32_t>();
  o.warmup_operations = in.get<uint16_t>();
  o.backups = in.get<uint16_t>();
  o.slack = std::bit_cast<double>(in.get<uint64_t>());
  o.worth = std::bit_cast<double>(in.get<uint64_t>());
  return o;
}

uint64_t fingerprint(const PolicyOptions& options) {
  uint64_t hash = 0xcbf29ce484222325;
  for (std::byte b : encode(options)) {
    hash ^= std::to_integer<uint64_t>(b);
    hash *= 0x100000001b3;
  }
  return hash;
}

}  // namespace aikido::straggler

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Interface of policies: decides when an owner may stop waiting and close a shard. A
// policy is a plain object for one shard of one operation. It has no threads, no
// sockets and no clock. The progress thread feeds it and is the only caller.
//
// The options belong to the process group and must be equal on all members. The members
// compare fingerprint() and the encoding at the first contact.

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/rank_set.h"
#include "base/status.h"
#include "base/types.h"
#include "straggler/decision.h"
#include "straggler/pace.h"

namespace aikido::straggler {

enum class Kind : uint8_t { kWaitAll, kSkip };
// Divisor of a mean: the number of contributions in the result, or of all members.
enum class Divisor : uint8_t { kContributors, kWorld };
// Scope of one mask: a shard, or the whole bucket, which then has a single owner.
enum class Masks : uint8_t { kShard, kBucket };
// Rule for a member whose missed results fill the log. kWait: the others wait for it.
// kLeave: the others go on in a view without it, and it copies the state of another
// member.
enum class LogFull : uint8_t { kWait, kLeave };
// Work of a backup, and use of its contribution (data_shard.h).
enum class BackupMode : uint8_t {
  kShadow,      // the data shard of one primary, used if that primary is late
  kSubstitute,  // other data, used for any missing data shard
  kNPlusB,      // a data shard of its own; any N of all N + b end the operation
  kReplicate,   // backup j computes the data shard of primary j and sends it unasked
};

// Upper limit of floor and ceiling.
inline constexpr Duration kLongestDeadline = std::chrono::hours(1);

struct PolicyOptions {
  Kind kind = Kind::kWaitAll;
  Divisor divisor = Divisor::kContributors;
  // kWaitAll only: a member that is late again and again owns no shard (rebalance.h).
  bool rebalance = false;
  Masks masks = Masks::kShard;  // kSkip only
  // A shard never closes with fewer contributions: 1 .. world size. 0: more than half
  // of the members.
  int32_t min_contributors = 0;
  // Shortest and longest deadline: 0 <= floor <= ceiling <= 1 h. Two kinds of members
  // may get less than the floor: members that are late again and again (deadline.h),
  // and members whose bytes arrive too slowly (skip.h).
  Duration floor = std::chrono::milliseconds(20);
  Duration ceiling = std::chrono::seconds(10);
  // The group waits for a member after so many skips of it in a row: 1 .. 1,000,000.
  uint32_t max_consecutive_skips = 100;
  // Operations of one size class that wait up to the ceiling before deadlines are
  // learnt: 1 .. 64.
  uint32_t warmup_operations = 3;
  // Factor between an observed lag and the deadline made from it: 1 .. 100.
  double slack = 1.5;
  // Value of a missing contribution, in contributions: 0 .. 1 (deadline.h, Note [price
  // of a loss]).
  double worth = 1;
  LogFull log_full = LogFull::kWait;  // kSkip only
  // kSkip only. Number of backups, which are the last ranks; the other ranks are
  // primaries: 0 .. half of the members. min_contributors then counts data shards.
  int32_t backups = 0;
  BackupMode backup_mode = BackupMode::kShadow;
  // Backups send unasked, and an operation fails if a backup has other bits than its
  // primary. kShadow and kReplicate only.
  bool verify_shadows = false;

  // Contributions of backups may stand in for contributions of primaries.
  bool has_stand_ins() const {
    return backups > 0 && backup_mode != BackupMode::kNPlusB;
  }
  // Uses the view of the group, which moves shards and may exclude members.
  bool uses_view() const { return kind == Kind::kSkip || rebalance; }

  friend bool operator==(const PolicyOptions&, const PolicyOptions&) = default;
};

// kInvalidArgument with a sentence that names the argument, its value and its range.
Status validate(const PolicyOptions& options, int32_t world_size);

// Number of data shards of a full result: the primaries, or all members. Requires:
// validated options.
int32_t num_data_shards(const PolicyOptions& options, int32_t world_size);

// K, the number of contributions that make a quorum, with the default filled in. All
// members for kWaitAll, all primaries for kNPlusB. Requires: validated options.
int32_t quorum_of(const PolicyOptions& options, int32_t world_size);

// Smallest number of contributions of a result: K; or half of the members if
// min_contributors is 0 and that half is more than one (skip.h). Requires: validated
// options.
int32_t fewest_of(const PolicyOptions& options, int32_t world_size);

// True if one of `members` may be excluded for a full log: more than half of them and a
// quorum remain, also without backups. Requires: validated options.
bool can_leave_one(const PolicyOptions& options, int32_t members, int32_t world_size);

// Text form, as a Python user writes it: `WaitAll()`, `WaitAll(rebalance=True)`,
// `SkipStraggler(min_contributors=3, ...)`, `ActiveBackup(backups=1, ...)`.
std::string to_string(const PolicyOptions& options);

// The wire form, little endian: kind u8, divisor u8, flags u8, masks u8,
// min_contributors i32, floor ns i64, ceiling ns i64, max_consecutive_skips u32,
// warmup_operations u16, backups u16, slack f64, worth f64. Flags: bit 0 is rebalance,
// bit 1 LogFull::kLeave, bits 2 and 3 the backup mode, bit 4 verify_shadows.
inline constexpr size_t kEncodedPolicyBytes = 48;
using EncodedPolicy = std::array<std::byte, kEncodedPolicyBytes>;
EncodedPolicy encode(const PolicyOptions& options);
// kProtocol if one of the first four bytes is unknown. Ranges are not checked here, but
// by validate().
Result<PolicyOptions> decode_policy(std::span<const std::byte, kEncodedPolicyBytes> b);

// 64-bit hash of the encoding (FNV-1a). Equal options have equal hashes on every
// machine; different options have equal hashes with a probability of 2^-64.
uint64_t fingerprint(const PolicyOptions& options);

class Policy {
 public:
  virtual ~Policy() = default;

  // Waits only for `members` from now on; at first for all. Later calls only shrink it.
  virtual void expect(const RankSet& members) = 0;

  // `rank` is known to have called the operation. A contribution implies a call.
  // Requires: as on_arrival().
  virtual void on_called(Rank, TimePoint) {}

  // Another shard of the operation was closed without `missing`.
  virtual void on_closed_without(const RankSet& /*missing*/) {}

  // Half of the members are not enough for this shard: a quorum is required (skip.h).
  virtual void require_quorum() {}

  // `rank` has delivered its whole contribution to this shard; a second arrival changes
  // nothing. Requires: a rank of the world, and `now` never goes backwards.
  virtual void on_arrival(Rank rank, TimePoint now) = 0;

  // Bytes that have arrived of each member's contribution, by rank, of `total` bytes
  // each. nullopt: the link of that member must first bring other bytes. Call it when
  // progress_due() asks; progress_due() repeats until then.
  using Progress = Pace::Progress;
  virtual void on_progress(Progress /*here*/, uint64_t /*total*/, TimePoint /*now*/) {}
  [[nodiscard]] virtual std::optional<TimePoint> progress_due() const {
    return std::nullopt;
  }

  // The shard is closed now with arrived(); `here` and `total` as in on_progress().
  // Called once, as the last call.
  virtual void on_close(const Progress& /*here*/, uint64_t /*total*/,
                        TimePoint /*now*/) {}

  // Decision at `now`. The same arrivals, progress and history give the same answer.
  // Once the answer is close, it is close at every later time.
  [[nodiscard]] virtual Decision decide(TimePoint now) const = 0;

  // Time at which decide() turns to close if nothing happens before. nullopt: only an
  // arrival or the history can change the answer. Ask again after each of these events,
  // and after on_progress().
  [[nodiscard]] virtual std::optional<TimePoint> next_look() const = 0;

  // Ranks whose contributions have arrived: the mask if the shard closes now.
  [[nodiscard]] virtual const RankSet& arrived() const = 0;

  // t_q, the time of the quorum. nullopt before the quorum, and always for WaitAll.
  [[nodiscard]] virtual std::optional<TimePoint> quorum_time() const = 0;
};

}  // namespace aikido::straggler

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Decides when an owner may stop waiting and close a shard. A policy is a plain object
// for one shard of one operation: no threads, no sockets, no clock of its own. The
// progress thread feeds it and is the only caller.
//
// The options belong to the process group and must be equal on all of its members:
// fingerprint() and the encoding are for checking that at the first contact.

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
// What a mean divides by: those whose contribution is in, or all members.
enum class Divisor : uint8_t { kContributors, kWorld };
// What has one mask: a shard, or the whole bucket, which then has a single owner.
enum class Masks : uint8_t { kShard, kBucket };
// What becomes of a member for whose results the log has no room left: the others wait
// for it, or go on in a view without it, and it copies the state of one of them.
enum class LogFull : uint8_t { kWait, kLeave };
// What backups compute, and what their contributions are good for (data_shard.h).
enum class BackupMode : uint8_t {
  kShadow,      // the data shard of a primary: for its own, where that is late
  kSubstitute,  // data of nobody: for any data shard that is missing
  kNPlusB,      // a data shard of its own, and any N of all N + b end it
  kReplicate,   // backup j that of primary j, sent without being asked for
};

// Of floor and ceiling.
inline constexpr Duration kLongestDeadline = std::chrono::hours(1);

struct PolicyOptions {
  Kind kind = Kind::kWaitAll;
  Divisor divisor = Divisor::kContributors;
  // kWaitAll only: who is late again and again owns nothing (rebalance.h).
  bool rebalance = false;
  Masks masks = Masks::kShard;  // kSkip only
  // Contributions without which nothing closes: 1 .. world size. 0: more than half of
  // the members.
  int32_t min_contributors = 0;
  // Shortest and longest deadline, but for members that are late again and again and
  // get less than the floor (deadline.h), and those whose bytes come too slowly
  // (skip.h): 0 <= floor <= ceiling <= 1 h.
  Duration floor = std::chrono::milliseconds(20);
  Duration ceiling = std::chrono::seconds(10);
  // Skips in a row of one member after which the group waits for it: 1 .. 1,000,000.
  uint32_t max_consecutive_skips = 100;
  // Operations of a size that wait up to the ceiling, before deadlines are made from
  // what was seen: 1 .. 64.
  uint32_t warmup_operations = 3;
  // Head-room of a deadline over the lag that it is made from: 1 .. 100.
  double slack = 1.5;
  // Worth of a contribution that is left out, in contributions: 0 .. 1 (deadline.h,
  // Note [price of a loss]).
  double worth = 1;
  LogFull log_full = LogFull::kWait;  // kSkip only
  // kSkip only. The last so many ranks are backups, the others primaries: 0 .. half of
  // the members. min_contributors then counts data shards.
  int32_t backups = 0;
  BackupMode backup_mode = BackupMode::kShadow;
  // Backups contribute unasked, and an operation fails where one has other bits than
  // its primary. kShadow and kReplicate only.
  bool verify_shadows = false;

  // Contributions of backups may stand in for those of primaries.
  bool has_stand_ins() const {
    return backups > 0 && backup_mode != BackupMode::kNPlusB;
  }
  // Goes by the view of the group, which moves shards and may leave members out.
  bool uses_view() const { return kind == Kind::kSkip || rebalance; }

  friend bool operator==(const PolicyOptions&, const PolicyOptions&) = default;
};

// kInvalidArgument with a sentence that names the argument, its value and its range.
Status validate(const PolicyOptions& options, int32_t world_size);

// Of how many data shards a full result is: of the primaries, or of all members.
// Requires: validated options.
int32_t num_data_shards(const PolicyOptions& options, int32_t world_size);

// K, the number of contributions that make a quorum, with the default filled in; all
// for kWaitAll, all primaries for kNPlusB.
// Requires: validated options.
int32_t quorum_of(const PolicyOptions& options, int32_t world_size);

// The fewest contributions of which a result is made: K, or half of the members where
// min_contributors is open, if that is more than one (skip.h). Requires: validated
// options.
int32_t fewest_of(const PolicyOptions& options, int32_t world_size);

// Whether one of `members` may be left out for a full log: more than half of them and a
// quorum are left, also without backups. Requires: validated options.
bool can_leave_one(const PolicyOptions& options, int32_t members, int32_t world_size);

// As a Python user writes it: `WaitAll()`, `WaitAll(rebalance=True)`,
// `SkipStraggler(min_contributors=3, ...)`, `ActiveBackup(backups=1, ...)`.
std::string to_string(const PolicyOptions& options);

// The wire form, little endian: kind u8, divisor u8, flags u8, masks u8,
// min_contributors i32, floor ns i64, ceiling ns i64, max_consecutive_skips u32,
// warmup_operations u16, backups u16, slack f64, worth f64. Flags: bit 0 is rebalance,
// bit 1 LogFull::kLeave, bits 2 and 3 the backup mode, bit 4 verify_shadows.
inline constexpr size_t kEncodedPolicyBytes = 48;
using EncodedPolicy = std::array<std::byte, kEncodedPolicyBytes>;
EncodedPolicy encode(const PolicyOptions& options);
// kProtocol when one of the first four bytes is something else. Does not check ranges:
// validate() does.
Result<PolicyOptions> decode_policy(std::span<const std::byte, kEncodedPolicyBytes> b);

// A 64-bit hash of the encoding (FNV-1a): equal for equal options on every machine, and
// different for different ones but for one chance in 2^64.
uint64_t fingerprint(const PolicyOptions& options);

class Policy {
 public:
  virtual ~Policy() = default;

  // Only these are waited for; at first everybody. Again only with fewer.
  virtual void expect(const RankSet& members) = 0;

  // `rank` is known to have called the operation; who has contributed has. Requires
  // what on_arrival() does.
  virtual void on_called(Rank, TimePoint) {}

  // Another shard of the operation is closed without `missing`.
  virtual void on_closed_without(const RankSet& /*missing*/) {}

  // Fewer contributions than a quorum are not enough (skip.h).
  virtual void require_quorum() {}

  // `rank` has delivered its whole contribution to this shard. Requires: a rank of the
  // world, and that `now` never goes backwards. A second arrival changes nothing.
  virtual void on_arrival(Rank rank, TimePoint now) = 0;

  // How much is here of the contribution of each member, by rank, of `total` bytes
  // each; nothing: its link has something else to bring first. When progress_due() says
  // so, which it does again until it has been told.
  using Progress = Pace::Progress;
  virtual void on_progress(Progress /*here*/, uint64_t /*total*/, TimePoint /*now*/) {}
  [[nodiscard]] virtual std::optional<TimePoint> progress_due() const {
    return std::nullopt;
  }

  // The shard is closed now, with arrived(); `here` and `total` as in on_progress().
  // Once, and nothing else is called afterwards.
  virtual void on_close(const Progress& /*here*/, uint64_t /*total*/,
                        TimePoint /*now*/) {}

  // What to do at `now`. With the same arrivals, progress and history the answer is the
  // same, and once it is close, it is close at every later time.
  [[nodiscard]] virtual Decision decide(TimePoint now) const = 0;

  // When decide() turns to close if nothing happens before: ask then. Empty: only an
  // arrival or the history can change the answer. Ask again after each of those, and
  // after on_progress().
  [[nodiscard]] virtual std::optional<TimePoint> next_look() const = 0;

  // Whose contributions are here: the mask, if it closes now.
  [[nodiscard]] virtual const RankSet& arrived() const = 0;

  // t_q, when the quorum was reached. Empty before that, and always for WaitAll.
  [[nodiscard]] virtual std::optional<TimePoint> quorum_time() const = 0;
};

}  // namespace aikido::straggler

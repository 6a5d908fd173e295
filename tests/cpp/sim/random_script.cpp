// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "sim/random_script.h"

#include <algorithm>
#include <random>

namespace aikido::sim {

using collectives::Call;
using collectives::CallKind;
using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

namespace {

constexpr uint64_t kMostOps = 16;

class Writer {
 public:
  Writer(uint64_t seed, int32_t members)
      : random_(seed),
        options_(seed ^ 0x5bd1e995),
        backups_(seed ^ 0x2545f491),
        weights_(seed ^ 0x632be59b),
        roles_(seed ^ 0x7f4a7c15) {
    has_weights_ = weights_() % 4 == 0;
    script_.seed = seed;
    // Few members are enough for every rule, and many members are slow.
    constexpr int32_t kSizes[] = {2, 3, 3, 3, 4, 4, 4, 5, 5, 6, 7, 8};
    script_.members = members > 0 ? members : kSizes[below(12)];
  }

  Script write() {
    script_.chunk_bytes = 64 + below(8) * 64;
    script_.min_shard_bytes = one_in(3) ? 1 << 20 : 64;
    if (script_.seed % 2 == 0) script_.lead_bytes = 1;  // window of two chunks
    // Small limits, but larger than most schedules need.
    if (one_in(6)) script_.log_bytes = kMostOps << 10;
    if (one_in(10)) script_.window_bytes = kMostOps << 10;
    if (one_in(12)) return calm();
    write_network();
    write_operations();
    write_calls();
    if (one_in(2)) write_slowness();
    if (one_in(3)) write_stops();
    if (one_in(3)) write_losses();
    if (one_in(25)) script_.timeout = milliseconds(5 + below(300));
    if (one_in(3)) write_passes();
    if (roles_() % 3 == 0) write_roles();
    sort();
    return std::move(script_);
  }

 private:
  uint64_t below(uint64_t n) { return random_() % n; }
  bool one_in(uint64_t n) { return below(n) == 0; }
  int32_t some_rank() {
    return static_cast<int32_t>(below(static_cast<uint64_t>(script_.members)));
  }
  int32_t other_rank(int32_t rank) {
    const auto others = static_cast<uint64_t>(script_.members - 1);
    return (rank + 1 + static_cast<int32_t>(below(others))) % script_.members;
  }
  // In whole microseconds, which are easier to read.
  Duration up_to(Duration most) {
    return microseconds(below(1 + static_cast<uint64_t>(most / microseconds(1))));
  }
  Event& add(Duration at, EventKind kind, int32_t a, int32_t b = kEvery) {
    Event& event = script_.events.emplace_back();
    event.at = at;
    event.kind = kind;
    event.a = a;
    event.b = b;
    return event;
  }
  void sort() {
    std::stable_sort(script_.events.begin(), script_.events.end(),
                     [](const Event& x, const Event& y) { return x.at < y.at; });
  }
  // A time at which operations run.
  Duration moment() { return up_to(one_in(2) ? last_call_ : milliseconds(10)); }

  Call partial() {
    Call call;
    call.dtype = DType::kFloat32;
    call.op = one_in(2) ? ReduceOp::kAvg : ReduceOp::kSum;
    const bool has_small_log = script_.log_bytes < 1 << 20;
    call.count = one_in(4)                    ? below(8)
                 : has_small_log || one_in(8) ? below(600)
                                              : below(120);
    if (has_scatter_ && options_() % 2 == 0) {
      call.kind = CallKind::kReduceScatter;
      call.count *= static_cast<uint64_t>(script_.members);
    }
    call.shape.num_dims = 1;
    call.shape.dims[0] = call.count;
    call.policy = policy_;
    const bool is_scattered = call.kind == CallKind::kReduceScatter;
    if (is_scattered) call.policy.masks = straggler::Masks::kShard;
    if (has_rebalance_ && !is_scattered && options_() % 2 == 0) {
      call.policy = {};
      call.policy.rebalance = true;
    }
    if (has_backups_ && call.policy.kind == straggler::Kind::kSkip && !is_scattered &&
        backups_() % 4 != 0)
      back_up(call.policy);
    const bool takes_weights = call.policy.backups == 0 &&
                               call.policy.divisor == straggler::Divisor::kContributors;
    if (has_weights_ && takes_weights && weights_() % 4 != 0) {
      call.op = ReduceOp::kAvg;
      call.is_weighted = true;
    }
    return call;
  }

  // All calls of a script have the same backup options, because they share the history
  // of the members.
  void back_up(straggler::PolicyOptions& policy) {
    using straggler::BackupMode;
    policy.backups = num_backups_;
    policy.backup_mode = mode_;
    policy.verify_shadows = verify_;
    if (mode_ == BackupMode::kNPlusB) policy.min_contributors = 0;
    policy.min_contributors = std::min(
        policy.min_contributors, straggler::num_data_shards(policy, script_.members));
  }

  void write_backups() {
    using straggler::BackupMode;
    has_backups_ = backups_() % 4 == 0;
    const auto most = static_cast<uint64_t>(script_.members / 2);
    num_backups_ = static_cast<int32_t>(1 + backups_() % most);
    constexpr BackupMode kModes[] = {BackupMode::kShadow,     BackupMode::kShadow,
                                     BackupMode::kShadow,     BackupMode::kSubstitute,
                                     BackupMode::kSubstitute, BackupMode::kNPlusB,
                                     BackupMode::kReplicate};
    mode_ = kModes[backups_() % std::size(kModes)];
    if (mode_ == BackupMode::kReplicate) {
      num_backups_ = script_.members / 2;
      if (script_.members % 2 != 0) mode_ = BackupMode::kShadow;
    }
    verify_ = backups_() % 5 == 0 &&
              (mode_ == BackupMode::kShadow || mode_ == BackupMode::kReplicate);
    // Half of the shadows of a script compute this data shard. So a primary that is
    // dead or late in the whole script is covered often.
    favourite_ = static_cast<int32_t>(
        backups_() % static_cast<uint64_t>(script_.members - num_backups_));
  }

  // Chooses the data shard that a backup computes.
  void choose_data(Event& event) {
    const straggler::PolicyOptions& policy = script_.ops[event.op - 1].policy;
    if (policy.backup_mode != straggler::BackupMode::kShadow ||
        !straggler::is_backup(policy, Rank(event.a), script_.members))
      return;
    const auto num = static_cast<uint64_t>(script_.members - num_backups_);
    event.data_shard =
        backups_() % 2 == 0 ? favourite_ : static_cast<int32_t>(backups_() % num);
  }

  Call strict() {
    Call call = partial();
    call.kind = CallKind::kAllreduce;
    call.policy = {};
    const uint64_t which = below(6);
    if (which == 0) {
      call = {};
      call.kind = CallKind::kBarrier;
    } else if (which == 1) {
      call.kind = CallKind::kBroadcast;
      call.op = ReduceOp::kSum;
      call.is_weighted = false;
      call.root = Rank(some_rank());
    } else if (which == 2) {
      call.kind = CallKind::kAllgather;
      call.op = ReduceOp::kSum;
      call.is_weighted = false;
    }
    return call;
  }

  void write_policy() {
    write_backups();
    policy_.kind = straggler::Kind::kSkip;
    policy_.floor = milliseconds(1 + below(20));
    policy_.ceiling = policy_.floor + milliseconds(below(60));
    policy_.min_contributors =
        one_in(2)
            ? 0
            : static_cast<int32_t>(1 + below(static_cast<uint64_t>(script_.members)));
    policy_.max_consecutive_skips =
        static_cast<uint32_t>(one_in(3) ? 1 + below(4) : 50);
    policy_.warmup_operations = static_cast<uint32_t>(1 + below(4));
    if (one_in(4)) policy_.divisor = straggler::Divisor::kWorld;
    if (options_() % 5 == 0) policy_.masks = straggler::Masks::kBucket;
    has_rebalance_ = options_() % 5 == 0;
    has_scatter_ = options_() % 4 == 0;
    // This rank is late in every operation, so that it should own nothing.
    if (has_rebalance_ && options_() % 2 == 0)
      always_late_ =
          static_cast<size_t>(options_()) % static_cast<size_t>(script_.members);
  }

  void write_operations() {
    write_policy();
    const uint64_t num = 1 + below(one_in(3) ? kMostOps : 6);
    const bool has_strict = one_in(3);
    for (uint64_t i = 0; i < num; ++i)
      script_.ops.push_back(has_strict && one_in(3) ? strict() : partial());
  }

  void write_network() {
    const Duration most = one_in(2) ? microseconds(200) : microseconds(3000);
    if (one_in(3)) {
      add({}, EventKind::kDelay, kEvery, kEvery).duration = up_to(most);
      return;
    }
    for (int32_t a = 0; a < script_.members; ++a)
      for (int32_t b = 0; b < script_.members; ++b)
        if (a != b) add({}, EventKind::kDelay, a, b).duration = up_to(most);
    // Frames of different lanes have no order.
    for (uint64_t i = below(4); i > 0; --i) {
      const int32_t a = some_rank();
      Event& event = add(up_to(milliseconds(20)), EventKind::kDelay, a, other_rank(a));
      event.lane = one_in(2) ? transport::Lane::kControl : transport::Lane::kBulk;
      event.duration = up_to(milliseconds(30));
    }
  }

  void write_calls() {
    const auto n = static_cast<size_t>(script_.members);
    const Duration usual = one_in(2) ? microseconds(200) : microseconds(4000);
    const Duration late = one_in(2) ? milliseconds(20) : milliseconds(200);
    const uint64_t lateness = one_in(3) ? 2 : 8;  // one call in so many
    waits_ = one_in(2) || always_late_ < n;
    for (size_t r = 0; r < n; ++r) {
      Duration at{};
      for (uint64_t op = 1; op <= script_.ops.size(); ++op) {
        at += up_to(one_in(lateness) ? late : usual);
        if (r == always_late_) at += milliseconds(30);
        Event& event = add(at, EventKind::kCall, static_cast<int32_t>(r));
        event.op = op;
        event.waits = waits_;
        event.in_place = one_in(2);
        event.priority = static_cast<Priority>(below(3));
        choose_data(event);
      }
      last_call_ = std::max(last_call_, at + Duration(1));
    }
  }

  // Slow and stalled links, of one member or of any.
  void write_slowness() {
    const int32_t slow = some_rank();
    for (uint64_t i = 1 + below(4); i > 0; --i) {
      int32_t a = one_in(2) ? slow : some_rank();
      int32_t b = one_in(3) ? kEvery : other_rank(a);
      if (one_in(3) && b != kEvery) std::swap(a, b);
      if (one_in(2)) {
        add(moment(), EventKind::kRate, a, b).rate = 5'000 + below(200'000);
        if (one_in(2)) add(last_call_, EventKind::kRate, a, b);
      } else {
        add(moment(), EventKind::kStall, a, b).duration = up_to(milliseconds(300));
      }
    }
  }

  void write_stops() {
    if (one_in(4)) {
      script_.beat_every = milliseconds(20);
      script_.silent_after = milliseconds(60 + below(100));
    }
    for (uint64_t i = 1 + below(2); i > 0; --i)
      add(moment(), EventKind::kStop, some_rank()).duration =
          up_to(one_in(2) ? milliseconds(30) : milliseconds(400));
  }

  void write_losses() {
    for (uint64_t i = one_in(3) ? 2 : 1; i > 0; --i) {
      const int32_t a = some_rank();
      if (one_in(2)) {
        add(moment(), EventKind::kKill, a);
      } else {
        Event& event = add(moment(), EventKind::kCut, a, other_rank(a));
        if (one_in(2)) event.duration = up_to(milliseconds(10));
      }
    }
  }

  // Late members leave and copy the state of other members.
  void write_passes() {
    // Calls under way at the same time may exceed the limit at the same time.
    if (waits_) script_.log_bytes = (3 + below(8)) << 10;
    for (Call& call : script_.ops)
      if (call.policy.kind == straggler::Kind::kSkip)
        call.policy.log_full = straggler::LogFull::kLeave;
    const int32_t late = some_rank();
    const Duration lateness = up_to(milliseconds(400));
    for (Event& event : script_.events)
      if (event.kind == EventKind::kCall && event.a == late) event.at += lateness;
    for (uint64_t i = 1 + below(3); i > 0; --i) {
      const int32_t a = one_in(4) ? some_rank() : late;
      add(moment() + up_to(lateness), EventKind::kPass, a, other_rank(a));
    }
  }

  // A part of the members is reliable. Often all others vanish at once, in the middle
  // of other events, and the members agree on those that are left.
  void write_roles() {
    const auto n = static_cast<uint64_t>(script_.members);
    const uint64_t first = roles_() % n;
    const uint64_t num = 1 + roles_() % std::min<uint64_t>(n, 3);
    for (uint64_t i = 0; i < num; ++i)
      script_.reliable.push_back(static_cast<int32_t>((first + i) % n));
    const auto some_time = [&](Duration most) {
      return microseconds(roles_() % static_cast<uint64_t>(most / microseconds(1)));
    };
    const Duration at = some_time(last_call_ + milliseconds(2));
    const bool vanish = roles_() % 3 != 0;
    const bool at_once = roles_() % 2 == 0;
    const bool one_returns = roles_() % 3 == 0;
    for (uint64_t i = num; vanish && i < n; ++i) {
      const auto rank = static_cast<int32_t>((first + i) % n);
      // The last one is excluded and rejoins meanwhile.
      if (one_returns && i + 1 == n) {
        add(std::max(Duration{}, at - some_time(milliseconds(150))), EventKind::kStop,
            rank)
            .duration = some_time(milliseconds(200));
      } else {
        add(at_once ? at : at + some_time(milliseconds(3)), EventKind::kKill, rank);
      }
    }
    const bool is_small = vanish && roles_() % 4 != 0;
    for (Call& call : script_.ops)
      if (is_small && call.policy.backups == 0 &&
          call.policy.kind == straggler::Kind::kSkip)
        call.policy.min_contributors = 1;
    if (roles_() % 2 == 0) return;
    for (uint64_t i = 1 + roles_() % 2; i > 0; --i)
      for (int32_t r = 0; r < script_.members; ++r)
        add(at + some_time(milliseconds(30)), EventKind::kAgree, r);
  }

  // No member is late, and only contributions and results arrive in time.
  Script calm() {
    write_policy();
    // With verification, and in the other modes, owners do not wait for the primaries
    // alone.
    if (verify_ || mode_ == straggler::BackupMode::kNPlusB ||
        mode_ == straggler::BackupMode::kReplicate)
      has_backups_ = false;
    policy_.floor = milliseconds(50);
    policy_.ceiling = seconds(1);
    script_.log_bytes = script_.window_bytes = 1 << 20;
    add({}, EventKind::kDelay, kEvery, kEvery).duration = milliseconds(1);
    Event& control = add({}, EventKind::kDelay, kEvery, kEvery);
    control.lane = transport::Lane::kControl;
    control.duration = seconds(5);
    script_.calm = milliseconds(2);
    const uint64_t num = 1 + below(8);
    for (uint64_t op = 1; op <= num; ++op) {
      script_.ops.push_back(partial());
      for (int32_t r = 0; r < script_.members; ++r) {
        Event& event =
            add(milliseconds(10 * op) + up_to(milliseconds(5)), EventKind::kCall, r);
        event.op = op;
        // Otherwise the backup gets the result header first, like a late member.
        if (straggler::is_backup(script_.ops.back().policy, Rank(r), script_.members))
          event.at = milliseconds(10 * op) - milliseconds(1);
        choose_data(event);
        event.in_place = one_in(2);
      }
    }
    sort();
    return std::move(script_);
  }

  std::mt19937_64 random_;
  std::mt19937_64 options_;  // for options of policies
  std::mt19937_64
      backups_;  // for the number of backups, their mode and their data shards
  std::mt19937_64 weights_;  // for the operations with weights
  std::mt19937_64 roles_;    // for the roles, bulk evictions and agreements
  bool has_weights_ = false;
  bool has_backups_ = false;
  int32_t num_backups_ = 0;
  straggler::BackupMode mode_{};
  bool verify_ = false;
  int32_t favourite_ = 0;
  bool has_rebalance_ = false;
  bool has_scatter_ = false;
  size_t always_late_ = SIZE_MAX;
  Script script_;
  straggler::PolicyOptions policy_;
  Duration last_call_{1};
  bool waits_ = false;
};

}  // namespace

Script random_script(uint64_t seed, int32_t members) {
  return Writer(seed, members).write();
}

}  // namespace aikido::sim

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Checks of the guarantees that every run must keep, under any delays, stops, kills and
// cuts. They are told of all that the callers of a group see, and name the first broken
// guarantee. Pure.
//
//   S1 same result    All members that expose a shard expose one mask and the same
//                     bytes. After a view change this holds for the members of the
//                     newest view. An owner closes a shard only after it has heard
//                     from more than half of its view.
//   S2 counted once   The bytes are the fold, in rank order, of the inputs in the mask.
//                     A rejoined member contributes nothing from before its return.
//                     Each data shard counts once, from its primary or from the
//                     named backup.
//   S3 right divisor  The result is multiplied by the scale that belongs to its mask. A
//                     weighted result names the sum of the weights of its mask.
//   S5 as asked       Strict operations are full, or end with an error.
//   S6 an answer      Each call ends once, and in time. An error needs a fault, and
//                     names a rank. The memory of a call does not change after its end.
//   S7 a way back     A rank that must return in the script is in the view at the end.
//   L1 cost           Without late members an operation takes only contributions and
//                     results, in two hops.
//   L6 bounded log    Results that wait for a late caller stay within their limit.
//
// S4 (the same bits) follows from S2, because inputs show the order of their sum.

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "collectives/outcome.h"
#include "collectives/shard_plan.h"
#include "harness/reduce_data.h"
#include "sim/script.h"
#include "sim/weights.h"

namespace aikido::sim {

using testing::Bytes;

// The view that a member is in: its number and a bit for each rank.
struct SeenView {
  uint64_t number = 1;
  uint64_t members = 0;
  bool contains(int32_t rank) const { return (members >> rank & 1) != 0; }
  friend bool operator==(const SeenView&, const SeenView&) = default;
};

// With more members only the times are checked.
inline constexpr int32_t kMaxCheckedMembers = 64;

class Checks {
 public:
  // `members_tolerated`: number of killed members, or cut connections, with which
  // partial operations of the other members still end well. `script` outlives this
  // object.
  Checks(const Script& script, int32_t members_tolerated);

  // Contribution of a member to an operation.
  const Bytes& input(int32_t rank, uint64_t op) const {
    return inputs_[op - 1][static_cast<size_t>(rank)];
  }
  // Weight of this contribution. Requires: the operation is weighted.
  double weight(int32_t rank, uint64_t op) const { return weights_.of(rank, op); }

  // `data_shard`: the data shard that the rank contributes; straggler::kAnyDataShard if
  // it belongs to no primary.
  void on_call(int32_t rank, uint64_t op, TimePoint now, int32_t data_shard);
  void on_end(int32_t rank, uint64_t op, const Status& status,
              const collectives::Outcome& outcome, const Bytes& output, TimePoint now);
  // `rank` continues from the state of `giver`, which is made of all results up to
  // `op`. These results count as results of `rank`.
  void on_pass(int32_t rank, int32_t giver, uint64_t op);
  // True if all operations of the state ended well on the giver, and `rank` may skip
  // the operations that it lacks.
  bool may_pass(int32_t rank, int32_t giver, uint64_t op) const;
  // The memory of a call was written to after the end of the call.
  void on_memory_touched(int32_t rank, uint64_t op);
  void on_view(int32_t rank, const SeenView& view);
  // At the end of a run: the rank is refused, or has not returned yet.
  void on_excluded(int32_t rank, bool is_refused);
  void on_stop(int32_t rank, TimePoint until);
  // The rank counts for nothing from now on.
  void on_kill(int32_t rank);
  // `rank` notices that it has lost `other`.
  void on_lost(int32_t rank, int32_t other);
  void on_cut(int32_t a, int32_t b);
  // A frame never arrives, and neither do the frames behind it. This is like a cut
  // connection that no member notices.
  void on_held(int32_t from, int32_t to);
  // A frame leaves.
  void on_sent(int32_t from, const transport::FrameHeader& header);
  // A frame is at a member, which takes its payload or not.
  void on_taken(int32_t rank, int32_t from, const transport::FrameHeader& header,
                bool is_taken);
  // A part of a result is at a member.
  void on_result(int32_t rank, uint64_t op, uint64_t bytes);
  // The run is over.
  void on_finish(TimePoint now);

  // The first broken guarantee; empty if there is none.
  const std::string& violation() const { return violation_; }
  // Numbers of calls that ended complete, partial, with an error.
  const std::array<uint64_t, 3>& num_ends() const { return num_ends_; }
  uint64_t num_views() const { return newest_.number; }

 private:
  struct Exposed {
    bool is_called = false, has_ended = false, is_ok = false;
    TimePoint called_at{};
    uint64_t called_in_step = 0;
    std::vector<uint64_t> masks;                             // by shard
    std::vector<uint64_t> ends;                              // by shard, in elements
    std::vector<std::vector<straggler::StandIn>> stand_ins;  // by shard
    std::vector<Rank> out;
    std::string reason;
    Duration deadline{};
    int32_t giver = 0;  // rank whose state it continues; itself without a copy
    int32_t data_shard = straggler::kAnyDataShard;
    uint64_t heard = 0;       // ranks that have called or know it, as far as known
    bool is_not_for = false;  // it rejoined while the operation was open
  };
  struct Op {
    collectives::Call call;
    collectives::ShardPlan plan;
    std::vector<Exposed> by_rank;
    TimePoint first_called = TimePoint::max(), last_called{}, last_end{};
    // Members of all views since the first call, as bits.
    uint64_t stayed = 0;
    // Members in the view of every live member at the first call, as bits.
    uint64_t seen = 0;
    // Members that had stayed until a view excluded needed members, as bits; 0: none
    // has.
    uint64_t had_stayed = 0;
    uint64_t oldest_view = 1;     // of a live member at the first call
    std::set<uint16_t> closed{};  // shards with a sent result
    uint64_t num_contributions = 0, num_results = 0, num_others = 0;  // messages
  };
  Op& at(uint64_t op) { return ops_[op - 1]; }
  bool is_too_large() const { return script_.members > kMaxCheckedMembers; }
  void broken(const std::string& what);
  void check_error(int32_t rank, uint64_t op, const Status& status);
  bool must_succeed(int32_t rank, const Op& op) const;
  void note_known(Op& op);
  void note_excluded(Op& op, const SeenView& view);
  bool is_known_open(const Op& op, uint64_t members) const;
  bool is_loss_known(uint64_t members) const;
  bool are_enough(const Op& op, uint64_t members) const;
  int32_t num_live(uint64_t members) const;
  void check_strict(int32_t rank, uint64_t op, const collectives::Outcome& outcome,
                    const Bytes& output);
  void check_partial(int32_t rank, uint64_t op, const collectives::Outcome& outcome,
                     const Bytes& output);
  void check_scattered(int32_t rank, uint64_t op, const collectives::Outcome& outcome,
                       const Bytes& output);
  void check_shard(const std::string& what, uint64_t op,
                   const collectives::ShardOutcome& shard, const uint8_t* data,
                   size_t begin, size_t end);
  void check_weight(const std::string& what, uint64_t op, uint64_t mask,
                    std::optional<double> weight);
  void check_same(uint64_t op);
  void note_own_question(int32_t rank);
  void check_heard(int32_t rank, uint64_t op, const transport::FrameHeader& header);
  void note_returns(const SeenView& before);
  bool is_exposed(const Op& op, uint64_t members) const;
  void check_calm(uint64_t op);
  uint64_t check_stand_ins(const std::string& what, uint64_t op,
                           const collectives::ShardOutcome& shard);
  double scale_of(const collectives::Call& call, int32_t contributors) const;
  // The fold of the inputs of `mask` from byte `begin` to byte `end`. The input of a
  // substitute replaces that of its primary.
  const Bytes& folded(uint64_t op, size_t begin, size_t end, uint64_t mask,
                      double scale, const std::vector<straggler::StandIn>& stand_ins);

  const Script& script_;
  int32_t tolerated_;
  Weights weights_;
  std::vector<std::vector<Bytes>> inputs_;  // by operation and rank
  std::vector<Op> ops_;
  // Keys: operation, first byte, end, mask, digest of the stand-ins.
  std::map<std::array<uint64_t, 5>, Bytes> folds_;
  SeenView newest_;
  std::map<uint64_t, uint64_t> members_;  // by view number
  std::vector<SeenView> views_;           // by rank
  std::vector<uint64_t> since_;           // by rank: the view in which it joined
  // By operation: ranks that had called it when the newest view was first seen.
  std::vector<uint64_t> called_at_view_;
  std::vector<TimePoint> stopped_until_;            // by rank
  std::vector<std::map<uint64_t, uint64_t>> kept_;  // by rank: bytes by operation
  uint64_t killed_ = 0;                             // a bit for each rank
  std::set<uint64_t> cut_;                          // both bits of each pair
  // Step in which the first member noticed that it had lost the second.
  std::map<std::pair<int32_t, int32_t>, uint64_t> noticed_;
  // By rank: step in which it was asked for its state in its view; 0: not yet.
  std::vector<uint64_t> asked_;
  uint64_t step_ = 0;  // number of counted steps
  int32_t num_lost_ = 0;
  bool may_fail_ = false;
  std::array<uint64_t, 3> num_ends_{};
  std::string violation_;
};

}  // namespace aikido::sim

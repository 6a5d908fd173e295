// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// What every run must keep to, whatever is delayed, stopped, killed or cut: told of all
// that the callers of a group see, names the first promise that is broken. Pure.
//
//   S1 same result    all that expose a shard expose one mask and the same bytes; after
//                     a change of the view: all members of the newest
//                     (what a removed member exposed more than half had heard of)
//   S2 counted once   the bytes are the fold, in rank order, of the inputs in the mask;
//                     nothing of the former life of a member that is back
//                     with backups of the data shards in it, each once, from its
//                     primary or the backup that is named
//   S3 right divisor  times the scale that belongs to the mask
//   S5 as asked       strict operations are full, or end with an error
//   S6 an answer      each call ends once, in time; with an error only where a fault
//                     is, and the error names a rank; its memory is left alone after it
//   S7 a way back     who must return, as the script has it, is in the view at the end
//   L1 cost           with nobody late: contributions and results, in two hops
//   L6 bounded log    results that wait for a late caller
// S4 (the same bits) follows from S2, because inputs show the order of their sum.

#include <array>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "collectives/outcome.h"
#include "collectives/shard_plan.h"
#include "harness/reduce_data.h"
#include "sim/script.h"

namespace aikido::sim {

using testing::Bytes;

// The view that a member is in: its number and a bit for each rank.
struct SeenView {
  uint64_t number = 1;
  uint64_t members = 0;
  bool contains(int32_t rank) const { return (members >> rank & 1) != 0; }
  friend bool operator==(const SeenView&, const SeenView&) = default;
};

// Of more members only the times are checked.
inline constexpr int32_t kMaxCheckedMembers = 64;

class Checks {
 public:
  // `members_tolerated`: so many may be killed, or connections cut, while partial
  // operations of the others still end well. `script` outlives this.
  Checks(const Script& script, int32_t members_tolerated);

  // What a member contributes to an operation.
  const Bytes& input(int32_t rank, uint64_t op) const {
    return inputs_[op - 1][static_cast<size_t>(rank)];
  }

  // `data_shard`: what it contributes, straggler::kAnyDataShard if it is of nobody.
  void on_call(int32_t rank, uint64_t op, TimePoint now, int32_t data_shard);
  void on_end(int32_t rank, uint64_t op, const Status& status,
              const collectives::Outcome& outcome, const Bytes& output, TimePoint now);
  // `rank` goes on from the state of `giver`, which is made of all results up to `op`:
  // they count as its own.
  void on_pass(int32_t rank, int32_t giver, uint64_t op);
  // All that the state is made of ended well, and what the rank lacks may be skipped.
  bool may_pass(int32_t rank, int32_t giver, uint64_t op) const;
  // Somebody wrote to the memory of a call that had ended.
  void on_memory_touched(int32_t rank, uint64_t op);
  void on_view(int32_t rank, const SeenView& view);
  // At the end: the rank cannot come back by itself, or has not yet.
  void on_left_out(int32_t rank, bool is_refused);
  void on_stop(int32_t rank, TimePoint until);
  // It counts for nothing from here on.
  void on_kill(int32_t rank);
  // `rank` notices that it has lost `other`.
  void on_lost(int32_t rank, int32_t other);
  void on_cut(int32_t a, int32_t b);
  // A frame never arrives, nor does what is behind it: as good as cut off, but nobody
  // hears of it.
  void on_held(int32_t from, int32_t to);
  // A frame leaves.
  void on_sent(int32_t from, const transport::FrameHeader& header);
  // A frame is at a member, and its payload is taken or not.
  void on_taken(int32_t rank, int32_t from, const transport::FrameHeader& header,
                bool is_taken);
  // A piece of a result is at a member.
  void on_result(int32_t rank, uint64_t op, uint64_t bytes);
  // Nothing happens any more.
  void on_finish(TimePoint now);

  // The first broken promise; empty: none.
  const std::string& violation() const { return violation_; }
  // Calls that ended complete, partial, with an error.
  const std::array<uint64_t, 3>& num_ends() const { return num_ends_; }
  uint64_t num_views() const { return newest_.number; }

 private:
  struct Exposed {
    bool is_called = false, has_ended = false, is_ok = false;
    TimePoint called_at{};
    uint64_t called_in_step = 0;
    std::vector<uint64_t> masks;                             // by shard
    std::vector<uint64_t> ends;                              // the same: elements
    std::vector<std::vector<straggler::StandIn>> stand_ins;  // the same
    std::vector<Rank> out;
    std::string reason;
    Duration deadline{};
    int32_t giver = 0;  // from whose state it goes on; itself
    int32_t data_shard = straggler::kAnyDataShard;
    uint64_t heard = 0;       // who has called it, or knows of it, as far as known
    bool is_not_for = false;  // it came back while the operation was open
  };
  struct Op {
    collectives::Call call;
    collectives::ShardPlan plan;
    std::vector<Exposed> by_rank;
    TimePoint first_called = TimePoint::max(), last_called{}, last_end{};
    // Once it is called, of members as bits: in all views since then,
    uint64_t stayed = 0;
    // in those that they still were in at that time,
    uint64_t seen = 0;
    // and who had stayed until a view left out somebody that it needed.
    uint64_t had_stayed = 0;
    uint64_t oldest_view = 1;     // of those that they were in
    std::set<uint16_t> closed{};  // shards of which a result has left
    uint64_t num_contributions = 0, num_results = 0, num_others = 0;  // messages
  };
  Op& at(uint64_t op) { return ops_[op - 1]; }
  bool is_too_large() const { return script_.members > kMaxCheckedMembers; }
  void broken(const std::string& what);
  void check_error(int32_t rank, uint64_t op, const Status& status);
  bool must_succeed(int32_t rank, const Op& op) const;
  void note_known(Op& op);
  void note_left_out(Op& op, const SeenView& view);
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
  void check_same(uint64_t op);
  void note_own_question(int32_t rank);
  void check_heard(int32_t rank, uint64_t op, const transport::FrameHeader& header);
  void note_returns(const SeenView& before);
  bool is_exposed(const Op& op, uint64_t members) const;
  void check_calm(uint64_t op);
  uint64_t check_stand_ins(const std::string& what, uint64_t op,
                           const collectives::ShardOutcome& shard);
  double scale_of(const collectives::Call& call, int32_t contributors) const;
  // The fold of the inputs of `mask` between two bytes, those of data shards with a
  // stand-in from there.
  const Bytes& folded(uint64_t op, size_t begin, size_t end, uint64_t mask,
                      double scale, const std::vector<straggler::StandIn>& stand_ins);

  const Script& script_;
  int32_t tolerated_;
  std::vector<std::vector<Bytes>> inputs_;  // by operation and rank
  std::vector<Op> ops_;
  // By operation, first byte, end, mask, and ranks of stand-ins.
  std::map<std::array<uint64_t, 5>, Bytes> folds_;
  SeenView newest_;
  std::map<uint64_t, uint64_t> members_;  // by view so far
  std::vector<SeenView> views_;           // by rank
  std::vector<uint64_t> since_;           // by rank: the view it came in
  // By operation: who had called it when the newest view was first seen.
  std::vector<uint64_t> called_at_view_;
  std::vector<TimePoint> stopped_until_;            // by rank
  std::vector<std::map<uint64_t, uint64_t>> kept_;  // by rank: bytes by operation
  uint64_t killed_ = 0;                             // a bit for each rank
  std::set<uint64_t> cut_;                          // of each pair both bits
  // In which step a member, the first, has noticed that it has lost the second.
  std::map<std::pair<int32_t, int32_t>, uint64_t> noticed_;
  // By rank: in which it was asked for what it has in its view; 0: not yet.
  std::vector<uint64_t> asked_;
  uint64_t step_ = 0;  // of those that are counted
  int32_t num_lost_ = 0;
  bool may_fail_ = false;
  std::array<uint64_t, 3> num_ends_{};
  std::string violation_;
};

}  // namespace aikido::sim

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "straggler/group_policy.h"

#include <utility>

#include "base/check.h"
#include "straggler/skip.h"
#include "straggler/wait_all.h"

namespace aikido::straggler {

GroupPolicy::GroupPolicy(const PolicyOptions& options, std::shared_ptr<ResultLog> log)
    : options_(options),
      ceiling_(options.ceiling),
      history_(std::move(log), options.floor, options.worth),
      deadlines_(options, history_),
      times_(options),
      owner_watch_(options),
      rebalance_(history_.world_size()) {
  const Status status = validate(options, history_.world_size());
  AIKIDO_CHECK(status.is_ok(), status.message());
}

void GroupPolicy::on_timeout(Duration timeout) {
  ceiling_ = options_.ceiling < timeout ? options_.ceiling : timeout / 2;
  deadlines_.limit(ceiling_);
  times_.limit(ceiling_);
}

std::unique_ptr<Policy> GroupPolicy::start(Seq seq, uint64_t bytes) {
  return start_again(seq, bytes, RankSet(history_.world_size()));
}

std::unique_ptr<Policy> GroupPolicy::start_again(Seq seq, uint64_t bytes,
                                                 const RankSet& had_time) {
  if (options_.kind == Kind::kWaitAll)
    return std::make_unique<WaitAll>(history_.world_size());
  return std::make_unique<Skip>(options_, history_, deadlines_, seq, bytes, had_time);
}

std::unique_ptr<ActiveBackup> GroupPolicy::start_with_backups(Seq seq, uint64_t bytes,
                                                              const RankSet& had_time,
                                                              size_t max_stand_ins) {
  return std::make_unique<ActiveBackup>(options_, history_, deadlines_, times_, seq,
                                        bytes, had_time, max_stand_ins);
}

std::unique_ptr<Policy> GroupPolicy::start(Seq seq, uint64_t bytes,
                                           const RankSet& owners) {
  if (!options_.rebalance) return start(seq, bytes);
  return std::make_unique<WaitAll>(history_.world_size(), &rebalance_, owners);
}

}  // namespace aikido::straggler

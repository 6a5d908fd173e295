// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "engine/failures.h"

#include <cmath>

namespace aikido::engine {

using collectives::Call;

Status lost_member(Rank rank, const std::string& group, const Status& why) {
  return {
      why.code(),
      concat("rank ", rank.value, " is lost to group \"", group, "\": ", why.message(),
             "; look at its log, then go on without it: "
             "aikido_torch.reconfigure(...) or a new group"),
      rank};
}

Status left_member(Rank rank, const std::string& group) {
  return {Code::kPeerLost,
          concat("rank ", rank.value, " has left group \"", group,
                 "\" (it called destroy_process_group, or its program ended: look at "
                 "its log)"),
          rank};
}

Status silent_member(Rank rank, const std::string& group, Duration since) {
  const double seconds = std::round(to_seconds(since) * 10) / 10;
  return {Code::kPeerLost,
          concat("rank ", rank.value, " has sent nothing to group \"", group, "\" for ",
                 seconds,
                 " s: it is stopped, its machine is down, or the link is cut; look at "
                 "its process and its machine"),
          rank};
}

Status mismatch(uint64_t seq, const std::string& group, const Call& call, Rank caller,
                const Call& other, Rank other_caller) {
  return {Code::kInvalidArgument,
          concat("rank ", caller.value, " calls ", describe(call), " and rank ",
                 other_caller.value, " calls ", describe(other), " as collective ", seq,
                 " of group \"", group,
                 "\"; all ranks must make the same calls with the same shapes, dtypes "
                 "and policies in the same order")};
}

Status found_too_late(const Status& why, const std::string& group) {
  return {why.code(),
          concat(why.message(), "; some ranks were through with it before, so group \"",
                 group, "\" has ended: make a new one"),
          why.culprit()};
}

Status no_memory(uint64_t seq, const std::string& group, const Call& call, Rank self) {
  return {
      Code::kAborted,
      concat(describe(call), ", collective ", seq, " of group \"", group, "\": rank ",
             self.value, " has no memory for what the others send; make smaller calls"),
      self};
}

Status timed_out(uint64_t seq, const std::string& group, const Call& call, Rank self,
                 Duration after,
                 const std::vector<std::pair<Rank, uint64_t>>& missing) {
  std::string who;
  for (const auto& [rank, called] : missing) {
    who += concat(who.empty() ? "" : ", ", "rank ", rank.value,
                  called >= seq
                      ? std::string(" (has called it)")
                      : concat(" (its last call known here is number ", called, ")"));
  }
  return {Code::kTimedOut,
          concat(describe(call), ", collective ", seq, " of group \"", group,
                 "\", Timed out after ", to_ms(after), " ms on rank ", self.value,
                 "; still missing: ",
                 who.empty() ? std::string("nobody, data is on its way out") : who),
          missing.empty() ? kNoRank : missing.front().first};
}

}  // namespace aikido::engine

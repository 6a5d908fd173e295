// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "pipeline/rendezvous.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "pipeline/index.h"

namespace aikido::pipeline {
namespace {

// The other end of a message.
Instruction other_end(const Instruction& message, int rank) {
  Instruction other = message;
  other.peer = rank;
  switch (message.kind) {
    case Opcode::kSendActivation:
      other.kind = Opcode::kReceiveActivation;
      ++other.stage;
      break;
    case Opcode::kReceiveActivation:
      other.kind = Opcode::kSendActivation;
      --other.stage;
      break;
    case Opcode::kSendGradient:
      other.kind = Opcode::kReceiveGradient;
      --other.stage;
      break;
    default:
      other.kind = Opcode::kSendGradient;
      ++other.stage;
  }
  return other;
}

class Run {
 public:
  explicit Run(const Schedule& schedule)
      : schedule_(schedule),
        next_(schedule.ranks.size()),
        reduced_(schedule.ranks.size()) {}

  Status run() {
    std::vector<int> ready;
    for (int rank = schedule_.num_ranks(); rank-- > 0;) ready.push_back(rank);
    while (!ready.empty()) {
      const int rank = ready.back();
      ready.pop_back();
      while (const Instruction* at = head(rank)) {
        if (is_message(at->kind)) {
          const Instruction* other = head(at->peer);
          if (other == nullptr || *other != other_end(*at, rank)) break;
          ready.push_back(at->peer);
          ++next_[index(at->peer)];
        } else if (at->kind == Opcode::kReduce) {
          reduced_[index(rank)].emplace(at->stage, at->version);
          for (const int replica : schedule_.stages[index(at->stage)])
            ready.push_back(replica);
        } else if (at->kind == Opcode::kStep && waits_for(rank)) {
          break;
        }
        ++next_[index(rank)];
      }
    }
    for (int rank = 0; rank < schedule_.num_ranks(); ++rank)
      if (head(rank) != nullptr) return stuck(rank);
    return Status::ok();
  }

 private:
  const Instruction* head(int rank) const {
    const auto& program = schedule_.ranks[index(rank)];
    const size_t next = next_[index(rank)];
    return next < program.size() ? &program[next] : nullptr;
  }
  std::string place(int rank) const {
    return place_of(schedule_, rank, next_[index(rank)]);
  }

  // Rank that a blocked rank waits for.
  std::optional<int> waits_for(int rank) const {
    const Instruction* at = head(rank);
    if (is_message(at->kind)) return at->peer;
    const auto& replicas = schedule_.stages[index(at->stage)];
    if (replicas.size() == 1) return std::nullopt;
    for (const int replica : replicas)
      if (!reduced_[index(replica)].contains({at->stage, at->version})) return replica;
    return std::nullopt;
  }

  // True if `peer` will still reach the instruction that `rank` waits for.
  bool comes(int peer, const Instruction& waiting, int rank) const {
    const auto& program = schedule_.ranks[index(peer)];
    const Instruction wanted =
        is_message(waiting.kind)
            ? other_end(waiting, rank)
            : Instruction{Opcode::kReduce, waiting.stage, -1, waiting.version, -1};
    const auto from = program.begin() + static_cast<ptrdiff_t>(next_[index(peer)]);
    return std::find(from, program.end(), wanted) != program.end();
  }

  Status stuck(int rank) const {
    std::vector<int> path;
    while (std::find(path.begin(), path.end(), rank) == path.end()) {
      path.push_back(rank);
      const int peer = *waits_for(rank);
      if (!comes(peer, *head(rank), rank))
        return {Code::kInvalidArgument,
                concat(place(rank), ": rank ", peer, " has no ",
                       head(rank)->kind == Opcode::kStep ? "reduce"
                       : is_send(head(rank)->kind)       ? "receive"
                                                         : "send",
                       " for it after what it has done by then"),
                Rank{rank}};
      rank = peer;
    }
    path.erase(path.begin(), std::find(path.begin(), path.end(), rank));
    std::string text = concat(place(rank), ": it waits for rank ", *waits_for(rank));
    for (size_t i = 1; i < path.size(); ++i)
      text += concat(", which at instruction ", next_[index(path[i])], " (",
                     to_text(*head(path[i])), ") waits for rank ", *waits_for(path[i]));
    return {Code::kInvalidArgument, text + ": where sends wait, nobody goes on",
            Rank{rank}};
  }

  const Schedule& schedule_;
  std::vector<size_t> next_;                            // by rank
  std::vector<std::set<std::pair<int, int>>> reduced_;  // by rank: stage and version
};

}  // namespace

Status check_rendezvous(const Schedule& schedule) {
  return Run(schedule).run();
}

}  // namespace aikido::pipeline

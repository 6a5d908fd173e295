// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "membership/roster.h"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>

namespace aikido::membership {
namespace {

// FNV-1a with 64 bits.
uint64_t hash(uint64_t state, std::string_view bytes) {
  for (const char c : bytes)
    state = (state ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return state;
}

uint64_t fingerprint_of(const std::vector<MemberHandle>& members) {
  uint64_t state = 0xcbf29ce484222325;
  for (const MemberHandle& m : members)
    state = hash(state, concat(m.address.to_string(), ' ', m.id,
                               m.is_reliable ? " reliable\n" : "\n"));
  return state;
}

}  // namespace

Result<Roster> Roster::make(int64_t uuid, std::vector<std::string> handles, Order order,
                            const MemberHandle& self) {
  // Each member has the same texts, so the sorted order is the same everywhere.
  if (order == Order::kCommon) std::sort(handles.begin(), handles.end());
  std::vector<MemberHandle> members;
  Rank rank = kNoRank;
  for (size_t i = 0; i < handles.size(); ++i) {
    auto handle = MemberHandle::parse(handles[i]);
    if (!handle) {
      return handle.status().with_context(
          concat("handle ", i + 1, " of ", handles.size()));
    }
    for (size_t j = 0; j < members.size(); ++j) {
      // Two handles of one process would make it dial itself.
      if (members[j].id != handle->id) continue;
      return Status(Code::kInvalidArgument,
                    concat("handles ", j + 1, " and ", i + 1, " of ", handles.size(),
                           " are of the same member (", handle->address.to_string(),
                           "); pass one per member"));
    }
    if (*handle == self) rank = Rank(static_cast<int32_t>(i));
    members.push_back(std::move(*handle));
  }
  if (rank == kNoRank) {
    return Status(
        Code::kInvalidArgument,
        concat(
            "this member's handle is not among the ", handles.size(),
            " handles; a member that is left out does not call "
            "aikido_torch.reconfigure(...), and a process that was started again has "
            "a new handle"));
  }
  return Roster(uuid, rank, std::move(members));
}

Roster::Roster(int64_t uuid, Rank self, std::vector<MemberHandle> members)
    : uuid_(uuid),
      self_(self),
      members_(std::move(members)),
      fingerprint_(fingerprint_of(members_)) {}

RankSet Roster::reliable() const {
  RankSet ranks(size());
  for (int32_t r = 0; r < size(); ++r)
    if (member(Rank(r)).is_reliable) ranks.insert(Rank(r));
  return ranks;
}

transport::Token Roster::token(Rank host) const {
  const auto& secret = member(host).secret;
  transport::Token token;
  static_assert(sizeof token == sizeof secret + sizeof uuid_ + sizeof fingerprint_);
  std::byte* at = std::copy(secret.begin(), secret.end(), token.data());
  std::memcpy(at, &uuid_, sizeof uuid_);
  std::memcpy(at + sizeof uuid_, &fingerprint_, sizeof fingerprint_);
  return token;
}

}  // namespace aikido::membership

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// What members tell each other while a view changes. Encoding and decoding are pure.

#include <compare>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "membership/view.h"

namespace aikido::membership {

// Orders the attempts at a change: the higher wins.
struct Ballot {
  uint32_t counter = 0;
  Rank rank{0};
  friend auto operator<=>(const Ballot&, const Ballot&) = default;
};

// A result that a member has accepted, exposed to its caller or not.
struct HadShard {
  Seq seq;
  int32_t shard = 0;  // its number in the cut, or that of a part
  uint64_t mask = 0;  // fingerprint: equal for equal masks
  friend bool operator==(const HadShard&, const HadShard&) = default;
};

// What a member knows of the skippable operations of its group.
struct Report {
  Seq known;                // the highest operation that it has called or heard of
  Seq settled;              // it needs no result up to this one
  Seq kept;                 // and can send those from this one on,
  std::vector<Seq> failed;  // but for these, which ended with an error; ascending
  Seq open;                 // the lowest one that it waits for; 0: none
  int32_t needed = 0;       // members, by those that are open
  Seq passed_from;          // it copied a state behind the results from this one
  Seq passed;               // to this one, and has none of them; 0: it did not
  // Beyond `settled`, or of it, these; ascending by (seq, shard).
  std::vector<HadShard> had;
  // What it has closed in this view as the owner, and does not have: where another
  // member has the same, it has that too. Ascending by (seq, shard).
  std::vector<HadShard> closed;
  // What it can send of those up to `settled` are the parts of these shards; ascending.
  std::vector<std::pair<Seq, int32_t>> divided;
  RankSet lost;  // to whom its connection is broken

  // The fingerprint of the mask with which it has, or has closed, a shard or part;
  // empty where it does not say.
  std::optional<uint64_t> mask_of(Seq seq, int32_t number) const;
  std::optional<uint64_t> closed_mask_of(Seq seq, int32_t number) const;
  // Is no result of this shard or part needed, and may one be sent to others? `cut`: of
  // the operation.
  bool has(Seq seq, int32_t number) const;
  bool keeps(const Cut& cut, Seq seq, int32_t number) const;
  // Is no result of this shard needed, or none of its first part?
  bool has_first_of(const Cut& cut, Seq seq, int32_t shard) const;
  bool has_failed(Seq seq) const;
  friend bool operator==(const Report&, const Report&) = default;
};

struct AcceptedView {
  Ballot ballot;
  View view;
  friend bool operator==(const AcceptedView&, const AcceptedView&) = default;
};

enum class ViewStep : uint8_t {
  kPrepare = 1,  // promise to accept nothing more in this view, and say what you have
  kState,        // the answer
  kPropose,      // this could be the next view
  kAccepted,     // the answer
  kView,         // this is the view
  kJoin,         // I was left out, or am late to the group: take me in
  kRefuse,       // you cannot come back like this
};

struct ViewMessage {
  ViewStep step = ViewStep::kPrepare;
  uint32_t view = 1;  // number of the sender's
  // kPrepare .. kAccepted. The counter of a kJoin grows with each other state that its
  // sender asks with, and a kRefuse has that of the kJoin.
  Ballot ballot;
  Report report;                         // kState, kJoin
  std::optional<AcceptedView> accepted;  // kState
  std::optional<View> proposed;          // kPropose, kView
  // kRefuse; empty: the sender can never say whether the other one may come back.
  std::string text;
};

std::vector<std::byte> encode(const ViewMessage& message);
// kProtocol when the bytes are no message of a member of a group of `size`.
Result<ViewMessage> decode_view_message(std::span<const std::byte> bytes, int32_t size);

}  // namespace aikido::membership

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Messages of a view change. Encoding and decoding are pure.

#include <compare>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "membership/view.h"

namespace aikido::membership {

// Order of the attempts at a change: the higher ballot wins.
struct Ballot {
  uint32_t counter = 0;
  Rank rank{0};
  friend auto operator<=>(const Ballot&, const Ballot&) = default;
};

// Result that a member has received and accepted, exposed to its caller or not.
struct ReceivedShard {
  Seq seq;
  int32_t shard = 0;  // number of the shard or part in the cut
  uint64_t mask = 0;  // fingerprint, equal for equal masks
  friend bool operator==(const ReceivedShard&, const ReceivedShard&) = default;
};

// Report of a member on the skippable operations of its group.
struct Report {
  Seq known;                // last operation that it has called or heard of
  Seq acked;                // it needs no results up to this operation
  Seq kept;                 // it can send results to others from this operation on,
  std::vector<Seq> failed;  // but not of these, which failed; ascending
  Seq open;                 // first operation that it waits for; 0: none
  int32_t needed = 0;       // members that its open operations need
  Seq skipped_from;         // first operation that it skipped through by a state copy
  Seq skipped_through;      // last such operation; it has none of them; 0: no copy
  // Results that it has received, beyond or within `acked`; ascending by (seq,
  // shard).
  std::vector<ReceivedShard> received;
  // Shards that it closed in this view as the owner and gave up. If another member has
  // received the same result, it takes the result back. Ascending by (seq, shard).
  std::vector<ReceivedShard> closed;
  // Shards up to `acked` whose result it can send only for the parts of their cut;
  // ascending.
  std::vector<std::pair<Seq, int32_t>> divided;
  RankSet lost;  // members to which its connection is broken

  // Fingerprint of the mask with which it has received, or has closed, a shard or part;
  // nullopt if the report does not contain it.
  std::optional<uint64_t> mask_of(Seq seq, int32_t number) const;
  std::optional<uint64_t> closed_mask_of(Seq seq, int32_t number) const;
  // has(): it needs no result of this shard or part. keeps(): it can send the result to
  // others. `cut`: the cut of the operation.
  bool has(Seq seq, int32_t number) const;
  bool keeps(const Cut& cut, Seq seq, int32_t number) const;
  // True if it needs no result of this shard, or none of the shard's first part.
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
  kPrepare = 1,  // request: accept nothing more in this view, and send your report
  kState,        // answer to kPrepare
  kPropose,      // proposal of the next view
  kAccepted,     // answer to kPropose
  kView,         // the view is installed
  kJoin,         // request of an excluded or late member to be taken in
  kRefuse,       // answer to kJoin: you cannot rejoin with this state; or, from an
                 // excluded member: it was refused
};

struct ViewMessage {
  ViewStep step = ViewStep::kPrepare;
  uint32_t view = 1;  // number of the sender's view
  // kPrepare .. kAccepted. The counter of a kJoin grows with each new state of its
  // sender. A kRefuse repeats the counter of its kJoin.
  Ballot ballot;
  Report report;                         // kState, kJoin
  std::optional<AcceptedView> accepted;  // kState
  std::optional<View> proposed;          // kPropose, kView
  // kRefuse. Empty: the sender will never know if the other member may rejoin.
  std::string text;
};

std::vector<std::byte> encode(const ViewMessage& message);
// kProtocol if the bytes are no message of a member of a group of `size`.
Result<ViewMessage> decode_view_message(std::span<const std::byte> bytes, int32_t size);

}  // namespace aikido::membership

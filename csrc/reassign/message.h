// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Messages by which ranks move items, and their encoding. Pure; any thread.
//
// Every message is a head of 40 bytes and the content of its kind. Numbers are little
// endian. A receiver refuses other versions, so all ranks of a group run one version.
//
// -  byte  0  u8   version, 1
// -        1  u8   kind
// -        2  u16  number of items of kGrant; otherwise 0
// -        4  u32  serial of the conversation, chosen by the rank that asked; 0: none
// -        8  u64  step
// -       16  i64  news: ns of work that the sender still has, claimed or not
// -       24  f64  news: ns that the sender takes for one unit of cost; 0: not known
// -       32  u32  news: items that the sender could still give
// -       36  f32  news: sum of their costs
//
// kGrant and kDone continue:
// -       40  i32  owner of the items
// -       44  u32  index of the first item
//
// kGrant continues with each item:
// -       48  u64  label
// -       56  f64  cost
//
//     kind       from, to         meaning
// - kProgress  rank to group    only the news of the head
// - kRequest   helper to owner  give me items: I have time for some
// - kGrant     owner to helper  these items of mine are yours, if you confirm
// - kGrant     helper to owner  answer to kCancel: these items are yours again
// - kConfirm   helper to owner  answer to kGrant: I have added the items to my list
// - kRefuse    helper to owner  answer to kGrant: my step is over, I have not
// - kDecline   either           answer to kRequest and kCancel: nothing
// - kCancel    owner to helper  give items back that you have not begun
// - kDone      helper to owner  the gradient of this item is in my sum
// - kStepEnd   rank to group    I claim nothing more in this step
//
// The messages between two ranks must arrive in the order in which they were sent.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "reassign/item.h"

namespace aikido::reassign {

enum class MessageKind : uint8_t {
  kProgress = 1,
  kRequest,
  kGrant,
  kConfirm,
  kRefuse,
  kDecline,
  kCancel,
  kDone,
  kStepEnd,
};
// "progress" and the like.
std::string_view name_of(MessageKind kind);

inline constexpr uint8_t kMessageVersion = 1;
inline constexpr size_t kMessageHeadBytes = 40;
inline constexpr size_t kMaxItemsPerGrant = 0xffff;

// State of the sender when it sent the message.
struct News {
  Duration remaining{};
  double ns_per_cost = 0;
  uint32_t num_unclaimed = 0;
  float unclaimed_cost = 0;
  friend bool operator==(const News&, const News&) = default;
};

struct Message {
  MessageKind kind = MessageKind::kProgress;
  uint32_t serial = 0;
  uint64_t step = 0;
  News news;
  Rank owner = kNoRank;         // kGrant, kDone
  uint32_t first = 0;           // kGrant, kDone
  std::vector<ItemSpec> items;  // kGrant
  friend bool operator==(const Message&, const Message&) = default;
};

// Requires: at most kMaxItemsPerGrant items, and items only in a kGrant.
std::vector<std::byte> encode(const Message& message);
// kProtocol, with the reason, if the bytes are no message of this version.
Result<Message> decode_message(std::span<const std::byte> bytes);

}  // namespace aikido::reassign

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "reassign/message.h"

#include <cmath>
#include <limits>
#include <string>

#include "base/check.h"
#include "base/wire.h"

namespace aikido::reassign {
namespace {

bool names_items(MessageKind kind) {
  return kind == MessageKind::kGrant || kind == MessageKind::kDone;
}

Status malformed(const std::string& reason) {
  return {Code::kProtocol, "a message about moved work " + reason +
                               "; check that all ranks run the same version"};
}

bool is_quantity(double value) {
  return std::isfinite(value) && value >= 0;
}

Status check_news(const News& news) {
  if (news.remaining.count() < 0)
    return malformed("tells of " + std::to_string(news.remaining.count()) +
                     " ns of remaining work, which is negative");
  if (!is_quantity(news.ns_per_cost) || !is_quantity(news.unclaimed_cost))
    return malformed("tells of a speed or cost that is negative or not finite");
  return Status::ok();
}

Status take_items(WireReader& reader, size_t count, Message& message) {
  message.owner = Rank(reader.take<int32_t>());
  message.first = reader.take<uint32_t>();
  message.items.resize(count);
  for (ItemSpec& item : message.items) {
    item.label = reader.take<uint64_t>();
    item.cost = reader.take<double>();
    if (!is_quantity(item.cost) || item.cost == 0)
      return malformed("grants an item of cost " + std::to_string(item.cost) +
                       "; costs are above 0 and finite");
  }
  if (message.owner.value < 0)
    return malformed("names " + to_string(message.owner) + " as the owner of items");
  if (message.first > std::numeric_limits<uint32_t>::max() - count)
    return malformed("names items from index " + std::to_string(message.first) +
                     " on, more than a list can have");
  return Status::ok();
}

}  // namespace

std::string_view name_of(MessageKind kind) {
  switch (kind) {
    case MessageKind::kProgress:
      return "progress";
    case MessageKind::kRequest:
      return "request";
    case MessageKind::kGrant:
      return "grant";
    case MessageKind::kConfirm:
      return "confirm";
    case MessageKind::kRefuse:
      return "refuse";
    case MessageKind::kDecline:
      return "decline";
    case MessageKind::kCancel:
      return "cancel";
    case MessageKind::kDone:
      return "done";
    case MessageKind::kStepEnd:
      return "step_end";
  }
  return "unknown";
}

std::vector<std::byte> encode(const Message& message) {
  const size_t count = message.items.size();
  AIKIDO_CHECK(count <= kMaxItemsPerGrant, "a grant of ", count, " items");
  AIKIDO_CHECK(count == 0 || message.kind == MessageKind::kGrant, "items in a ",
               name_of(message.kind));
  std::vector<std::byte> out;
  out.reserve(kMessageHeadBytes + 8 + 16 * count);
  append_value(out, kMessageVersion);
  append_value(out, static_cast<uint8_t>(message.kind));
  append_value(out, static_cast<uint16_t>(count));
  append_value(out, message.serial);
  append_value(out, message.step);
  append_value(out, int64_t{message.news.remaining.count()});
  append_value(out, message.news.ns_per_cost);
  append_value(out, message.news.num_unclaimed);
  append_value(out, message.news.unclaimed_cost);
  if (names_items(message.kind)) {
    append_value(out, message.owner.value);
    append_value(out, message.first);
  }
  for (const ItemSpec& item : message.items) {
    append_value(out, item.label);
    append_value(out, item.cost);
  }
  return out;
}

Result<Message> decode_message(std::span<const std::byte> bytes) {
  WireReader reader{bytes};
  const size_t num_bytes = bytes.size();
  const auto version = reader.take<uint8_t>();
  const auto kind = reader.take<uint8_t>();
  const size_t count = reader.take<uint16_t>();
  Message message;
  message.serial = reader.take<uint32_t>();
  message.step = reader.take<uint64_t>();
  message.news.remaining = Duration(reader.take<int64_t>());
  message.news.ns_per_cost = reader.take<double>();
  message.news.num_unclaimed = reader.take<uint32_t>();
  message.news.unclaimed_cost = reader.take<float>();
  if (!reader.ok)
    return malformed("has " + std::to_string(num_bytes) + " bytes, fewer than the " +
                     std::to_string(kMessageHeadBytes) + " of its head");
  if (version != kMessageVersion)
    return malformed("has version " + std::to_string(version) + ", and this rank has " +
                     std::to_string(kMessageVersion));
  message.kind = static_cast<MessageKind>(kind);
  if (name_of(message.kind) == "unknown")
    return malformed("has the unknown kind " + std::to_string(kind));
  const bool is_grant = message.kind == MessageKind::kGrant;
  if (is_grant != (count > 0))
    return malformed("of kind " + std::string(name_of(message.kind)) + " has " +
                     std::to_string(count) + " items");
  AIKIDO_TRY(check_news(message.news));
  const size_t wanted =
      kMessageHeadBytes + (names_items(message.kind) ? 8 : 0) + 16 * count;
  if (num_bytes != wanted)
    return malformed("of kind " + std::string(name_of(message.kind)) + " has " +
                     std::to_string(num_bytes) + " bytes instead of " +
                     std::to_string(wanted));
  if (names_items(message.kind)) AIKIDO_TRY(take_items(reader, count, message));
  return message;
}

}  // namespace aikido::reassign

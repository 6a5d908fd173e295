// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "membership/view_message.h"

#include <algorithm>
#include <functional>

#include "base/wire.h"

namespace aikido::membership {
namespace {

// Limit of a sentence, in bytes.
constexpr size_t kMaxText = 1024;
constexpr auto kMaxStep = static_cast<uint8_t>(ViewStep::kRefuse);

void append(std::vector<std::byte>& out, const Ballot& ballot) {
  append_value(out, ballot.counter);
  append_value(out, ballot.rank.value);
}

Ballot take_ballot(WireReader& reader) {
  Ballot ballot;
  ballot.counter = reader.take<uint32_t>();
  ballot.rank = Rank(reader.take<int32_t>());
  return ballot;
}

void append(std::vector<std::byte>& out, const std::vector<ReceivedShard>& shards) {
  append_value(out, static_cast<uint32_t>(shards.size()));
  for (const ReceivedShard& one : shards) {
    append_value(out, one.seq.value);
    append_value(out, one.shard);
    append_value(out, one.mask);
  }
}

std::vector<ReceivedShard> take_shards(WireReader& reader, int32_t size) {
  std::vector<ReceivedShard> shards(
      reader.take_count(2 * sizeof(uint64_t) + sizeof(int32_t)));
  for (ReceivedShard& one : shards) {
    one.seq = Seq(reader.take<uint64_t>());
    one.shard = reader.take<int32_t>();
    one.mask = reader.take<uint64_t>();
    // Parts have numbers after those of the shards.
    if (one.shard < 0 || one.shard >= size * (1 + Division::kMaxParts) ||
        one.seq.value > kMaxSeq)
      reader.ok = false;
  }
  const auto is_out_of_order = [](const ReceivedShard& a, const ReceivedShard& b) {
    return std::pair(a.seq, a.shard) >= std::pair(b.seq, b.shard);
  };
  if (std::adjacent_find(shards.begin(), shards.end(), is_out_of_order) != shards.end())
    reader.ok = false;
  return shards;
}

void append(std::vector<std::byte>& out, const Report& report) {
  append_value(out, report.known.value);
  append_value(out, report.acked.value);
  append_value(out, report.kept.value);
  append_value(out, report.open.value);
  append_value(out, report.skipped_from.value);
  append_value(out, report.skipped_through.value);
  append_value(out, report.needed);
  append_value(out, static_cast<uint32_t>(report.failed.size()));
  for (const Seq seq : report.failed) append_value(out, seq.value);
  append(out, report.received);
  append(out, report.closed);
  append_value(out, static_cast<uint32_t>(report.divided.size()));
  for (const auto& [seq, shard] : report.divided) {
    append_value(out, seq.value);
    append_value(out, shard);
  }
  membership::append(out, report.lost);
}

Report take_report(WireReader& reader, int32_t size) {
  Report report;
  report.known = Seq(reader.take<uint64_t>());
  report.acked = Seq(reader.take<uint64_t>());
  report.kept = Seq(reader.take<uint64_t>());
  report.open = Seq(reader.take<uint64_t>());
  report.skipped_from = Seq(reader.take<uint64_t>());
  report.skipped_through = Seq(reader.take<uint64_t>());
  report.needed = reader.take<int32_t>();
  report.failed.resize(reader.take_count(sizeof(uint64_t)));
  for (Seq& seq : report.failed) seq = Seq(reader.take<uint64_t>());
  report.received = take_shards(reader, size);
  report.closed = take_shards(reader, size);
  report.divided.resize(reader.take_count(sizeof(uint64_t) + sizeof(int32_t)));
  for (auto& [seq, shard] : report.divided) {
    seq = Seq(reader.take<uint64_t>());
    shard = reader.take<int32_t>();
    if (shard < 0 || shard >= size || seq.value > kMaxSeq) reader.ok = false;
  }
  // All lists ascend; the lookups below rely on that.
  const auto& failed = report.failed;
  const auto& divided = report.divided;
  const bool is_sorted = std::adjacent_find(divided.begin(), divided.end(),
                                            std::greater_equal()) == divided.end() &&
                         std::adjacent_find(failed.begin(), failed.end(),
                                            std::greater_equal()) == failed.end();
  const Seq last_failed = failed.empty() ? Seq() : failed.back();
  const Seq highest =
      std::max({report.known, report.acked, report.kept, report.open, last_failed});
  const bool is_passed = report.skipped_from <= report.skipped_through &&
                         report.skipped_through <= report.acked;
  if (!is_sorted || !is_passed || highest.value > kMaxSeq || report.needed < 0 ||
      report.needed > size)
    reader.ok = false;
  report.lost = take_set(reader, size);
  return report;
}

std::optional<uint64_t> find_mask(const std::vector<ReceivedShard>& shards, Seq seq,
                                  int32_t number) {
  const auto it = std::lower_bound(shards.begin(), shards.end(), std::pair(seq, number),
                                   [](const ReceivedShard& h, const auto& k) {
                                     return std::pair(h.seq, h.shard) < k;
                                   });
  if (it == shards.end() || it->seq != seq || it->shard != number) return std::nullopt;
  return it->mask;
}

}  // namespace

std::optional<uint64_t> Report::mask_of(Seq seq, int32_t number) const {
  return find_mask(received, seq, number);
}

std::optional<uint64_t> Report::closed_mask_of(Seq seq, int32_t number) const {
  return find_mask(closed, seq, number);
}

bool Report::has(Seq seq, int32_t number) const {
  return seq <= acked || mask_of(seq, number).has_value();
}

bool Report::keeps(const Cut& cut, Seq seq, int32_t number) const {
  if (!has(seq, number) || seq < kept || has_failed(seq)) return false;
  if (seq > acked) return true;
  const int32_t shard = cut.shard_of(number);
  const bool is_in_parts =
      std::binary_search(divided.begin(), divided.end(), std::pair(seq, shard));
  return is_in_parts == (shard != number);
}

bool Report::has_first_of(const Cut& cut, Seq seq, int32_t shard) const {
  if (has(seq, shard)) return true;
  for (size_t i = 0; i < cut.divisions.size(); ++i)
    if (cut.divisions[i].shard == shard) return has(seq, cut.first_part(i));
  return false;
}

bool Report::has_failed(Seq seq) const {
  return std::binary_search(failed.begin(), failed.end(), seq);
}

std::vector<std::byte> encode(const ViewMessage& message) {
  std::vector<std::byte> out;
  append_value(out, static_cast<uint8_t>(message.step));
  append_value(out, static_cast<uint8_t>(message.accepted.has_value()));
  append_value(out, uint16_t{0});
  append_value(out, message.view);
  append(out, message.ballot);
  switch (message.step) {
    case ViewStep::kState:
    case ViewStep::kJoin:
      append(out, message.report);
      if (message.accepted) {
        append(out, message.accepted->ballot);
        append(out, message.accepted->view);
      }
      break;
    case ViewStep::kPropose:
    case ViewStep::kView:
      append(out, *message.proposed);
      break;
    case ViewStep::kRefuse:
      append_value(out, static_cast<uint32_t>(std::min(message.text.size(), kMaxText)));
      for (const char c : message.text.substr(0, kMaxText)) append_value(out, c);
      break;
    case ViewStep::kPrepare:
    case ViewStep::kAccepted:
      break;
  }
  return out;
}

Result<ViewMessage> decode_view_message(std::span<const std::byte> bytes,
                                        int32_t size) {
  WireReader reader{bytes};
  ViewMessage message;
  const auto step = reader.take<uint8_t>();
  const auto num_accepted = reader.take<uint8_t>();
  const bool is_padded = reader.take<uint16_t>() == 0;
  message.step = static_cast<ViewStep>(step);
  message.view = reader.take<uint32_t>();
  message.ballot = take_ballot(reader);
  const Status bad(Code::kProtocol, "bytes that are no message about a view");
  if (!reader.ok || step == 0 || step > kMaxStep || !is_padded) return bad;
  const bool may_have_accepted =
      message.step == ViewStep::kState || message.step == ViewStep::kJoin;
  if (num_accepted > (may_have_accepted ? 1 : 0)) return bad;
  switch (message.step) {
    case ViewStep::kState:
    case ViewStep::kJoin:
      message.report = take_report(reader, size);
      if (num_accepted == 1) {
        const Ballot ballot = take_ballot(reader);
        if (!reader.ok) return bad;
        auto view = read_view(bytes, size);
        if (!view) return view.status();
        if (view->number != message.view + 1) return bad;
        message.accepted = AcceptedView{ballot, *std::move(view)};
      }
      break;
    case ViewStep::kPropose:
    case ViewStep::kView: {
      auto view = read_view(bytes, size);
      if (!view) return view.status();
      // A proposed view follows the sender's view; a kView message contains the
      // sender's own view.
      const uint32_t ahead = message.step == ViewStep::kPropose ? 1 : 0;
      if (view->number != message.view + ahead) return bad;
      message.proposed = *std::move(view);
      break;
    }
    case ViewStep::kRefuse:
      message.text.resize(reader.take_count(1));
      if (message.text.size() > kMaxText) return bad;
      for (char& c : message.text) c = reader.take<char>();
      break;
    case ViewStep::kPrepare:
    case ViewStep::kAccepted:
      break;
  }
  if (!reader.ok || !bytes.empty()) return bad;
  return message;
}

}  // namespace aikido::membership

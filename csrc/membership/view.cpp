// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "membership/view.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/mutation.h"
#include "base/text.h"
#include "base/wire.h"

namespace aikido::membership {
namespace {

Rank take_rank(WireReader& reader, int32_t size) {
  const Rank rank(reader.take<int32_t>());
  if (rank.value < 0 || rank.value >= size) reader.ok = false;
  return rank;
}

Seq take_seq(WireReader& reader) {
  const Seq seq(reader.take<uint64_t>());
  if (seq.value > kMaxSeq) reader.ok = false;
  return seq;
}

// Describes an inconsistency of a decoded view. Null: there is none.
const char* fault_of(const View& view) {
  // The next number must be valid too.
  if (view.number == 0 || view.number == std::numeric_limits<uint32_t>::max())
    return "its number is none";
  if (view.members.count() == 0) return "nobody is in it";
  if (view.agreed.number > view.number) return "its agreement is later than it";
  const bool has_voter =
      view.reliable.count() == 0 ||
      std::any_of(view.seats.begin(), view.seats.end(), [&](const Seat& seat) {
        const Rank rank(static_cast<int32_t>(&seat - view.seats.data()));
        return view.has(rank) && view.reliable.contains(rank);
      });
  if (!has_voter) return "no reliable member is in it";
  bool is_right = true;
  view.members.for_each([&](Rank r) {
    const Seat& seat = view.seats[static_cast<size_t>(r.value)];
    if (seat.since == 0 || seat.since > view.number || seat.first.value == 0)
      is_right = false;
  });
  if (!is_right) return "a member came later than it";
  if (view.cuts.empty()) return "nobody owns anything";
  const Cut* last_cut = nullptr;
  for (const Cut& cut : view.cuts) {
    if (last_cut != nullptr && cut.first <= last_cut->first)
      return "its cuts do not ascend";
    last_cut = &cut;
    if (cut.owners.empty() || std::ssize(cut.owners) > view.members.world_size())
      return "a cut has no owners or too many";
    std::vector<Rank> owners = cut.owners;
    RankSet divided(static_cast<int32_t>(cut.owners.size()));
    for (const Division& d : cut.divisions) {
      if (d.shard < 0 || d.shard >= std::ssize(cut.owners) ||
          !divided.insert(Rank(d.shard)))
        return "a divided shard is none of its cut, or is so twice";
      // Only members of the view may own shards.
      if (d.owners.empty() || std::ssize(d.owners) > Division::kMaxParts)
        return "a shard has no parts or too many";
      owners.insert(owners.end(), d.owners.begin(), d.owners.end());
    }
    for (const Rank owner : owners)
      if (!view.has(owner)) return "an owner is no member";
  }
  const Held* last = nullptr;
  for (const Held& held : view.held) {
    if (last != nullptr &&
        std::pair(held.seq, held.shard) <= std::pair(last->seq, last->shard))
      return "its held shards do not ascend";
    last = &held;
    if (held.shard < 0 || held.shard >= view.cut_of(held.seq).num_numbers())
      return "a held shard is none of its cut";
    if (!view.has(held.holder) || !view.members.covers(held.lacking))
      return "a holder, or who is to get its result, is no member";
  }
  return nullptr;
}

}  // namespace

void append(std::vector<std::byte>& out, const RankSet& set) {
  for (const uint64_t word : set.words()) append_value(out, word);
}

RankSet take_set(WireReader& reader, int32_t size) {
  RankSet set(size);
  // Bits beyond the group must be zero.
  for (int32_t base = 0; base < size; base += 64) {
    const auto word = reader.take<uint64_t>();
    for (int32_t i = 0; i < 64; ++i) {
      if ((word >> i & 1) == 0) continue;
      if (base + i >= size) {
        reader.ok = false;
      } else {
        set.insert(Rank(base + i));
      }
    }
  }
  return set;
}

int32_t Cut::first_part(size_t division) const {
  auto number = static_cast<int32_t>(owners.size());
  for (size_t i = 0; i < division; ++i)
    number += static_cast<int32_t>(divisions[i].owners.size());
  return number;
}

int32_t Cut::num_numbers() const {
  return first_part(divisions.size());
}

Rank Cut::owner(int32_t number) const {
  auto i = static_cast<size_t>(number);
  if (i < owners.size()) return owners[i];
  i -= owners.size();
  for (const Division& d : divisions) {
    if (i < d.owners.size()) return d.owners[i];
    i -= d.owners.size();
  }
  return kNoRank;
}

int32_t Cut::shard_of(int32_t number) const {
  if (number < std::ssize(owners)) return number;
  for (size_t i = divisions.size(); i-- > 0;)
    if (number >= first_part(i)) return divisions[i].shard;
  return number;
}

bool Cut::is_divided(int32_t shard) const {
  return std::any_of(divisions.begin(), divisions.end(),
                     [shard](const Division& d) { return d.shard == shard; });
}

View View::first_of(int32_t size) {
  View view;
  view.members = view.reliable = view.agreed.ranks = RankSet(size);
  Cut cut{Seq(1), {}, RankSet(size), {}};
  for (int32_t r = 0; r < size; ++r) {
    view.members.insert(Rank(r));
    cut.owners.emplace_back(r);
  }
  view.seats.resize(static_cast<size_t>(size));
  view.cuts.push_back(std::move(cut));
  return view;
}

bool View::votes(Rank rank) const {
  if (!has(rank)) return false;
  if (mutated(Mutation::kNoVoteAfterReturn) && reliable.count() > 0 &&
      seats[static_cast<size_t>(rank.value)].since > 1)
    return false;
  return reliable.count() == 0 || reliable.contains(rank) ||
         mutated(Mutation::kTransientVotes);
}

RankSet View::participants(Seq seq) const {
  RankSet set(members.world_size());
  members.for_each([&](Rank r) {
    if (takes_part(r, seq)) set.insert(r);
  });
  return set;
}

const Cut& View::cut_of(Seq seq) const {
  auto it = std::upper_bound(cuts.begin(), cuts.end(), seq,
                             [](Seq s, const Cut& cut) { return s < cut.first; });
  return it == cuts.begin() ? *it : *--it;
}

const Held* View::held_at(Seq seq, int32_t shard) const {
  const auto key = [](const Held& h) { return std::pair(h.seq, h.shard); };
  const auto it = std::lower_bound(
      held.begin(), held.end(), std::pair(seq, shard),
      [&](const Held& h, const std::pair<Seq, int32_t>& k) { return key(h) < k; });
  return it != held.end() && key(*it) == std::pair(seq, shard) ? &*it : nullptr;
}

bool View::is_owner(Rank rank) const {
  const auto& owners = cuts.back().owners;
  return std::find(owners.begin(), owners.end(), rank) != owners.end();
}

bool is_majority(const View& view, const RankSet& ranks) {
  int32_t num_voters = 0, num_here = 0, num_members_here = 0;
  view.members.for_each([&](Rank r) {
    num_members_here += ranks.contains(r) ? 1 : 0;
    if (!view.votes(r)) return;
    ++num_voters;
    num_here += ranks.contains(r) ? 1 : 0;
  });
  if (mutated(Mutation::kEitherMajority) && 2 * num_members_here > view.members.count())
    return true;
  const bool has_roles = view.reliable.count() > 0;
  if (has_roles && mutated(Mutation::kHalfOfVoters)) return 2 * num_here >= num_voters;
  return mutated(Mutation::kMinorityView) || 2 * num_here > num_voters;
}

std::string no_majority_text(const View& view, const RankSet& left) {
  int32_t num_voters = 0, num_left = 0;
  view.members.for_each([&](Rank r) {
    if (!view.votes(r)) return;
    ++num_voters;
    num_left += left.contains(r) ? 1 : 0;
  });
  if (view.reliable.count() == 0)
    return concat("only ", num_left, " of the ", num_voters,
                  " members that took part are left, not more than half");
  if (num_voters == 1) return "the only reliable member is lost";
  return concat("only ", num_left, " of the ", num_voters,
                " reliable members are left, not more than half");
}

void append(std::vector<std::byte>& out, const View& view) {
  append_value(out, view.number);
  append(out, view.members);
  append(out, view.reliable);
  append_value(out, view.agreed.number);
  append(out, view.agreed.ranks);
  view.members.for_each([&](Rank r) {
    const Seat& seat = view.seats[static_cast<size_t>(r.value)];
    append_value(out, seat.since);
    append_value(out, seat.first.value);
  });
  append_value(out, static_cast<uint32_t>(view.cuts.size()));
  for (const Cut& cut : view.cuts) {
    append_value(out, cut.first.value);
    append_value(out, static_cast<uint32_t>(cut.owners.size()));
    for (const Rank owner : cut.owners) append_value(out, owner.value);
    append(out, cut.out);
    append_value(out, static_cast<uint32_t>(cut.divisions.size()));
    for (const Division& d : cut.divisions) {
      append_value(out, d.shard);
      append_value(out, static_cast<uint32_t>(d.owners.size()));
      for (const Rank owner : d.owners) append_value(out, owner.value);
    }
  }
  append_value(out, static_cast<uint32_t>(view.held.size()));
  for (const Held& held : view.held) {
    append_value(out, held.seq.value);
    append_value(out, held.shard);
    append_value(out, held.holder.value);
    append(out, held.lacking);
  }
}

Result<View> read_view(std::span<const std::byte>& bytes, int32_t size) {
  WireReader reader{bytes};
  View view;
  view.number = reader.take<uint32_t>();
  view.members = take_set(reader, size);
  view.reliable = take_set(reader, size);
  view.agreed.number = reader.take<uint32_t>();
  view.agreed.ranks = take_set(reader, size);
  view.seats.resize(static_cast<size_t>(size));
  view.members.for_each([&](Rank r) {
    Seat& seat = view.seats[static_cast<size_t>(r.value)];
    seat.since = reader.take<uint32_t>();
    seat.first = take_seq(reader);
  });
  view.cuts.resize(reader.take_count(sizeof(uint64_t) + sizeof(uint32_t)));
  for (Cut& cut : view.cuts) {
    cut.first = take_seq(reader);
    cut.owners.resize(reader.take_count(sizeof(int32_t)));
    for (Rank& owner : cut.owners) owner = take_rank(reader, size);
    cut.out = take_set(reader, size);
    cut.divisions.resize(reader.take_count(2 * sizeof(int32_t)));
    for (Division& d : cut.divisions) {
      d.shard = reader.take<int32_t>();
      d.owners.resize(reader.take_count(sizeof(int32_t)));
      for (Rank& owner : d.owners) owner = take_rank(reader, size);
    }
  }
  view.held.resize(reader.take_count(sizeof(uint64_t) + 2 * sizeof(int32_t)));
  for (Held& held : view.held) {
    held.seq = take_seq(reader);
    held.shard = reader.take<int32_t>();
    held.holder = take_rank(reader, size);
    held.lacking = take_set(reader, size);
  }
  // Decoded completely before it is checked, so that the checks may index freely.
  const char* fault = reader.ok ? fault_of(view) : "the bytes end, or a number is none";
  if (fault != nullptr) {
    return Status(Code::kProtocol,
                  concat("bytes that are no view of a group of ", size, ": ", fault));
  }
  return view;
}

}  // namespace aikido::membership

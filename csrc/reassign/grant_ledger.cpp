// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "reassign/grant_ledger.h"

#include <string>

#include "base/check.h"
#include "reassign/mutation.h"

namespace aikido::reassign {

void GrantLedger::add(GrantKey key, uint64_t step, uint32_t first,
                      std::vector<ItemSpec> items, TimePoint deadline) {
  Entry entry;
  entry.step = step;
  entry.first = first;
  entry.items = std::move(items);
  entry.deadline = deadline;
  entries_.insert_or_assign(key, std::move(entry));
}

void GrantLedger::confirm(GrantKey key) {
  const auto it = entries_.find(key);
  if (it == entries_.end()) return;
  Entry& entry = it->second;
  if (entry.state == GrantState::kSent) entry.state = GrantState::kConfirmed;
  if (entry.state == GrantState::kUnclear) entry.state = GrantState::kCounted;
}

ReturnedItems GrantLedger::refuse(GrantKey key, bool is_step_over) {
  const auto it = entries_.find(key);
  if (it == entries_.end()) return {};
  Entry& entry = it->second;
  if (entry.state == GrantState::kClosed && !is_broken(Rule::kLostOnce)) return {};
  if (entry.state == GrantState::kCounted) return {};
  if (is_step_over) {
    close(key, entry, 0, Loss::Reason::kRefusedLate);
    return {};
  }
  entry.state = GrantState::kClosed;
  return {entry.first, std::exchange(entry.items, {})};
}

Result<ReturnedItems> GrantLedger::give_back(Rank helper, uint64_t step,
                                             ItemRange range, bool is_step_over) {
  for (auto& [key, entry] : entries_) {
    const auto size = static_cast<uint32_t>(entry.items.size());
    if (key.helper != helper || entry.step != step || range.count > entry.num_open() ||
        range.end() != entry.first + size)
      continue;
    const auto from = static_cast<size_t>(size - range.count);
    if (entry.state == GrantState::kClosed) {
      entry.items.resize(from);  // the rest may come back, too
      return ReturnedItems{};
    }
    if (is_step_over || entry.state == GrantState::kCounted) {
      if (!is_broken(Rule::kLateReturn))
        lose(key, entry, from, Loss::Reason::kReturnedLate);
      entry.items.resize(from);
      return ReturnedItems{};
    }
    std::vector<ItemSpec> back(entry.items.begin() + static_cast<std::ptrdiff_t>(from),
                               entry.items.end());
    entry.items.resize(from);
    return ReturnedItems{range.first, std::move(back)};
  }
  return Status(Code::kProtocol,
                to_string(helper) + " gives back " + std::to_string(range.count) +
                    " items of step " + std::to_string(step) + " from index " +
                    std::to_string(range.first) +
                    " on, which are not at the end of any grant to it; check that all "
                    "ranks run the same version",
                helper);
}

Status GrantLedger::done(Rank helper, uint64_t step, uint32_t index) {
  bool is_known = false;
  for (auto& [key, entry] : entries_) {
    if (key.helper != helper || entry.step != step) continue;
    is_known = true;
    if (entry.state == GrantState::kClosed) return Status::ok();
    if (index != entry.first + entry.num_done || entry.num_open() == 0) continue;
    ++entry.num_done;
    return Status::ok();
  }
  // The step may be forgotten.
  if (!is_known) return Status::ok();
  return {Code::kProtocol,
          to_string(helper) + " has done item " + std::to_string(index) + " of step " +
              std::to_string(step) +
              ", which is not the next item of any grant to it; check that all ranks "
              "run the same version",
          helper};
}

void GrantLedger::recall(Rank helper, uint64_t step, uint32_t serial) {
  for (auto& [key, entry] : entries_)
    if (key.helper == helper && entry.step == step) entry.recall = serial;
}

void GrantLedger::end_recall(Rank helper, uint32_t serial) {
  for (auto& [key, entry] : entries_)
    if (key.helper == helper && entry.recall == serial) entry.recall = 0;
}

void GrantLedger::helper_gone(Rank rank) {
  for (auto& [key, entry] : entries_) {
    if (key.helper != rank) continue;
    entry.is_helper_gone = true;
    if (entry.state == GrantState::kUnclear)
      close(key, entry, 0, Loss::Reason::kInDoubt);
    else if (entry.state == GrantState::kCounted && entry.recall != 0)
      close(key, entry, entry.num_done, Loss::Reason::kInDoubt);
  }
}

void GrantLedger::on_outcome(uint64_t step, const RankSet& contributors) {
  for (auto& [key, entry] : entries_) {
    if (entry.step != step) continue;
    const bool is_sent = entry.state == GrantState::kSent;
    if (!is_sent && entry.state != GrantState::kConfirmed) continue;
    if (!contributors.contains(key.helper)) {
      if (!is_broken(Rule::kReportSkipped))
        close(key, entry, 0, Loss::Reason::kSkipped);
    } else if (is_sent && !is_broken(Rule::kSentIsOpen)) {
      entry.state = GrantState::kUnclear;
    } else {
      entry.state = GrantState::kCounted;
    }
    if (entry.is_helper_gone) helper_gone(key.helper);
  }
}

void GrantLedger::forget_before(uint64_t step) {
  std::erase_if(entries_, [&](const auto& one) { return one.second.step < step; });
}

std::vector<ItemSpec> GrantLedger::open_items(Rank helper, uint64_t step) const {
  std::vector<ItemSpec> open;
  for (const auto& [key, entry] : entries_)
    if (key.helper == helper && entry.step == step &&
        entry.state == GrantState::kConfirmed)
      open.insert(open.end(), entry.items.begin() + entry.num_done, entry.items.end());
  return open;
}

bool GrantLedger::has_granted(Rank helper, uint64_t step) const {
  for (const auto& [key, entry] : entries_)
    if (key.helper == helper && entry.step == step) return true;
  return false;
}

std::optional<TimePoint> GrantLedger::answers_until(uint64_t step) const {
  std::optional<TimePoint> last;
  for (const auto& [key, entry] : entries_)
    if (entry.step == step && entry.state == GrantState::kSent && !entry.is_helper_gone)
      last = std::max(last.value_or(entry.deadline), entry.deadline);
  return last;
}

void GrantLedger::lose(const GrantKey& key, const Entry& entry, size_t from,
                       Loss::Reason reason) {
  for (size_t i = from; i < entry.items.size(); ++i) {
    const ItemId id{entry.step, self_, entry.first + static_cast<uint32_t>(i)};
    losses_.push_back({id, entry.items[i], key.helper, reason});
  }
}

void GrantLedger::close(const GrantKey& key, Entry& entry, size_t from,
                        Loss::Reason reason) {
  lose(key, entry, from, reason);
  entry.state = GrantState::kClosed;
}

}  // namespace aikido::reassign

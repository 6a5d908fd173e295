// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "collectives/partial_allreduce.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

namespace aikido::collectives {

using straggler::RankSet;
using transport::FrameKind;

namespace {

constexpr uint32_t kResultToken = 0;
constexpr uint32_t kContributionToken = 1;

// What the first frame of a result carries behind the call: reason u8, three zero
// bytes, deadline in microseconds u32, then the mask, bit r % 8 of byte r / 8 for rank
// r.
constexpr size_t kVerdictBytes = 8;
constexpr auto kMaxReason = static_cast<uint8_t>(straggler::Reason::kLogFull);

std::vector<std::byte> encode_verdict(const RankSet& mask, straggler::Reason reason,
                                      Duration deadline) {
  std::vector<std::byte> out(kVerdictBytes +
                             (static_cast<size_t>(mask.world_size()) + 7) / 8);
  out[0] = static_cast<std::byte>(reason);
  const auto us = static_cast<uint32_t>(
      std::min<int64_t>(deadline.count() / 1000, std::numeric_limits<uint32_t>::max()));
  std::memcpy(out.data() + 4, &us, sizeof us);
  mask.for_each([&](Rank r) {
    const auto i = static_cast<size_t>(r.value);
    out[kVerdictBytes + i / 8] |= std::byte{1} << (i % 8);
  });
  return out;
}

}  // namespace

PartialAllreduce::PartialAllreduce(OperationHost* host, Seq seq, Call call,
                                   Rank first_caller)
    : Operation(host, seq, std::move(call), first_caller),
      plan_(call_.count, size_of(call_.dtype), host->size(),
            host->settings().min_shard_bytes),
      reduce_(kernels::find_reduce(call_.op, call_.dtype)),
      group_policy_(host->policy(call_.policy)),
      own_shard_(plan_.shard_of(host->self())),
      shards_(static_cast<size_t>(plan_.num_shards())),
      shards_left_(plan_.num_shards()) {
  if (own_shard_) {
    sources_.resize(static_cast<size_t>(host->size()));
    policy_ = group_policy_.start(seq, call_.bytes());
  }
}

std::byte* PartialAllreduce::result() {
  if (!result_) result_ = host_->pool().take(std::max<size_t>(1, call_.bytes()));
  return result_.data();
}

Status PartialAllreduce::on_start() {
  was_committed_ = is_committed();
  const int32_t n = host_->size();
  for (int32_t step = 1; step < n; ++step) {
    const Rank owner((host_->self().value + step) % n);
    const auto s = plan_.shard_of(owner);
    if (!s) continue;
    Shard& shard = shards_[static_cast<size_t>(*s)];
    // A mask that is known already is one without us.
    if (shard.is_had || shard.mask.count() > 0) continue;
    ++contributions_in_flight_;
    shard.contribution =
        post(owner, FrameKind::kContrib, *s, local_.input + plan_.first_byte(*s),
             plan_.num_bytes(*s), 0, plan_.num_bytes(*s), true, kContributionToken);
  }
  for (int32_t s = 0; s < plan_.num_shards(); ++s) {
    const Shard& shard = shards_[static_cast<size_t>(s)];
    copy_to_caller(plan_.first_byte(s), plan_.first_byte(s) + shard.bytes);
  }
  if (policy_) {
    policy_->on_arrival(host_->self(), host_->clock().now());
    close_if_due();
  }
  expose_if_done();
  return Status::ok();
}

Result<std::byte*> PartialAllreduce::place(Rank from,
                                           const transport::FrameHeader& header,
                                           std::span<const std::byte> rest) {
  const auto s = static_cast<int32_t>(header.shard);
  if (s >= plan_.num_shards()) return misfit(from, header.total_bytes, 0);
  const size_t expected = plan_.num_bytes(s);
  if (header.total_bytes != expected) return misfit(from, header.total_bytes, expected);
  if (header.kind == FrameKind::kContrib && own_shard_ == s) {
    if (!policy_) return nullptr;  // late: closed without it
    Source& source = sources_[static_cast<size_t>(from.value)];
    if (header.offset != source.bytes)
      return misfit(from, header.total_bytes, expected);
    if (!source.staged)
      source.staged = host_->pool().take(std::max<size_t>(1, expected));
    return source.staged.data() + header.offset;
  }
  if (header.kind == FrameKind::kResult && plan_.owner(s) == from) {
    Shard& shard = shards_[static_cast<size_t>(s)];
    if (header.offset != shard.bytes || shard.is_had)
      return misfit(from, header.total_bytes, expected);
    if (header.offset == 0) {
      AIKIDO_TRY(read_mask(shard, rest));
      if (shard.contribution != 0 && !shard.mask.contains(host_->self())) {
        cancelled_bytes_ += host_->cancel(from, shard.contribution);
      }
    }
    return result() + plan_.first_byte(s) + header.offset;
  }
  return misfit(from, header.total_bytes, expected);
}

Status PartialAllreduce::read_mask(Shard& shard,
                                   std::span<const std::byte> verdict) const {
  const auto n = static_cast<size_t>(host_->size());
  if (verdict.size() != kVerdictBytes + (n + 7) / 8) {
    return {Code::kProtocol,
            concat("a result with ", verdict.size(), " bytes of verdict")};
  }
  uint32_t us = 0;
  std::memcpy(&us, verdict.data() + 4, sizeof us);
  shard.reason = static_cast<straggler::Reason>(verdict[0]);
  shard.deadline = std::chrono::microseconds(us);
  shard.mask = RankSet(host_->size());
  for (size_t r = 0; r < n; ++r) {
    const auto bits = static_cast<unsigned>(verdict[kVerdictBytes + r / 8]);
    if ((bits >> (r % 8) & 1u) != 0) shard.mask.insert(Rank(static_cast<int32_t>(r)));
  }
  if (shard.mask.count() == 0 || verdict[0] > std::byte{kMaxReason}) {
    return {Code::kProtocol, concat("a result of ", shard.mask.count(),
                                    " contributions for reason ", int(verdict[0]))};
  }
  return Status::ok();
}

void PartialAllreduce::arrived(Rank from, const transport::FrameHeader& header) {
  const auto s = static_cast<int32_t>(header.shard);
  if (header.kind == FrameKind::kContrib) {
    if (!policy_) return;
    Source& source = sources_[static_cast<size_t>(from.value)];
    source.bytes += header.payload_bytes;
    if (source.bytes < header.total_bytes) return;
    policy_->on_arrival(from, host_->clock().now());
    close_if_due();
  } else {
    Shard& shard = shards_[static_cast<size_t>(s)];
    const size_t begin = plan_.first_byte(s) + shard.bytes;
    shard.bytes += header.payload_bytes;
    copy_to_caller(begin, plan_.first_byte(s) + shard.bytes);
    if (shard.bytes == header.total_bytes) had(s);
  }
  expose_if_done();
}

// ---- as owner ----

void PartialAllreduce::on_time(TimePoint) {
  close_if_due();
  expose_if_done();
}

std::optional<TimePoint> PartialAllreduce::next_look() const {
  return policy_ ? policy_->next_look() : std::nullopt;
}

void PartialAllreduce::close_if_due() {
  if (!policy_ || is_over() || has_failed()) return;
  const straggler::Decision decision = policy_->decide(host_->clock().now());
  if (decision.closes()) close(decision);
}

void PartialAllreduce::close(const straggler::Decision& decision) {
  Shard& shard = shards_[static_cast<size_t>(*own_shard_)];
  shard.mask = policy_->arrived();
  shard.reason = decision.reason;
  shard.deadline = decision.deadline;
  policy_.reset();

  const size_t first = plan_.first_byte(*own_shard_);
  const size_t total = plan_.num_bytes(*own_shard_);
  const size_t element = size_of(call_.dtype);
  const size_t chunk = host_->settings().chunk_bytes / element * element;
  const double scale = scale_for(shard.mask.count());
  std::vector<const void*> inputs(static_cast<size_t>(shard.mask.count()));
  size_t begin = 0;
  do {
    const size_t end = std::min(total, begin + chunk);
    if (end > begin) {
      size_t i = 0;
      shard.mask.for_each([&](Rank r) {
        inputs[i++] =
            r == host_->self()
                ? local_.input + first + begin
                : sources_[static_cast<size_t>(r.value)].staged.data() + begin;
      });
      reduce_(result() + first + begin, inputs.data(), inputs.size(),
              (end - begin) / element, scale);
    }
    send_result(begin, end);
    copy_to_caller(first + begin, first + end);
    begin = end;
  } while (begin < total);
  shard.bytes = total;
  // What is arriving too late must not be written to memory that somebody else gets.
  shard.mask.for_each_missing([&](Rank r) {
    if (r != host_->self()) {
      host_->drop_incoming(r, FrameKind::kContrib, seq_.value);
    }
  });
  sources_.clear();
  had(*own_shard_);
}

// A piece of the own shard to everyone: those that are late have time.
void PartialAllreduce::send_result(size_t begin, size_t end) {
  const Shard& shard = shards_[static_cast<size_t>(*own_shard_)];
  const size_t total = plan_.num_bytes(*own_shard_);
  std::vector<std::byte> verdict;  // goes with the first piece only
  if (begin == 0) verdict = encode_verdict(shard.mask, shard.reason, shard.deadline);
  const Priority priority = local_.priority;
  for (int32_t step = 1; step < host_->size(); ++step) {
    const Rank to((host_->self().value + step) % host_->size());
    const bool is_late = !shard.mask.contains(to);
    local_.priority = is_late && priority > std::numeric_limits<Priority>::min()
                          ? priority - 1
                          : priority;
    post(to, FrameKind::kResult, *own_shard_,
         result() + plan_.first_byte(*own_shard_) + begin, end - begin, begin, total,
         begin == 0, kResultToken, verdict);
  }
  local_.priority = priority;
}

// With divisor contributors a mean is over those who are in it, and a sum is scaled up
// to what it would be if the missing were like them; with divisor world the missing
// count as zeros.
double PartialAllreduce::scale_for(int32_t contributors) const {
  const bool is_mean = call_.op == ReduceOp::kAvg;
  if (call_.policy.divisor == straggler::Divisor::kWorld) {
    return is_mean ? 1.0 / host_->size() : 1.0;
  }
  return is_mean ? 1.0 / contributors
                 : static_cast<double>(host_->size()) / contributors;
}

// ---- as member ----

void PartialAllreduce::had(int32_t s) {
  Shard& shard = shards_[static_cast<size_t>(s)];
  shard.is_had = true;
  --shards_left_;
  group_policy_.history().on_committed(seq_, shard.mask, plan_.num_bytes(s));
}

bool PartialAllreduce::is_committed() const {
  return shards_left_ == 0;
}

bool PartialAllreduce::was_skipped() const {
  return std::any_of(shards_.begin(), shards_.end(), [&](const Shard& shard) {
    return shard.mask.world_size() > 0 && !shard.mask.contains(host_->self());
  });
}

void PartialAllreduce::copy_to_caller(size_t begin, size_t end) {
  // The input of a shard may be overwritten once its result is known: either it is in
  // there, or nobody wants it any more.
  if (is_started() && end > begin) {
    std::memcpy(local_.output + begin, result_.data() + begin, end - begin);
  }
}

void PartialAllreduce::expose_if_done() {
  if (!is_started() || is_over() || shards_left_ > 0) return;
  Outcome outcome;
  RankSet in_all(host_->size());
  for (int32_t r = 0; r < host_->size(); ++r) in_all.insert(Rank(r));
  for (int32_t s = 0; s < plan_.num_shards(); ++s) {
    const Shard& shard = shards_[static_cast<size_t>(s)];
    ShardOutcome& so = outcome.shards.emplace_back();
    so.owner = plan_.owner(s);
    shard.mask.for_each([&](Rank r) { so.contributors.push_back(r); });
    shard.mask.for_each_missing([&](Rank r) { in_all.erase(r); });
    so.scale = scale_for(shard.mask.count());
    if (!shard.mask.is_full() &&
        (outcome.reason.empty() || shard.deadline > outcome.deadline)) {
      outcome.deadline = shard.deadline;
      outcome.reason = straggler::name_of(shard.reason);
    }
  }
  in_all.for_each([&](Rank r) { outcome.contributors.push_back(r); });
  in_all.for_each_missing([&](Rank r) { outcome.skipped.push_back(r); });
  outcome.kind =
      outcome.skipped.empty() ? OutcomeKind::kComplete : OutcomeKind::kPartial;
  if (outcome.reason.empty()) {
    outcome.reason = straggler::name_of(straggler::Reason::kComplete);
  }
  outcome.cancelled_bytes = cancelled_bytes_;
  outcome.was_committed = was_committed_;
  set_over();
  succeed(std::move(outcome));
  if (contributions_in_flight_ == 0) release_caller();
}

void PartialAllreduce::on_message_sent(uint32_t token) {
  if (token != kContributionToken) return;
  // A slow receiver of our result must not keep the caller's memory.
  if (--contributions_in_flight_ == 0 && is_over()) release_caller();
}

std::vector<Rank> PartialAllreduce::missing() const {
  std::vector<Rank> ranks;
  RankSet named(host_->size());
  named.insert(host_->self());
  const auto name = [&](Rank r) {
    if (named.insert(r)) ranks.push_back(r);
  };
  if (policy_) policy_->arrived().for_each_missing(name);
  for (int32_t s = 0; s < plan_.num_shards(); ++s) {
    if (!shards_[static_cast<size_t>(s)].is_had) name(plan_.owner(s));
  }
  return ranks;
}

}  // namespace aikido::collectives

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "engine/group.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/mutation.h"
#include "engine/failures.h"
#include "engine/frame_admission.h"

namespace aikido::engine {

using collectives::Call;
using collectives::CallKind;
using collectives::Operation;
using transport::FrameHeader;
using transport::FrameKind;

namespace {
// Smaller contributions do not show the rate; see straggler/contribution_share.h.
bool tells_rate(const FrameHeader& header) {
  return header.kind == FrameKind::kContrib &&
         header.total_bytes > straggler::ContributionShare::kMostBytes;
}

// Larger than all windows and the log: such a number is invalid.
constexpr uint64_t kMaxAhead = uint64_t{1} << 31;
// Limit of the policies that other members may bring along. Each has its own history.
constexpr size_t kMaxPolicies = 1024;
// Longer than a normal call, and shorter than callers of a stuck call wait.
constexpr Duration kProbeAfter = std::chrono::milliseconds(500);

// Frames that consist of a header only.
bool is_notice(FrameKind kind) {
  return kind == FrameKind::kCalled || kind == FrameKind::kHeartbeat ||
         kind == FrameKind::kGoodbye || kind == FrameKind::kAskCalled ||
         kind == FrameKind::kAck || kind == FrameKind::kAskPresent ||
         kind == FrameKind::kPresent || kind == FrameKind::kNeed ||
         kind == FrameKind::kAskAcked;
}

// A report of a call may have waited; see Note [reports of calls wait].
TimePoint time_of_call(const FrameHeader& header, TimePoint now) {
  if (header.kind != FrameKind::kCalled) return now;
  const auto waited = std::min<uint64_t>(
      header.total_bytes, static_cast<uint64_t>(CallReport::kLongestWait.count()));
  return now - Duration(static_cast<int64_t>(waited));
}

bool is_abort(FrameKind kind) {
  return kind == FrameKind::kAbort || kind == FrameKind::kAbortFirst;
}

bool is_about_view(FrameKind kind) {
  return kind == FrameKind::kView || kind == FrameKind::kViewFirst;
}

bool is_p2p(FrameKind kind) {
  return kind == FrameKind::kP2pAnnounce || kind == FrameKind::kP2pReady ||
         kind == FrameKind::kP2pData || kind == FrameKind::kP2pWithdraw ||
         kind == FrameKind::kP2pTaken;
}

Peers::Settings settings_of_peers(const GroupOptions& options) {
  // A full log grows by half while its member is excluded (straggler/result_log.h).
  return {options.name,
          options.self,
          options.size,
          options.heartbeat,
          options.operation.window_bytes,
          options.log_bytes + options.log_bytes / 2};
}

}  // namespace

Group::Group(const Clock* clock, GroupOptions options)
    : clock_(clock),
      options_(std::move(options)),
      services_({clock_, &options_, &peers_, &policies_, &view_change_, &owners_,
                 &trace_, this}),
      peers_(clock_, settings_of_peers(options_),
             {services_.place_of_epoch(), &marks_}),
      trace_(options_.recorder, options_.name, options_.self, options_.size),
      calls_(&services_, services_.recycler()),
      mailbox_(&services_),
      policies_(options_.size, options_.log_bytes),
      view_change_(options_.self, options_.size, this),
      own_state_(options_.self),
      absent_(options_.self, options_.size, options_.heartbeat.timeout),
      owners_(options_.self, options_.size,
              {clock_, &peers_, &policies_, &view_change_, &trace_.member_events()}),
      results_({&options_, &marks_, &peers_, &view_change_, &own_state_, &absent_,
                &life_, &outlook_, &skipped_}),
      reports_(facts()),
      outlook_(facts()) {
  view_change_.set_patience(options_.heartbeat.timeout);
  if (options_.awaits_roles) view_change_.set_roles(std::nullopt);
  if (options_.reliable.count() > 0) view_change_.set_roles(options_.reliable);
}

Group::~Group() {
  close_links();
}

void Group::attach(Rank rank, std::unique_ptr<transport::Link> link) {
  peers_.attach(rank, std::move(link));
  if (rank == Rank(0)) trace_.on_link_to_rank_0();
  // The group failed while the member was connecting, so the member does not know.
  if (life_.has_ended()) peers_[rank].send_abort(Seq(0), life_.reason());
}

void Group::set_hosts(const std::vector<int32_t>& hosts) {
  options_.operation.hosts = hosts;
}

// ---- calls of the local member ----

void Group::call(Call call, collectives::LocalCall local, Duration timeout) {
  owners_.change_before_call();
  if (mutated(Mutation::kStrictShrinks) && call.kind == CallKind::kAllreduce)
    call.policy.rebalance = call.policy.kind == straggler::Kind::kWaitAll;
  const uint64_t seq = ++marks_.called;
  services_.counters().operations.fetch_add(1, std::memory_order_relaxed);
  if (call.policy.kind != straggler::Kind::kWaitAll)
    services_.counters().partial_operations.fetch_add(1, std::memory_order_relaxed);
  local.called_at = clock_->now();
  if (call.is_partial()) {
    marks_.last_partial = seq;
    owners_.on_call(call.bytes());
  }
  auto it = calls_.find(seq);
  if (it == calls_.end()) {
    it = calls_.add(Seq(seq), call, options_.self);
  } else if (it->second.operation->has_failed()) {
    calls_.on_failed_ahead_called();
  } else if (!(it->second.operation->call() == call)) {
    mismatch(*it->second.operation, call, options_.self);
    calls_.on_failed_ahead_called();
  }
  const auto operation = it->second.operation;
  trace_.on_call(Seq(seq), call, local);
  if (call.policy.kind == straggler::Kind::kSkip && !operation->has_failed())
    services_.policy(call.policy).on_timeout(timeout);
  it->second.deadline = clock_->now() + timeout;
  it->second.ask_at = clock_->now() + timeout / 2;
  // A full sum may wait long for a late member.
  if (call.policy.kind == straggler::Kind::kWaitAll)
    it->second.probe_at = clock_->now() + kProbeAfter;
  policies_.on_called(options_.self, Seq(seq), clock_->now());
  // Calls that are held back for an absent member are not announced, nor the calls
  // behind them.
  if (marks_.announced + 1 == seq && (!call.is_partial() || operation->has_failed()))
    marks_.announced = seq;
  // A call that fails before its start sends nothing.
  const Status failure = call.is_partial() ? life_.failure() : unreachable(kNoRank);
  if (failure.has_failed()) fail(*operation, failure, !life_.has_ended());
  it->second.held = std::move(local);
  if (call.kind == CallKind::kBarrier && !operation->has_failed()) {
    start_barriers();
  } else if (!call.is_partial() || operation->has_failed()) {
    start_held(it->second);
  }
  release_held_back();
  update_known();
}

void Group::refuse(const Status& why, bool tells) {
  const Seq seq(marks_.called + 1);
  const auto it = calls_.find(seq.value);
  if (it != calls_.end()) {
    fail(*it->second.operation, why, tells && !life_.has_ended());
  } else {
    if (tells && !life_.has_ended()) peers_.send_abort(seq, why);
    calls_.fail_ahead(seq, why);
  }
  Call nothing;
  nothing.kind = CallKind::kBarrier;
  call(nothing, {}, Duration::zero());
}

void Group::start_held(ActiveCall& active) {
  const auto operation = active.operation;
  const Status fits = start_call(*operation, *std::exchange(active.held, std::nullopt),
                                 options_.name, options_.self);
  if (fits.has_failed()) fail(*operation, fits, true);
  check_lost(*operation);
  retire(operation->seq().value);
}

// Note [a barrier waits for earlier calls]
// Callers drop the works of a few calls and then rely on a barrier, as with other
// backends. So a barrier starts here when the earlier calls are over here. Later calls
// do not wait for it.
void Group::start_barriers() {
  calls_.start_barriers([this](ActiveCall& barrier) { start_held(barrier); });
}

void Group::send(collectives::SendCall&& call) {
  if (!life_.has_ended() && peers_.is_reachable(call.to))
    return mailbox_.send(std::move(call));
  peers_.note_missed(call.to);
  if (call.on_done) call.on_done(unreachable(call.to), call.to);
}

void Group::receive(collectives::ReceiveCall&& call) {
  const Rank from = call.from.value_or(kNoRank);
  if (life_.has_ended()) {
    if (call.on_done) call.on_done(life_.reason(), from);
    return;
  }
  // Messages that arrived before the sender left are still delivered.
  mailbox_.receive(std::move(call));
  if (peers_.is_reachable(from)) return;
  if (mailbox_.fail_receives(from, unreachable(from))) peers_.note_missed(from);
}

// ---- frames ----

Result<std::byte*> Group::on_frame_begin(Rank from, const FrameHeader& header,
                                         std::span<const std::byte> extension) {
  std::byte* const nowhere = nullptr;
  peers_.heartbeats().on_heard(from);
  note_called(from, header);
  trace_.on_frame_begin(from, header);
  // See Note [acknowledgements behind a view] in group_views.cpp.
  if (!is_about_view(header.kind)) note_acked(from, header);
  if (is_abort(header.kind)) {
    if (header.seq > marks_.called + Peers::kMaxFailedAhead)
      return too_far_ahead(header.seq, marks_.called);
    return peers_[from].texts.place_abort(header, extension);
  }
  if (is_about_view(header.kind)) return peers_[from].texts.place_view(header);
  if (is_notice(header.kind)) return nowhere;
  if (is_p2p(header.kind)) return mailbox_.place(from, header);
  if (tells_rate(header)) peers_[from].uplink.on_begin(clock_->now());
  auto found = find(from, header, extension);
  if (!found) return found.status();
  if (!found->operation) return nowhere;
  Operation& operation = *found->operation;
  if (!operation.is_started())
    AIKIDO_TRY(peers_[from].early.admit(header, options_.operation.eager_bytes));
  auto place =
      place_frame(operation, from, header, found->rest, options_.name, options_.self);
  if (place) return *place;
  fail(operation, place.status(), true);
  return nowhere;
}

Result<FoundCall> Group::find(Rank from, const FrameHeader& header,
                              std::span<const std::byte> extension) {
  const FoundCall nobody;
  auto it = calls_.find(header.seq);
  if (life_.has_ended() && it == calls_.end()) return nobody;
  if (header.seq > marks_.called + kMaxAhead)
    return too_far_ahead(header.seq, marks_.called);
  if (it == calls_.end() && header.kind == FrameKind::kResult &&
      calls_.sending().contains(header.seq)) {
    auto decoded = read_call(extension, options_.size, options_.largest_call_bytes);
    if (!decoded) return decoded.status();
    const auto sending = calls_.sending().at(header.seq);
    const auto& theirs = *decoded;
    if (theirs && theirs->call == sending->call())
      return FoundCall{sending, theirs->rest};
  }
  if (it == calls_.end() && header.seq <= marks_.called &&
      !skipped_.is_unheard(header.seq)) {
    services_.counters().stale_frames.fetch_add(1, std::memory_order_relaxed);
    check_past(from, header.seq, extension);
    return nobody;
  }
  auto decoded = read_call(extension, options_.size, options_.largest_call_bytes);
  if (!decoded) return decoded.status();
  const auto& theirs = *decoded;
  if (it == calls_.end()) {
    if (!theirs) return Status(Code::kProtocol, "a message without its beginning");
    if (calls_.num_failed_ahead() > 2 * Peers::kMaxFailedAhead ||
        policies_.size() > kMaxPolicies) {
      return Status(Code::kProtocol,
                    "too many policies, or failures ahead of our calls");
    }
    // A copy, because a failing operation is replaced in the table.
    const auto made = calls_.add(Seq(header.seq), theirs->call, from)->second.operation;
    if (skipped_.on_heard(header.seq)) {
      skip_unheard(made);
    } else {
      check_lost(*made);
    }
    it = calls_.find(header.seq);
    if (it == calls_.end()) return nobody;
  }
  // Shared, because a mismatch removes a started operation from the table.
  const std::shared_ptr<Operation> operation = it->second.operation;
  if (theirs && !(operation->call() == theirs->call)) {
    mismatch(*operation, theirs->call, from);
  }
  if (operation->has_failed() || operation->is_over()) return nobody;
  return FoundCall{operation, theirs ? theirs->rest : std::span<const std::byte>()};
}

void Group::on_frame(Rank from, const FrameHeader& header) {
  trace_.on_frame(from, header);
  switch (header.kind) {
    case FrameKind::kCalled:
      return;
    case FrameKind::kHeartbeat:
      return send_clock(from, trace_.on_heartbeat(header));
    case FrameKind::kGoodbye:
      peers_[from].end.has_left = true;
      trace_.member_events().on_left(from);
      return;
    case FrameKind::kAskCalled:
      return peers_[from].on_asked(header.seq);
    case FrameKind::kAskAcked:
      return peers_[from].on_asked_acked(header.seq);
    case FrameKind::kView:
    case FrameKind::kViewFirst:
      return on_view_frame(from, header);
    case FrameKind::kAck:
    case FrameKind::kAskPresent:
    case FrameKind::kPresent:
    case FrameKind::kNeed:
      return on_notice(from, header);
    case FrameKind::kAbort:
    case FrameKind::kAbortFirst:
      if (const auto why = peers_[from].texts.read_abort(header, options_.size)) {
        on_abort(from, header.seq, *why);
      }
      return;
    default:
      break;
  }
  if (is_p2p(header.kind)) {
    mailbox_.arrived(from, header);
    return;
  }
  if (tells_rate(header))
    peers_[from].uplink.on_end(header.payload_bytes, clock_->now());
  const auto it = calls_.find(header.seq);
  if (it == calls_.end()) return;
  const auto operation = it->second.operation;
  if (operation->has_failed() || operation->is_over()) return;
  operation->arrived(from, header);
  // From the first frame on it is known which data shard a backup covers.
  if (header.kind == FrameKind::kContrib && header.offset == 0 &&
      operation->call().policy.has_stand_ins())
    check_lost(*operation);
  retire(header.seq);
  if (operation->call().is_partial()) update_known();
}

void Group::note_called(Rank from, const FrameHeader& header) {
  const uint64_t called = header.called;
  if (!peers_[from].note_called(called)) return;
  trace_.on_peer_called(from, called);
  own_state_.publish_called_elsewhere(called);
  if (policies_.is_empty()) return;
  policies_.on_called(from, Seq(called), time_of_call(header, clock_->now()));
  for (const auto& operation : calls_.operations())
    if (auto* skippable = operation->skippable();
        skippable != nullptr && operation->seq().value <= called)
      skippable->on_called(from);
}

// Starts held calls, in the order of the calls.
void Group::release_held_back() {
  while (marks_.announced < marks_.called) {
    const auto it = calls_.find(marks_.announced + 1);
    const bool is_held = it != calls_.end() && it->second.is_held_back();
    if (is_held && outlook_.held_back_for(*it->second.operation) != kNoRank) return;
    ++marks_.announced;
    if (is_held) start_held(it->second);
  }
}

void Group::on_over(Seq seq) {
  retire(seq.value);
  calls_.drop_sent(seq.value);
}

// ---- time ----

void Group::on_time(TimePoint now) {
  end_as_heard();
  if (peers_.grace().take_end(now)) check_all_lost();
  beat(now);
  tell_called();
  release_held_back();
  owners_.change_if_due();
  exclude_full();
  view_change_.on_time(now);
  for (const auto& operation : calls_.operations()) {
    if (operation->has_failed()) continue;  // waits for its caller only
    const auto look = operation->next_look();
    if (look && *look <= now) operation->on_time(now);
    retire(operation->seq().value);
    const auto it = calls_.find(operation->seq().value);
    if (it == calls_.end()) continue;
    if (it->second.probe_at <= now && operation->is_started()) {
      it->second.probe_at = TimePoint::max();
      operation->probe();
    }
    if (it->second.ask_at <= now) {
      it->second.ask_at = TimePoint::max();
      const uint64_t seq = operation->seq().value;
      for (const Rank rank : peers_.not_called(operation->awaited(), seq))
        peers_[rank].ask_called(seq);
    }
    if (it->second.deadline > now) continue;
    if (it->second.held) start_held(it->second);
    if (operation->is_started()) end_by_time(*operation, now);
  }
  update_known();
  const Status silent = peers_.silence();
  if (mailbox_.on_time(now, silent)) peers_.note_missed(silent.culprit());
}

// Sends heartbeats, and ends work that waits for a silent member.
void Group::beat(TimePoint now) {
  if (life_.is_leaving()) return;
  for (const Rank rank : peers_.heartbeats().on_time(now)) peers_[rank].beat();
  send_clock(Rank(0), trace_.question(now));
  const auto silent = peers_.heartbeats().silent();
  trace_.member_events().on_silent(silent);
  if (silent.empty()) return;
  check_all_lost();
  for (const Rank rank : silent) {
    if (mailbox_.on_peer_silent(rank, peers_.loss(rank))) peers_.note_missed(rank);
    if (!policies_.is_empty() || votes().is_agreeing())
      view_change_.on_silent(rank, now);
  }
}

void Group::send_clock(Rank to, std::optional<transport::OutMessage> word) {
  if (!word) return;
  word->header.epoch = services_.epoch();
  peers_[to].send(std::move(*word));
}

std::optional<TimePoint> Group::next_look() const {
  TimePoint earliest = TimePoint::max();
  const auto consider = [&](std::optional<TimePoint> t) {
    if (t && *t < earliest) earliest = *t;
  };
  consider(mailbox_.next_look());
  // The same condition as in tell_called(), which sends the reports.
  if (!policies_.is_empty() && !life_.has_ended())
    for (const Peer& p : peers_) consider(p.report_due());
  if (!life_.is_leaving()) {
    consider(peers_.heartbeats().next_look());
    consider(trace_.next_look());
    consider(view_change_.next_look());
  }
  if (owners_.is_due() || full_ != kNoRank || life_.has_notices())
    consider(clock_->now());
  if (!calls_.is_empty()) consider(peers_.grace().end());
  for (const auto& [seq, active] : calls_) {
    if (active.operation->has_failed()) continue;
    consider(active.operation->next_look());
    if (active.operation->is_started()) consider(active.probe_at);
    if (active.operation->is_started() || active.held)
      consider(std::min(active.ask_at, active.deadline));
  }
  if (earliest == TimePoint::max()) return std::nullopt;
  return earliest;
}

void Group::end_turn() {
  for (Peer& p : peers_) p.answer();
  tell_called();
}

void Group::update_known() {
  update_acked();
  uint64_t known = marks_.called;
  for (auto it = calls_.behind(marks_.called); it != calls_.end(); ++it) {
    if (it->first != known + 1 || !it->second.is_committed()) break;
    ++known;
  }
  own_state_.publish_known(known);
}

}  // namespace aikido::engine

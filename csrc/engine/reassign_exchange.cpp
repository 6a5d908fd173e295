// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "engine/reassign_exchange.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <condition_variable>
#include <mutex>
#include <string>
#include <utility>

#include "base/message_tags.h"
#include "base/text.h"
#include "engine/communicator.h"
#include "engine/exchange_hello.h"
#include "engine/message_port.h"

namespace aikido::engine {
namespace {

// Items of a grant that fits into a slot of the port.
constexpr uint32_t kMostItemsOfGrant =
    (MessagePort::kMostBytes - reassign::kMessageHeadBytes - 8) / 16;

// The Reassigner counts steps from 1, because 0 stands for "none".
uint64_t inner_step(uint64_t step) {
  return step + 1;
}

void set_outer_step(reassign::ItemId& id) {
  --id.step;
}

std::vector<Rank> peers_of(const reassign::HelperGroup& group) {
  std::vector<Rank> peers = group.helpers;
  for (const Rank rank : group.owners)
    if (std::find(peers.begin(), peers.end(), rank) == peers.end())
      peers.push_back(rank);
  return peers;
}

// A later one of these makes it superfluous. All messages have the news of their time.
bool is_news(reassign::MessageKind kind) {
  using enum reassign::MessageKind;
  return kind == kProgress || kind == kStepEnd;
}

reassign::ReassignOptions fitting(reassign::ReassignOptions options) {
  options.grant.most_items = std::min(options.grant.most_items, kMostItemsOfGrant);
  return options;
}

}  // namespace

// State of the exchange, which its group, its port and its owner share.
class ReassignExchange::Inner final : public MessagePortHandler,
                                      public transport::Timed,
                                      public std::enable_shared_from_this<Inner> {
 public:
  Inner(const std::shared_ptr<Communicator>& communicator,
        const reassign::HelperGroup& group, const ReassignExchangeOptions& options)
      : communicator_(communicator),
        self_(communicator->options().self),
        name_(concat("exchange of items on ", to_string(self_), " of group \"",
                     communicator->options().name, "\"")),
        hello_(ExchangeHello::of(options.hosts, communicator->options().size,
                                 options.num_helpers, options.reassign)),
        reassigner_(self_, group, fitting(options.reassign)) {}

  // ---- calls of ReassignExchange

  int32_t num_ranks() const { return hello_.num_ranks; }
  Status begin(uint64_t step, std::vector<reassign::ItemSpec> items);
  Result<std::optional<ClaimedItem>> claim(Duration timeout);
  void finished(Duration took);
  std::vector<reassign::NamedItem> leave();
  Status outcome(uint64_t step, const RankSet& contributors);
  std::vector<reassign::Loss> take_losses();
  ExchangeReport report() const;
  void stop();

  // ---- progress thread

  void attach(Group& group, transport::EventLoop& loop,
              const MessagePort::Place& place);
  void on_message(Rank from, std::span<const std::byte> bytes) override;
  void on_peer_lost(Rank rank) override;
  void on_end(const Status& why) override;
  void on_time(TimePoint now) override;
  [[nodiscard]] std::optional<TimePoint> next_look() const override;

 private:
  using Lock = std::unique_lock<std::mutex>;

  bool is_active() const;
  Status check_hello(Rank from, std::span<const std::byte> bytes) const;
  ClaimedItem claimed(const reassign::Claim& claim);
  void wait(Lock& lock, TimePoint until);
  bool collect();
  void close_call(Lock lock);
  void wake_progress_thread();
  void notify();
  void flush();
  void close();
  void detach();

  const std::weak_ptr<Communicator> communicator_;
  const Rank self_;
  const std::string name_;
  const ExchangeHello hello_;
  const SystemClock clock_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_.
  reassign::Reassigner reassigner_;
  std::vector<reassign::ItemSpec> items_;   // own items of the step
  std::vector<reassign::NamedItem> taken_;  // as of the report
  uint64_t last_outcome_ = 0;               // as inner_step(); 0: none
  Status failure_;                          // of claim(), once it is not ok
  std::vector<reassign::OutgoingMessage> outgoing_;
  bool is_flush_posted_ = false;
  uint64_t num_events_ = 0;

  // Next look of the Reassigner, and the look that the loop has seen last.
  std::atomic<TimePoint> look_at_ = TimePoint::max();
  mutable std::atomic<TimePoint> seen_look_ = TimePoint::max();
  // Progress thread.
  std::shared_ptr<MessagePort> port_;  // null before attach() and after the end
  transport::EventLoop* loop_ = nullptr;
  bool is_flushing_ = false;
};

// ---- the training thread

bool ReassignExchange::Inner::is_active() const {
  using enum reassign::StepPhase;
  return reassigner_.phase() == kWorking || reassigner_.phase() == kWaiting;
}

Status ReassignExchange::Inner::begin(uint64_t step,
                                      std::vector<reassign::ItemSpec> items) {
  Lock lock(mutex_);
  AIKIDO_TRY(failure_);
  if (is_active())
    return invalid(concat(name_, ": step ", step, " begins, and step ",
                          reassigner_.step() - 1,
                          " is not over; claim its items to the end, or leave() it"));
  if (inner_step(step) <= reassigner_.step())
    return invalid(concat(name_, ": step ", step, " begins after step ",
                          reassigner_.step() - 1, "; steps must ascend"));
  for (size_t i = 0; i < items.size(); ++i)
    if (!(items[i].cost > 0 && std::isfinite(items[i].cost)))
      return invalid(concat(name_, ": item ", i, " of step ", step, " has cost ",
                            items[i].cost, "; costs must be above 0 and finite"));
  items_ = items;
  taken_.clear();
  reassigner_.begin(inner_step(step), std::move(items), clock_.now());
  close_call(std::move(lock));
  return Status::ok();
}

Result<std::optional<ClaimedItem>> ReassignExchange::Inner::claim(Duration timeout) {
  const TimePoint deadline = clock_.now() + timeout;
  Lock lock(mutex_);
  while (true) {
    AIKIDO_TRY(failure_);
    const TimePoint now = clock_.now();
    const reassign::Claim claim = reassigner_.claim(now);
    std::optional<ClaimedItem> found;
    if (claim.kind == reassign::Claim::Kind::kItem) found = claimed(claim);
    if (claim.kind != reassign::Claim::Kind::kWait) {
      close_call(std::move(lock));
      return found;
    }
    const uint64_t seen = num_events_;
    if (collect()) {
      lock.unlock();
      wake_progress_thread();
      lock.lock();
    }
    if (num_events_ != seen) continue;
    if (now >= deadline)
      return Status(Code::kTimedOut,
                    concat(name_, ": claim() in step ", reassigner_.step() - 1,
                           " Timed out after ", to_ms(timeout),
                           " ms, while an answer of another rank could still bring an "
                           "item; claim again, with a longer time-out"));
    wait(lock, std::min(claim.until, deadline));
  }
}

void ReassignExchange::Inner::wait(Lock& lock, TimePoint until) {
  const uint64_t seen = num_events_;
  changed_.wait_for(lock, until - clock_.now(), [&] { return num_events_ != seen; });
}

ClaimedItem ReassignExchange::Inner::claimed(const reassign::Claim& claim) {
  ClaimedItem found;
  found.item = {claim.id, claim.spec};
  set_outer_step(found.item.id);
  found.is_last = claim.is_last;
  found.num_left = reassigner_.table()->unclaimed().count;
  if (claim.id.owner != self_) taken_.push_back(found.item);
  return found;
}

void ReassignExchange::Inner::finished(Duration took) {
  Lock lock(mutex_);
  reassigner_.on_finished(took, clock_.now());
  close_call(std::move(lock));
}

std::vector<reassign::NamedItem> ReassignExchange::Inner::leave() {
  Lock lock(mutex_);
  std::vector<reassign::NamedItem> left;
  for (reassign::ItemId id : reassigner_.leave(clock_.now())) {
    set_outer_step(id);
    left.push_back({id, items_[id.index]});
  }
  taken_.resize(reassigner_.report().taken.size());
  close_call(std::move(lock));
  return left;
}

Status ReassignExchange::Inner::outcome(uint64_t step, const RankSet& contributors) {
  Lock lock(mutex_);
  const uint64_t inner = inner_step(step);
  if (inner > reassigner_.step() || (inner == reassigner_.step() && is_active()))
    return invalid(
        concat(name_, ": the outcome of step ", step, " comes before its end here"));
  if (inner <= last_outcome_)
    return invalid(concat(name_, ": the outcome of step ", step,
                          " comes after that of step ", last_outcome_ - 1));
  if (contributors.world_size() != num_ranks())
    return invalid(concat(name_, ": an outcome of ", contributors.world_size(),
                          " ranks, and the group has ", num_ranks()));
  last_outcome_ = inner;
  reassigner_.on_outcome(inner, contributors);
  return Status::ok();
}

std::vector<reassign::Loss> ReassignExchange::Inner::take_losses() {
  const Lock lock(mutex_);
  std::vector<reassign::Loss> losses = reassigner_.take_losses();
  for (reassign::Loss& loss : losses) set_outer_step(loss.id);
  return losses;
}

ExchangeReport ReassignExchange::Inner::report() const {
  const Lock lock(mutex_);
  const reassign::StepReport& counts = reassigner_.report();
  ExchangeReport report;
  if (counts.step > 0) report.step = counts.step - 1;
  report.num_begun_with = counts.num_begun_with;
  report.num_given = counts.num_given;
  report.taken = taken_;
  report.num_messages = counts.num_messages;
  report.num_bytes = counts.num_bytes;
  return report;
}

void ReassignExchange::Inner::stop() {
  {
    const Lock lock(mutex_);
    if (failure_.is_ok())
      failure_ = {Code::kAborted, concat(name_, ": it was stopped; make a new one")};
    notify();
  }
  if (const auto communicator = communicator_.lock())
    communicator->engine().post([self = shared_from_this()] { self->close(); });
}

// ---- under the lock

// Takes the messages of the Reassigner. True: the progress thread must be woken up for
// them, or for an earlier look.
bool ReassignExchange::Inner::collect() {
  for (reassign::OutgoingMessage& message : reassigner_.take_messages())
    if (failure_.is_ok()) outgoing_.push_back(std::move(message));
  const TimePoint look = reassigner_.next_look().value_or(TimePoint::max());
  look_at_ = look;
  if (outgoing_.empty() && look >= seen_look_.load()) return false;
  return !std::exchange(is_flush_posted_, true);
}

void ReassignExchange::Inner::close_call(Lock lock) {
  const bool must_wake = collect();
  lock.unlock();
  if (must_wake) wake_progress_thread();
}

void ReassignExchange::Inner::notify() {
  ++num_events_;
  changed_.notify_all();  // no system call without a waiting claim
}

// Without the lock, because the caller may run the turn.
void ReassignExchange::Inner::wake_progress_thread() {
  const auto communicator = communicator_.lock();
  if (!communicator) return;
  communicator->engine().enqueue([self = shared_from_this()] { self->flush(); });
  communicator->engine().drive();
}

// ---- the progress thread

void ReassignExchange::Inner::attach(Group& group, transport::EventLoop& loop,
                                     const MessagePort::Place& place) {
  {
    const Lock lock(mutex_);
    if (failure_.has_failed()) return;
  }
  loop_ = &loop;
  loop_->add_timed(this);
  const auto port = port_ =
      std::make_shared<MessagePort>(&group, &loop, place, shared_from_this());
  port->open();
  const std::vector<std::byte> hello = hello_.encode();
  for (const Rank peer : place.peers) port->send(peer, hello);
  flush();
}

// Sends all messages, in their order. A peer may be lost meanwhile, which makes more of
// them.
void ReassignExchange::Inner::flush() {
  if (std::exchange(is_flushing_, true)) return;
  std::vector<reassign::OutgoingMessage> batch;
  while (true) {
    {
      const Lock lock(mutex_);
      is_flush_posted_ = false;
      batch = std::exchange(outgoing_, {});
    }
    const auto port = port_;
    if (!port || batch.empty()) break;
    for (const auto& message : batch) {
      if (is_news(message.kind))
        port->send_news(message.to, message.payload);
      else
        port->send(message.to, message.payload);
    }
  }
  is_flushing_ = false;
}

void ReassignExchange::Inner::on_message(Rank from, std::span<const std::byte> bytes) {
  {
    const Lock lock(mutex_);
    const Status taken = is_hello(bytes)
                             ? check_hello(from, bytes)
                             : reassigner_.on_message(from, bytes, clock_.now());
    if (taken.has_failed() && failure_.is_ok()) failure_ = taken.with_context(name_);
    collect();
    notify();
  }
  flush();
}

Status ReassignExchange::Inner::check_hello(Rank from,
                                            std::span<const std::byte> bytes) const {
  auto theirs = decode_hello(bytes);
  if (!theirs) return theirs.status();
  const std::string difference = hello_.difference(*theirs);
  if (difference.empty()) return Status::ok();
  return invalid(concat("the options differ between ", to_string(self_), " and ",
                        to_string(from), ": ", difference,
                        "; make it with the same options on all ranks"));
}

void ReassignExchange::Inner::on_peer_lost(Rank rank) {
  {
    const Lock lock(mutex_);
    reassigner_.on_peer_lost(rank, clock_.now());
    collect();
    notify();
  }
  flush();
}

void ReassignExchange::Inner::on_end(const Status& why) {
  {
    const Lock lock(mutex_);
    if (failure_.is_ok()) failure_ = why.with_context(name_);
    outgoing_.clear();
    notify();
  }
  detach();
}

void ReassignExchange::Inner::on_time(TimePoint now) {
  if (const auto port = port_) port->on_time(now);
  if (look_at_.load() <= now) {
    const Lock lock(mutex_);
    reassigner_.on_time(clock_.now());
    collect();
    notify();
  }
  flush();
}

// The training thread may change look_at_ meanwhile. It then either finds the former
// look in seen_look_, or this thread reads the new one.
std::optional<TimePoint> ReassignExchange::Inner::next_look() const {
  TimePoint look = look_at_;
  for (seen_look_ = look; look != look_at_.load(); seen_look_ = look) look = look_at_;
  if (const auto retry = port_ ? port_->next_look() : std::nullopt)
    look = std::min(look, *retry);
  if (look == TimePoint::max()) return std::nullopt;
  return look;
}

void ReassignExchange::Inner::close() {
  flush();
  if (const auto port = port_) port->close();
  detach();
}

void ReassignExchange::Inner::detach() {
  if (loop_) loop_->remove_timed(this);
  loop_ = nullptr;
  port_.reset();
}

// ---- ReassignExchange

ReassignExchange::ReassignExchange(std::shared_ptr<Inner> inner)
    : inner_(std::move(inner)) {}

Result<std::unique_ptr<ReassignExchange>> ReassignExchange::open(
    const std::shared_ptr<Communicator>& communicator, uint64_t number,
    const ReassignExchangeOptions& options) {
  const Rank self = communicator->options().self;
  AIKIDO_TRY(reassign::check(options.reassign));
  auto group = reassign::helper_group(self, communicator->options().size,
                                      options.num_helpers, options.hosts);
  if (!group) return group.status();
  const MessagePort::Place place{self, kReassignTags.cyclic(number), peers_of(*group)};
  auto inner = std::make_shared<Inner>(communicator, *group, options);
  communicator->post([inner, place, loop = &communicator->engine().loop()](
                         Group& present) { inner->attach(present, *loop, place); });
  return std::unique_ptr<ReassignExchange>(new ReassignExchange(std::move(inner)));
}

ReassignExchange::~ReassignExchange() {
  stop();
}

int32_t ReassignExchange::num_ranks() const {
  return inner_->num_ranks();
}

Status ReassignExchange::check_process() const {
  if (own_process_.is_here()) return Status::ok();
  return invalid(
      "this process was forked from a rank and takes no part in its exchange of items; "
      "call from the rank itself");
}

Status ReassignExchange::begin(uint64_t step, std::vector<reassign::ItemSpec> items) {
  AIKIDO_TRY(check_process());
  return inner_->begin(step, std::move(items));
}

Result<std::optional<ClaimedItem>> ReassignExchange::claim(Duration timeout) {
  AIKIDO_TRY(check_process());
  return inner_->claim(timeout);
}

Status ReassignExchange::finished(Duration took) {
  AIKIDO_TRY(check_process());
  inner_->finished(took);
  return Status::ok();
}

Result<std::vector<reassign::NamedItem>> ReassignExchange::leave() {
  AIKIDO_TRY(check_process());
  return inner_->leave();
}

Status ReassignExchange::outcome(uint64_t step, const RankSet& contributors) {
  AIKIDO_TRY(check_process());
  return inner_->outcome(step, contributors);
}

Result<std::vector<reassign::Loss>> ReassignExchange::take_losses() {
  AIKIDO_TRY(check_process());
  return inner_->take_losses();
}

Result<ExchangeReport> ReassignExchange::report() const {
  AIKIDO_TRY(check_process());
  return inner_->report();
}

// In a forked child another thread may hold the lock forever.
void ReassignExchange::stop() {
  if (own_process_.is_here()) inner_->stop();
}

}  // namespace aikido::engine

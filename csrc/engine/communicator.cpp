// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "engine/communicator.h"

#include <algorithm>
#include <cstring>
#include <random>
#include <utility>

#include "base/text.h"
#include "transport/laned_link.h"
#include "transport/tcp_link.h"

namespace aikido::engine {
namespace {

// How long a member that gives up lets its reason travel, and how often those that wait
// look whether somebody has.
constexpr Duration kGoodbye = std::chrono::seconds(1);
constexpr Duration kGlance = std::chrono::milliseconds(50);

transport::Token random_token() {
  std::random_device source;
  transport::Token token;
  for (size_t at = 0; at < token.size(); at += sizeof(unsigned)) {
    const unsigned bits = source();
    std::memcpy(token.data() + at, &bits, sizeof bits);
  }
  return token;
}

// "a=1;b=2" against "a=1;b=3": the part that differs, on both sides.
std::pair<std::string, std::string> difference(const std::string& mine,
                                               const std::string& theirs) {
  size_t start = 0;
  for (size_t i = 0; i < std::min(mine.size(), theirs.size()) && mine[i] == theirs[i];
       ++i) {
    if (mine[i] == ';') start = i + 1;
  }
  return {mine.substr(start, mine.find(';', start) - start),
          theirs.substr(start, theirs.find(';', start) - start)};
}

}  // namespace

Communicator::Communicator(std::shared_ptr<Engine> engine, GroupOptions options,
                           std::string agreed)
    : engine_(std::move(engine)),
      options_(std::move(options)),
      agreed_(std::move(agreed)),
      group_(std::make_unique<Group>(&engine_->loop(), options_)),
      is_linked_(static_cast<size_t>(options_.size)) {
  is_linked_[static_cast<size_t>(options_.self.value)] = true;
}

Communicator::~Communicator() {
  if (engine_->is_forked()) {
    [[maybe_unused]] const auto* leaked = group_.release();
    return;
  }
  engine_->run_and_wait([this] {
    engine_->listener().remove(this);
    engine_->remove(group_.get());
    group_.reset();
  });
}

Result<std::shared_ptr<Communicator>> Communicator::connect(
    std::shared_ptr<Engine> engine, membership::Store& store, GroupOptions options,
    const std::string& agreed, Duration timeout) {
  std::shared_ptr<Communicator> made(
      new Communicator(std::move(engine), std::move(options), agreed));
  const TimePoint deadline = made->clock_.now() + timeout;
  const Status met = made->meet(store, deadline);
  if (met) return made;
  // Those that are connected to us need not wait for the deadline, and hear why.
  made->abort(met);
  made->shutdown(kGoodbye);
  if (made->token_ != transport::Token{}) {
    made->engine_->run_and_wait([&] {
      made->engine_->listener().refuse(
          made->token_,
          concat("rank ", made->options_.self.value, " has given group \"",
                 made->options_.name, "\" up: ", met.message()));
    });
  }
  return met;
}

Status Communicator::meet(membership::Store& store, TimePoint deadline) {
  engine_->run_and_wait([this] { engine_->add(group_.get()); });
  if (options_.size == 1) return Status::ok();
  if (options_.self == Rank(0)) {
    token_ = random_token();
    AIKIDO_TRY(store.set(
        "token",
        std::string(reinterpret_cast<const char*>(token_.data()), token_.size())));
  } else {
    auto token = store.get("token", deadline - clock_.now());
    if (!token) {
      return token.status().with_context("rank 0 has not published the group's token");
    }
    if (token->size() != token_.size()) {
      return {Code::kProtocol,
              concat("the group's token has ", token->size(), " bytes")};
    }
    std::memcpy(token_.data(), token->data(), token_.size());
  }
  engine_->run_and_wait([this] { engine_->listener().add(this); });
  AIKIDO_TRY(store.set(concat("address/", options_.self.value),
                       engine_->address().to_string()));
  AIKIDO_TRY(dial_lower_ranks(store, deadline));
  return wait_for_links(deadline);
}

Status Communicator::dial_lower_ranks(membership::Store& store, TimePoint deadline) {
  for (int32_t r = 0; r < options_.self.value; ++r) {
    const std::string who =
        concat("connecting to rank ", r, " of group \"", options_.name, "\"");
    auto text = store.get(concat("address/", r), deadline - clock_.now());
    if (!text) {
      return Status(text.status().code(), text.status().message(), Rank(r))
          .with_context(who + ": it has not published its address");
    }
    auto address = transport::Address::parse(*text);
    if (!address) return address.status().with_context(who);
    AIKIDO_TRY(dial_member(Rank(r), *address, token_, deadline).with_context(who));
  }
  return Status::ok();
}

Status Communicator::dial_member(Rank rank, const transport::Address& address,
                                 const transport::Token& token, TimePoint deadline) {
  transport::Hello hello;
  hello.token = token;
  hello.rank = options_.self;
  hello.size = options_.size;
  hello.agreed = agreed_;
  auto sockets = transport::dial(address, hello, clock_, deadline);
  if (!sockets) return {sockets.status().code(), sockets.status().message(), rank};
  // Shared: std::function wants a copyable capture.
  const auto shared = std::make_shared<transport::LaneSockets>(std::move(*sockets));
  engine_->post([this, rank, shared] { attach(rank, std::move(*shared)); });
  return Status::ok();
}

Status Communicator::wait_for_links(TimePoint deadline) {
  std::unique_lock lock(mutex_);
  const auto is_settled = [this] {
    return !refused_ ||
           std::all_of(is_linked_.begin(), is_linked_.end(), [](bool b) { return b; });
  };
  while (!links_changed_.wait_for(lock, std::min(deadline - clock_.now(), kGlance),
                                  is_settled) &&
         clock_.now() < deadline) {
    lock.unlock();
    AIKIDO_TRY(failure());
    lock.lock();
  }
  if (!refused_) return refused_;
  if (is_settled()) return Status::ok();
  std::string who;
  Rank culprit = kNoRank;
  for (size_t r = 0; r < is_linked_.size(); ++r) {
    if (is_linked_[r]) continue;
    if (culprit == kNoRank) culprit = Rank(static_cast<int32_t>(r));
    who += concat(who.empty() ? "" : ", ", r);
  }
  return {Code::kTimedOut,
          concat("group \"", options_.name, "\": Timed out on rank ",
                 options_.self.value, " while waiting for rank ", who, " to connect"),
          culprit};
}

void Communicator::attach(Rank rank, transport::LaneSockets sockets) {
  auto link = std::make_unique<transport::LanedLink>(rank, group_->handler());
  for (const auto lane : {transport::Lane::kBulk, transport::Lane::kControl}) {
    link->set(lane,
              std::make_unique<transport::TcpLink>(
                  &engine_->loop(), std::move(sockets[static_cast<size_t>(lane)]), lane,
                  rank, options_.operation.chunk_bytes, link->handler(lane)));
  }
  group_->attach(rank, std::move(link));
  const std::lock_guard lock(mutex_);
  is_linked_[static_cast<size_t>(rank.value)] = true;
  links_changed_.notify_all();
}

bool Communicator::knows(const transport::Token& token) const {
  return transport::equal_tokens(token, token_);
}

std::string Communicator::refusal(const transport::Hello& hello) {
  const int32_t r = hello.rank.value;
  if (r <= options_.self.value || r >= options_.size || hello.size != options_.size) {
    return concat("rank ", r, " of ", hello.size, " is no member of group \"",
                  options_.name, "\" of ", options_.size, " that dials rank ",
                  options_.self.value);
  }
  const std::lock_guard lock(mutex_);
  if (is_linked_[static_cast<size_t>(r)]) {
    return concat("rank ", r, " of group \"", options_.name, "\" is connected already");
  }
  if (hello.agreed != agreed_) {
    const auto [mine, theirs] = difference(agreed_, hello.agreed);
    refused_ =
        Status(Code::kInvalidArgument,
               concat("group \"", options_.name, "\": rank ", options_.self.value,
                      " has ", mine, " and rank ", r, " has ", printable(theirs),
                      "; give this option the same value on every rank"),
               hello.rank);
    links_changed_.notify_all();
    return refused_.message();
  }
  return {};
}

void Communicator::on_connected(Rank rank, transport::LaneSockets sockets) {
  attach(rank, std::move(sockets));
}

uint64_t Communicator::call(collectives::Call call, collectives::LocalCall local,
                            Duration timeout) {
  // Posted under the lock, so that numbers and the order of posting agree.
  const std::lock_guard lock(mutex_);
  const auto shared = std::make_shared<collectives::LocalCall>(std::move(local));
  engine_->post([this, call = std::move(call), shared, timeout]() mutable {
    group_->call(std::move(call), std::move(*shared), timeout);
    group_->end_turn();
  });
  return ++num_calls_;
}

uint64_t Communicator::refuse(const Status& why) {
  const std::lock_guard lock(mutex_);
  engine_->post([this, why] {
    group_->refuse(why);
    group_->end_turn();
  });
  return ++num_calls_;
}

Status Communicator::pass_over(Seq seq) {
  Status passed;
  engine_->run_and_wait([&] {
    passed = group_->pass_over(seq);
    group_->end_turn();
  });
  const std::lock_guard lock(mutex_);
  if (passed) num_calls_ = std::max(num_calls_, seq.value);
  return passed;
}

bool Communicator::is_settled(Seq seq, Rank except) {
  bool is_settled = false;
  engine_->run_and_wait([&] { is_settled = group_->is_settled(seq, except); });
  return is_settled;
}

void Communicator::send(collectives::SendCall call) {
  const auto shared = std::make_shared<collectives::SendCall>(std::move(call));
  engine_->post([this, shared] { group_->send(std::move(*shared)); });
}

void Communicator::receive(collectives::ReceiveCall call) {
  const auto shared = std::make_shared<collectives::ReceiveCall>(std::move(call));
  engine_->post([this, shared] { group_->receive(std::move(*shared)); });
}

uint64_t Communicator::num_calls() const {
  const std::lock_guard lock(mutex_);
  return num_calls_;
}

uint64_t Communicator::committed_ahead() const {
  const std::lock_guard lock(mutex_);
  return std::max(group_->known_up_to(), num_calls_) - num_calls_;
}

Epoch Communicator::epoch() const {
  const std::lock_guard lock(mutex_);
  return epoch_;
}

Status Communicator::failure() {
  Status failure;
  engine_->run_and_wait([&] { failure = group_->failure(); });
  return failure;
}

void Communicator::abort(const Status& why) {
  if (engine_->is_forked()) return;
  engine_->post([this, why] { group_->abort(why); });
}

void Communicator::shutdown(Duration linger) {
  if (engine_->is_forked()) return;
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(is_shut_down_, true)) return;
  }
  const TimePoint deadline = clock_.now() + linger;
  // Leaving ends the calls under way here, and with them what they still have to send:
  // others may need it, so it goes first.
  wait_until_drained(deadline);
  engine_->run_and_wait([this] { group_->leave(); });
  wait_until_drained(deadline);
  engine_->run_and_wait([this] {
    engine_->listener().remove(this);
    group_->close_links();
  });
}

void Communicator::wait_until_drained(TimePoint deadline) {
  bool is_drained = false;
  while (true) {
    engine_->run_and_wait([&] { is_drained = group_->is_drained(); });
    if (is_drained || clock_.now() >= deadline) return;
    // Only the peers' kernels can tell when the last bytes are there: look again soon.
    std::unique_lock lock(mutex_);
    links_changed_.wait_for(lock, std::chrono::microseconds(500));
  }
}

}  // namespace aikido::engine

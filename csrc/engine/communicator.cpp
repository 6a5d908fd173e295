// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "engine/communicator.h"

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "transport/laned_link.h"
#include "transport/stream_link.h"

namespace aikido::engine {
namespace {

// The setting that differs, as it is on both sides: of "a=1;b=2" and "a=1;b=3", "b=2"
// and "b=3".
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

// Advice if ranks on other machines may not reach the address that this process has
// published.
std::string hint_of_reach(const std::string& host) {
  const std::string interface = transport::interface_of(host);
  if (interface.empty() || interface == "lo") return {};
  return concat("; the others look for it at ", host, ", the address of interface ",
                interface,
                ": if they cannot reach that, set AIKIDO_SOCKET_IFNAME to another one");
}

GroupOptions traced(GroupOptions options, const Engine& engine) {
  options.recorder = engine.recorder().get();
  return options;
}

}  // namespace

Communicator::Communicator(std::shared_ptr<Engine> engine, GroupOptions options,
                           std::string agreed)
    : engine_(std::move(engine)),
      options_(traced(std::move(options), *engine_)),
      agreed_(std::move(agreed)),
      group_(std::make_unique<Group>(&engine_->loop(), options_)),
      reliable_(options_.size),
      links_(options_.self, options_.size),
      held_([engine = engine_.get()](std::function<void()> work) {
        engine->enqueue(std::move(work));
      }) {
  if (options_.keeps_order)
    engine_->post([engine = engine_.get()] { engine->uplink().keep_order(); });
}

Communicator::~Communicator() {
  // After a fork the progress thread does not exist, so the group cannot be taken down.
  if (engine_->is_forked()) {
    [[maybe_unused]] const auto* leaked = group_.release();
    return;
  }
  engine_->run_and_wait([this] {
    engine_->listener().remove(this);
    engine_->remove(group_.get());
    group_.reset();
    if (options_.keeps_order) engine_->uplink().end_order();
  });
}

Status Communicator::dial_member(Rank rank, const transport::Address& address,
                                 const transport::Token& token, TimePoint deadline) {
  transport::Hello hello;
  hello.token = token;
  hello.rank = options_.self;
  hello.size = options_.size;
  hello.is_reliable = options_.is_reliable;
  hello.agreed = agreed_;
  transport::Sharing sharing{engine_->shared_memory_bytes(), engine_->shm_pool(), {}};
  auto dialled = transport::dial(address, hello, clock_, deadline, sharing);
  if (!dialled) return {dialled.status().code(), dialled.status().message(), rank};
  if (!sharing.failure.empty())
    links_.note_sharing_failure(
        concat("with rank ", rank.value, ": ", sharing.failure));
  // shared_ptr, because std::function needs a copyable capture.
  const auto shared = std::make_shared<transport::Connections>(std::move(*dialled));
  engine_->post([this, rank, shared] { attach(rank, std::move(*shared)); });
  return Status::ok();
}

Status Communicator::wait_for_links(TimePoint deadline) {
  AIKIDO_TRY(links_.await_all(clock_, deadline, [this] { return failure(); }));
  const std::vector<Rank> missing = links_.missing();
  if (missing.empty()) return Status::ok();
  std::string who;
  for (const Rank rank : missing) who += concat(who.empty() ? "" : ", ", rank.value);
  const std::string turned_away = links_.turned_away();
  return {Code::kTimedOut,
          concat("group \"", options_.name, "\": Timed out on rank ",
                 options_.self.value, " while waiting for rank ", who, " to connect",
                 turned_away.empty() ? "" : "; of one that dialled here: ", turned_away,
                 hint_of_reach(engine_->address().host)),
          missing.front()};
}

void Communicator::attach(Rank rank, transport::Connections connections) {
  auto link = std::make_unique<transport::LanedLink>(rank, group_->handler());
  transport::EventLoop* loop = &engine_->loop();
  const auto of = [&](transport::Lane lane) -> transport::Connection& {
    return connections[static_cast<size_t>(lane)];
  };
  of(transport::Lane::kBulk).blocks = std::move(of(transport::Lane::kControl).blocks);
  for (const auto lane : {transport::Lane::kBulk, transport::Lane::kControl}) {
    transport::Connection& connection = of(lane);
    size_t chunk_bytes = options_.operation.chunk_bytes;
    // The peer reads one chunk while this process writes the next, so both stay in the
    // cache.
    if (connection.memory) {
      chunk_bytes = std::min(chunk_bytes, connection.memory->ring_bytes() / 4);
      link->set_shared();
    }
    auto stream =
        transport::make_stream(loop, std::move(connection), lane, engine_->shm_pool());
    auto of_lane = std::make_unique<transport::StreamLink>(
        loop, &engine_->uplink(), std::move(stream), lane, rank, chunk_bytes,
        link->handler(lane));
    of_lane->trace({options_.recorder, rank, group_->trace().name()});
    link->set(lane, std::move(of_lane));
  }
  group_->attach(rank, std::move(link));
  links_.note_linked(rank);
}

// Note [early member of the next group]
// Over one store, a group may follow another under the same keys. A member that is
// ahead of rank 0 reads the token of the former group and dials with it. It may even
// arrive before that group has ended here. Rule: such a member gets no answer, which
// means "try again". It is recognised because it has left the former group, or because
// its group has another size. All other refused callers get the reason, also a second
// process with the rank of a living member.
bool Communicator::knows(const transport::Hello& hello) const {
  if (!transport::equal_tokens(hello.token, token_)) return false;
  if (hello.size != options_.size && links_.missing().empty()) return false;
  const int32_t r = hello.rank.value;
  return r < 0 || r >= options_.size || !links_.is_linked(hello.rank) ||
         !group_->peers().has_gone(hello.rank);
}

size_t Communicator::num_expected() const {
  return links_.missing().size() * transport::kNumLanes;
}

std::string Communicator::refusal(const transport::Hello& hello) {
  const int32_t r = hello.rank.value;
  if (r <= options_.self.value || r >= options_.size || hello.size != options_.size) {
    return concat("rank ", r, " of ", hello.size, " is no member of group \"",
                  options_.name, "\" of ", options_.size, " that dials rank ",
                  options_.self.value);
  }
  if (links_.is_linked(hello.rank)) {
    return concat("rank ", r, " of group \"", options_.name, "\" is connected already");
  }
  if (hello.agreed != agreed_) {
    const auto [mine, theirs] = difference(agreed_, hello.agreed);
    const Status why(Code::kInvalidArgument,
                     concat("group \"", options_.name, "\": rank ", options_.self.value,
                            " has ", mine, " and rank ", r, " has ", printable(theirs),
                            "; give this option the same value on every rank"),
                     hello.rank);
    links_.refuse(why);
    return why.message();
  }
  if (hello.is_reliable) reliable_.insert(hello.rank);
  return {};
}

void Communicator::on_turned_away(const std::string& why) {
  links_.note_turned_away(why);
}

void Communicator::on_no_room(const std::string& why) {
  if (num_expected() == 0) return;
  links_.refuse(
      {Code::kInvalidArgument,
       concat("group \"", options_.name, "\" on rank ", options_.self.value, ": ", why),
       options_.self});
}

void Communicator::on_connected(Rank rank, transport::Connections connections) {
  attach(rank, std::move(connections));
}

uint64_t Communicator::call(collectives::Call call, collectives::LocalCall local,
                            Duration timeout) {
  local.step = options_.recorder->traced_step();
  if (local.step != trace::Recorder::kNotTraced)
    local.traced_at = options_.recorder->now();
  uint64_t number = 0;
  {
    // Under the lock, so that the numbers agree with the order of posting.
    const std::lock_guard lock(mutex_);
    number = num_calls_ + 1;
    const auto hold = local.hold;
    calls_.put({std::move(call), std::move(local), timeout, number}, [&](auto ticket) {
      held_.enter(hold, [this, ticket] { take_up(calls_.take(ticket)); });
    });
    num_calls_ = number;
  }
  engine_->drive();
  return number;
}

void Communicator::take_up(Called called) {
  collectives::LocalCall& local = called.local;
  if (local.hold && local.hold->failure.has_failed()) {
    group_->refuse(local.hold->failure);
    collectives::Outcome outcome;
    outcome.kind = collectives::OutcomeKind::kAborted;
    outcome.seq = Seq(called.number);
    local.on_done(local.hold->failure, outcome);
  } else {
    engine_->uplink().note(local.priority,
                           called.call.is_partial() && group_->outlook().is_cut_off());
    group_->call(std::move(called.call), std::move(local), called.timeout);
  }
  group_->end_turn();
}

uint64_t Communicator::refuse(const Status& why, bool tells) {
  uint64_t number = 0;
  {
    const std::lock_guard lock(mutex_);
    held_.enter(nullptr, [this, why, tells] {
      group_->refuse(why, tells);
      group_->end_turn();
    });
    number = ++num_calls_;
  }
  engine_->drive();
  return number;
}

void Communicator::release(collectives::Hold& hold, const Status& failure) {
  {
    const std::lock_guard lock(mutex_);
    if (!held_.release(hold, failure)) return;
  }
  engine_->drive();
}

void Communicator::give_up_held(const Status& why) {
  {
    const std::lock_guard lock(mutex_);
    held_.give_up(why);
  }
  engine_->drive();
}

Status Communicator::skip_through(Seq seq) {
  if (held_.size() > 0)
    return {Code::kInvalidArgument,
            "calls are under way whose data is still coming from a device; wait for "
            "their works first"};
  Status passed;
  engine_->run_and_wait([&] {
    passed = group_->skip_through(seq);
    group_->end_turn();
  });
  const std::lock_guard lock(mutex_);
  if (passed.is_ok()) num_calls_ = std::max(num_calls_, seq.value);
  return passed;
}

bool Communicator::is_acked(Seq seq, Rank except) {
  bool is_acked = false;
  engine_->run_and_wait([&] { is_acked = group_->outlook().is_acked(seq, except); });
  return is_acked;
}

void Communicator::seal(const Seal& seal) {
  engine_->post([this, seal] { group_->seal(seal); });
}

bool Communicator::is_waited_for() {
  bool is_waited_for = false;
  engine_->run_and_wait([&] { is_waited_for = group_->outlook().is_waited_for(); });
  return is_waited_for;
}

std::vector<Rank> Communicator::gone() {
  std::vector<Rank> gone;
  engine_->run_and_wait([&] {
    for (int32_t r = 0; r < options_.size; ++r)
      if (group_->peers().has_gone(Rank(r))) gone.emplace_back(r);
  });
  return gone;
}

void Communicator::advise(Rank rank, straggler::Advice advice) {
  engine_->post([this, rank, advice] { group_->advise(rank, advice); });
}

RankSet Communicator::members() {
  RankSet members;
  engine_->run_and_wait([&] { members = group_->view().members; });
  return members;
}

void Communicator::set_hosts(const std::vector<int32_t>& hosts) {
  engine_->run_and_wait([&] { group_->set_hosts(hosts); });
}

void Communicator::send(collectives::SendCall&& call) {
  // A call that another thread makes meanwhile has no defined order with this call.
  const bool is_held = call.hold || held_.size() > 0;
  if (!is_held && engine_->drive_with([&] { take_up(std::move(call)); })) return;
  const auto hold = call.hold;
  sends_.put(std::move(call), [&](auto ticket) {
    const auto work = [this, ticket] { take_up(sends_.take(ticket)); };
    if (!is_held) return engine_->enqueue(work);
    const std::lock_guard lock(mutex_);
    held_.enter(hold, work);
  });
  engine_->drive();
}

void Communicator::send_ahead(collectives::SendCall&& call) {
  sends_.put(std::move(call), [this](auto ticket) {
    engine_->enqueue([this, ticket] { take_up(sends_.take(ticket)); });
  });
  engine_->drive();
}

void Communicator::take_up(collectives::SendCall&& call) {
  if (call.hold && call.hold->failure.has_failed())
    return call.on_done(call.hold->failure, kNoRank);
  engine_->uplink().note(call.priority);
  group_->send(std::move(call));
}

void Communicator::receive(collectives::ReceiveCall&& call) {
  if (engine_->drive_with([&] { group_->receive(std::move(call)); })) return;
  receives_.put(std::move(call), [this](auto ticket) {
    engine_->enqueue([this, ticket] { group_->receive(receives_.take(ticket)); });
  });
  engine_->drive();
}

uint64_t Communicator::num_calls() const {
  const std::lock_guard lock(mutex_);
  return num_calls_;
}

uint64_t Communicator::committed_ahead() const {
  const std::lock_guard lock(mutex_);
  return std::max(group_->own_state().known_up_to(), num_calls_) - num_calls_;
}

uint64_t Communicator::called_ahead() const {
  const std::lock_guard lock(mutex_);
  return std::max(group_->own_state().called_elsewhere(), num_calls_) - num_calls_;
}

std::string Communicator::sharing_failure() const {
  if (engine_->shared_memory_bytes() > 0 && !engine_->is_local())
    return "on its host: the name beside its port is taken, or there are no more "
           "sockets";
  return links_.sharing_failure();
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

std::optional<trace::ClockLine> Communicator::clock_of_rank_0() {
  std::optional<trace::ClockLine> line;
  engine_->run_and_wait([&] { line = group_->trace().clock_of_rank_0(); });
  return line;
}

void Communicator::abort(const Status& why) {
  if (engine_->is_forked()) return;
  engine_->post([this, why] { group_->abort(why); });
  give_up_held(why);
}

void Communicator::shutdown(Duration linger) {
  if (engine_->is_forked()) return;
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(is_shut_down_, true)) return;
  }
  const TimePoint deadline = clock_.now() + linger;
  // leave() ends the calls in progress and discards their unsent data. Others may need
  // this data, and calls that others still have to make. A caller that has dropped the
  // work of a call still relies on the call. So this member waits for all that first.
  bool is_well = false;
  engine_->run_and_wait([&] {
    is_well = group_->failure().is_ok();
    group_->ask_acked();
  });
  // Two separate waits: released calls enter the group first, and the group is asked
  // after that.
  wait_until([this] { return held_.size() == 0; }, deadline);
  wait_until([this] { return !group_->is_busy() && group_->is_drained(); }, deadline);
  engine_->run_and_wait([this] { group_->leave(); });
  give_up_held({Code::kAborted, concat("group \"", options_.name,
                                       "\" was shut down before the data of the call "
                                       "had come from its device")});
  wait_until([this] { return group_->is_drained(); }, deadline);
  if (const Rank last = leaves_after_; is_well && last != kNoRank)
    wait_until([&] { return group_->peers().has_gone(last); }, deadline);
  engine_->run_and_wait([this] {
    engine_->listener().remove(this);
    group_->close_links();
  });
}

// `is_so` is called on the progress thread.
void Communicator::wait_until(const std::function<bool()>& is_so, TimePoint deadline) {
  Duration pause = std::chrono::microseconds(500);
  while (true) {
    bool is_over = false;
    engine_->run_and_wait([&] { is_over = is_so(); });
    if (is_over || clock_.now() >= deadline) return;
    // Only the kernels of the peers know when the last bytes have arrived, so this
    // checks again soon.
    links_.await_change(pause);
    pause = std::min<Duration>(2 * pause, std::chrono::milliseconds(1));
  }
}

}  // namespace aikido::engine

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "sim/simulation.h"

#include <algorithm>
#include <exception>
#include <utility>

namespace aikido::sim {

using collectives::Call;
using collectives::CallKind;
using transport::FrameHeader;
using transport::FrameKind;
using transport::Wakeups;

namespace {

// Byte that fills the memory of a call once the memory belongs to its caller again.
constexpr unsigned char kMark = 0xee;
// Most turns at one time; more turns are an endless loop.
constexpr uint64_t kMaxTurns = 1'000'000;
// Time for which a run goes on after the last answer.
constexpr Duration kAfterwards = std::chrono::milliseconds(200);

std::byte* bytes_of(Bytes& data) {
  return reinterpret_cast<std::byte*>(data.data());
}

// The present view of a group, with a bit for each member.
SeenView view_of(const engine::Group& group) {
  return {group.view().number, group.view().members.words().front()};
}

}  // namespace

struct Simulation::Answer {
  uint64_t op = 0;
  Bytes memory;  // output, and input if in place
  Bytes apart;
  bool has_ended = false;

  bool is_untouched() const {
    return std::all_of(memory.begin(), memory.end(),
                       [](unsigned char b) { return b == kMark; });
  }
};

// Handler between the links of a member and its group. It reports arriving frames to
// the checks.
class Simulation::Door final : public transport::LinkHandler {
 public:
  Door(Simulation* simulation, int32_t self, LinkHandler* inside)
      : simulation_(simulation), self_(self), inside_(inside) {}
  Result<std::byte*> on_frame_begin(Rank from, const FrameHeader& header,
                                    std::span<const std::byte> extension) override {
    auto place = inside_->on_frame_begin(from, header, extension);
    simulation_->checks_.on_taken(self_, from.value, header,
                                  place && *place != nullptr);
    return place;
  }
  void on_frame(Rank from, const FrameHeader& header) override {
    if (header.kind == FrameKind::kResult)
      simulation_->checks_.on_result(self_, header.seq, header.payload_bytes);
    inside_->on_frame(from, header);
    simulation_->look_at(self_);
  }
  void on_link_lost(Rank from, const Status& why) override {
    simulation_->log("rank ", self_, " loses rank ", from.value, ": ", why.message());
    simulation_->checks_.on_lost(self_, from.value);
    inside_->on_link_lost(from, why);
    simulation_->look_at(self_);
  }
  uint64_t called() const override { return inside_->called(); }
  int32_t acked() const override { return inside_->acked(); }
  transport::WakePolicy wake_policy(Rank from) const override {
    return inside_->wake_policy(from);
  }

 private:
  Simulation* simulation_;
  int32_t self_;
  LinkHandler* inside_;
};

template <class Visit>
void Simulation::each(int32_t rank, Visit visit) {
  for (int32_t r = 0; r < script_.members; ++r)
    if (rank == kEvery || rank == r) visit(r);
}

template <class Visit>
void Simulation::each_pair(int32_t a, int32_t b, Visit visit) {
  each(a, [&](int32_t x) {
    each(b, [&](int32_t y) {
      if (x != y) visit(Rank(x), Rank(y));
    });
  });
}

template <class... Args>
void Simulation::log(const Args&... args) {
  if (options_.log != nullptr)
    *options_.log << to_ms(clock_.now() - start_) << " ms  " << concat(args...) << "\n";
}

Simulation::Simulation(const Script& script, const Options& options)
    : script_(script),
      options_(options),
      start_(clock_.now()),
      network_(&clock_, script.chunk_bytes),
      checks_(script, options.members_tolerated),
      agreements_(script),
      members_(static_cast<size_t>(script.members)) {
  for (int32_t r = 0; r < script.members; ++r) {
    engine::GroupOptions o;
    o.name = "sim";
    o.self = Rank(r);
    o.size = script.members;
    o.operation.chunk_bytes = script.chunk_bytes;
    o.operation.eager_bytes = 64;
    o.operation.min_shard_bytes = script.min_shard_bytes;
    o.operation.lead_bytes = script.lead_bytes;
    o.operation.window_bytes = script.window_bytes;
    o.log_bytes = script.log_bytes;
    o.reliable = RankSet(script.members);
    for (const int32_t reliable : script.reliable) o.reliable.insert(Rank(reliable));
    o.heartbeat = {script.beat_every, script.silent_after};
    o.pool_bytes = 0;  // so that the address sanitizer sees freed buffers
    member(r).group = std::make_unique<engine::Group>(&clock_, o);
    member(r).door = std::make_unique<Door>(this, r, member(r).group->handler());
  }
  network_.set_tap([this](Rank from, Rank to, const FrameHeader& header, TimePoint at) {
    return on_frame_leaves(from, to, header, at);
  });
  connect_all();
}

Simulation::~Simulation() {
  // The groups end their open calls here, and these ends do not count any more.
  for (Member& m : members_) {
    for (const auto& answer : m.answers) answer->has_ended = true;
  }
  for (Member& m : members_) m.group.reset();
}

void Simulation::connect_all() {
  for (int32_t a = 0; a < script_.members; ++a) {
    for (int32_t b = a + 1; b < script_.members; ++b) {
      auto [first, second] = network_.connect(Rank(a), member(a).door.get(), Rank(b),
                                              member(b).door.get());
      member(a).group->attach(Rank(b), std::move(first));
      member(b).group->attach(Rank(a), std::move(second));
    }
  }
}

// ---- the script ----

void Simulation::apply(const Event& e) {
  const TimePoint now = clock_.now();
  switch (e.kind) {
    case EventKind::kCall:
      each(e.a, [&](int32_t r) {
        if (member(r).group) member(r).calls.push_back(&e);
      });
      return;
    case EventKind::kDelay:
      each_pair(e.a, e.b, [&](Rank a, Rank b) {
        if (e.lane) return network_.set_delay(a, b, *e.lane, e.duration);
        network_.set_delay(a, b, e.duration);
      });
      return;
    case EventKind::kRate:
      each_pair(e.a, e.b, [&](Rank a, Rank b) { network_.set_rate(a, b, e.rate); });
      return;
    case EventKind::kStall:
      log("stall ", e.a, "->", e.b, " for ", to_text(e.duration));
      each_pair(e.a, e.b,
                [&](Rank a, Rank b) { network_.stall(a, b, now + e.duration); });
      return;
    case EventKind::kStop:
      each(e.a, [&](int32_t r) { stop(r, e.duration); });
      return;
    case EventKind::kKill:
      each(e.a, [&](int32_t r) { kill(r); });
      return;
    case EventKind::kAgree:
      each(e.a, [&](int32_t r) {
        if (member(r).group) ++member(r).agrees_due;
      });
      return;
    case EventKind::kPass:
      if (member(e.a).group) member(e.a).pass = &e;
      return;
    case EventKind::kCut:
      each_pair(e.a, e.b, [&](Rank a, Rank b) {
        log("cut ", a.value, "-", b.value);
        checks_.on_cut(a.value, b.value);
        network_.cut(a, b, now + e.duration);
      });
      return;
  }
}

void Simulation::kill(int32_t rank) {
  Member& m = member(rank);
  if (!m.group) return;
  log("kill ", rank);
  checks_.on_kill(rank);
  m.calls.clear();
  for (const auto& answer : m.answers)
    if (!std::exchange(answer->has_ended, true)) --num_open_;
  if (std::exchange(m.agrees_until, std::nullopt)) --num_open_;
  m.agrees_due = 0;
  m.group.reset();
}

void Simulation::stop(int32_t rank, Duration d) {
  Member& m = member(rank);
  if (!m.group) return;
  log("stop ", rank, " for ", to_text(d));
  m.stopped_until = std::max(m.stopped_until, clock_.now() + d);
  checks_.on_stop(rank, m.stopped_until);
  network_.stop(Rank(rank), m.stopped_until);
}

// ---- calls ----

// Makes the due calls. Returns true if it has made a call.
bool Simulation::make_calls(int32_t rank) {
  Member& m = member(rank);
  bool did = false;
  while (!m.calls.empty() && m.stopped_until <= clock_.now()) {
    const Event& e = *m.calls.front();
    if (e.op <= m.passed) {
      m.calls.pop_front();
      continue;
    }
    if (e.waits && !m.answers.empty() && !m.answers.back()->has_ended) break;
    m.calls.pop_front();
    call(rank, e);
    did = true;
  }
  return did;
}

uint64_t Simulation::live() const {
  uint64_t live = 0;
  for (size_t r = 0; r < members_.size(); ++r)
    if (members_[r].group) live |= uint64_t{1} << r;
  return live;
}

// The wait for an agreement has ended without one.
void Simulation::end_agreement(int32_t rank, const std::string& why) {
  log("rank ", rank, " gets no agreement: ", why);
  agreements_.on_none(rank, view_of(*member(rank).group).members, live(), why);
}

// Calls for an agreement if this is due, and takes one. Returns true if it has done so.
bool Simulation::agree(int32_t rank) {
  Member& m = member(rank);
  if (!m.group || m.stopped_until > clock_.now()) return false;
  bool did = false;
  if (m.agrees_due > 0 && !m.agrees_until) {
    --m.agrees_due;
    ++num_open_;
    m.agrees_until = clock_.now() + script_.timeout;
    log("rank ", rank, " calls for an agreement");
    m.group->votes().agree({});
    m.group->end_turn();
    m.is_touched = did = true;
  }
  if (!m.agrees_until) return did;
  auto agreed = m.group->votes().agreement();
  if (!agreed && clock_.now() < *m.agrees_until) return did;
  m.agrees_until.reset();
  --num_open_;
  if (agreed && agreed->is_ok()) {
    log("rank ", rank, " gets agreement ", (*agreed)->number, " of ",
        (*agreed)->ranks.count());
    agreements_.on_agreed(rank, **agreed);
  } else {
    const Status late = m.group->votes().give_up(script_.timeout);
    end_agreement(rank, (agreed ? agreed->status() : late).message());
  }
  return true;
}

bool Simulation::is_idle(int32_t rank) const {
  const Member& m = members_[static_cast<size_t>(rank)];
  return m.group && m.stopped_until <= clock_.now() &&
         std::all_of(m.answers.begin(), m.answers.end(),
                     [](const auto& answer) { return answer->has_ended; });
}

// Continues a member with a copy of another member's state, if both are between two
// calls. The copy takes no simulated time; only the work of the groups after it takes
// time.
bool Simulation::skip_through(int32_t rank) {
  Member& m = member(rank);
  if (m.pass == nullptr || !is_idle(rank) || !is_idle(m.pass->b)) return false;
  const int32_t giver = m.pass->b;
  const uint64_t seq = member(giver).group->handler()->called();
  if (seq < m.group->handler()->called()) return false;
  if (!member(giver).group->outlook().is_acked(Seq(seq), Rank(rank))) return false;
  if (!checks_.may_pass(rank, giver, seq)) return false;
  const Status passed = m.group->skip_through(Seq(seq));
  log("rank ", rank, " passes over up to ", seq, ": ",
      passed.is_ok() ? std::string("ok") : passed.message());
  if (passed.has_failed()) return false;
  m.pass = nullptr;
  m.passed = seq;
  m.is_touched = true;
  m.group->end_turn();
  checks_.on_pass(rank, giver, seq);
  return true;
}

void Simulation::call(int32_t rank, const Event& event) {
  Member& m = member(rank);
  const Call& call = script_.ops[event.op - 1];
  const bool is_own = call.kind == CallKind::kAllreduce && call.is_partial();
  const int32_t data_shard = is_own ? data_shard_of(script_, rank, event) : rank;
  const Bytes& input = checks_.input(
      data_shard == straggler::kAnyDataShard ? rank : data_shard, event.op);
  const auto answer = std::make_shared<Answer>();
  m.answers.push_back(answer);
  answer->op = event.op;
  collectives::LocalCall local;
  const auto n = static_cast<size_t>(script_.members);
  if (call.kind == CallKind::kAllgather) {
    const auto own = static_cast<size_t>(rank) * input.size();
    answer->memory.resize(n * input.size());
    std::copy(input.begin(), input.end(),
              answer->memory.begin() + static_cast<ptrdiff_t>(own));
    std::byte* memory = bytes_of(answer->memory);
    for (size_t r = 0; r < n; ++r) {
      if (r == static_cast<size_t>(rank)) continue;
      const Rank other(static_cast<int32_t>(r));
      local.out_blocks.push_back({other, memory + own, input.size()});
      local.in_blocks.push_back({other, memory + r * input.size(), input.size()});
    }
  } else if (call.kind == CallKind::kReduceScatter) {
    const size_t block = input.size() / n;
    const size_t own = static_cast<size_t>(rank) * block;
    answer->apart = input;
    answer->memory.assign(block, 0);
    for (size_t r = 0; r < n; ++r)
      local.out_blocks.push_back(
          {Rank(static_cast<int32_t>(r)), bytes_of(answer->apart) + r * block, block});
    local.output = bytes_of(answer->memory);
    if (event.in_place) {
      std::copy_n(input.begin() + static_cast<ptrdiff_t>(own), block,
                  answer->memory.begin());
      local.out_blocks[static_cast<size_t>(rank)].data = local.output;
    }
  } else {
    const bool is_root = call.kind == CallKind::kBroadcast && call.root == Rank(rank);
    const bool is_receiver = call.kind == CallKind::kBroadcast && !is_root;
    answer->memory = is_receiver ? Bytes(input.size()) : input;
    std::byte* memory = bytes_of(answer->memory);
    if (is_receiver) local.in_blocks.push_back({call.root, memory, input.size()});
    for (size_t r = 0; is_root && r < n; ++r)
      if (r != static_cast<size_t>(rank))
        local.out_blocks.push_back(
            {Rank(static_cast<int32_t>(r)), memory, input.size()});
    local.input = local.output = memory;
    if (!event.in_place && call.kind == CallKind::kAllreduce) {
      answer->apart = input;
      answer->memory.assign(input.size(), 0);
      local.input = bytes_of(answer->apart);
    }
  }
  local.priority = event.priority;
  if (call.is_weighted) local.weight = checks_.weight(rank, event.op);
  local.data_shard = data_shard;
  local.keep_alive = answer;
  local.on_done = [this, rank, answer](const Status& status,
                                       const collectives::Outcome& outcome) {
    end(rank, *answer, status, outcome);
  };
  ++num_open_;
  m.is_touched = true;
  log("rank ", rank, " calls ", event.op);
  checks_.on_call(rank, event.op, clock_.now(), data_shard);
  m.group->call(call, std::move(local), script_.timeout);
  m.group->end_turn();
}

void Simulation::end(int32_t rank, Answer& answer, const Status& status,
                     const collectives::Outcome& outcome) {
  if (!members_[static_cast<size_t>(rank)].group) return;
  if (options_.log != nullptr) {
    std::string skipped;
    for (const Rank r : outcome.skipped) skipped += concat(" ", r.value);
    std::string stand_ins;
    for (const auto& [data_shard, backup] : outcome.stand_ins)
      stand_ins += concat(", ", data_shard.value, " from ", backup.value);
    log("rank ", rank, " ends ", answer.op, ": ",
        status.has_failed() ? status.message()
        : skipped.empty()   ? "complete" + stand_ins
                            : "without" + skipped + stand_ins);
  }
  if (!answer.has_ended) --num_open_;
  answer.has_ended = true;
  if (answer.op == 1 && ++num_first_ended_ == script_.members - 1)
    report_.took_first = clock_.now() - start_;
  look_at(rank);
  checks_.on_end(rank, answer.op, status, outcome, answer.memory, clock_.now());
  // The memory belongs to the caller again, which may write to it.
  std::fill(answer.memory.begin(), answer.memory.end(), kMark);
  std::fill(answer.apart.begin(), answer.apart.end(), kMark);
}

// ---- time ----

TimePoint Simulation::on_frame_leaves(Rank from, Rank to, const FrameHeader& header,
                                      TimePoint arrives) {
  ++report_.num_frames;
  Traffic::OfKind& traffic = report_.traffic.by_kind[static_cast<size_t>(header.kind)];
  if (header.offset == 0) ++traffic.messages;
  traffic.bytes +=
      transport::kHeaderBytes + header.extension_bytes + header.payload_bytes;
  if (header.kind == FrameKind::kResult) look_at(from.value);
  checks_.on_sent(from.value, header);
  for (const Hold& hold : script_.holds) {
    if ((hold.from != kEvery && Rank(hold.from) != from) ||
        (hold.to != kEvery && Rank(hold.to) != to) ||
        (hold.kind != "*" && hold.kind != name_of(header)) ||
        (hold.op && *hold.op != header.seq) ||
        (hold.shard && *hold.shard != header.shard))
      continue;
    arrives = hold.until == kForEver ? Wakeups::kNever
                                     : std::max(arrives, start_ + hold.until);
  }
  if (arrives == Wakeups::kNever) checks_.on_held(from.value, to.value);
  if (options_.log != nullptr) {
    log(from.value, "->", to.value, " ", name_of(header), " op=", header.seq,
        " shard=", header.shard, " offset=", header.offset, " of ", header.total_bytes,
        arrives == Wakeups::kNever ? std::string(" never arrives")
                                   : concat(" view=", header.view, " begins to arrive ",
                                            to_text(arrives - start_)));
  }
  return arrives;
}

TimePoint Simulation::next_look(int32_t rank) {
  Member& m = member(rank);
  if (!m.group) return TimePoint::max();
  const uint64_t steps = network_.num_steps(Rank(rank));
  if (std::exchange(m.is_touched, false) || steps != m.num_steps) {
    m.num_steps = steps;
    m.next_look = m.group->next_look().value_or(TimePoint::max());
  }
  return std::max(m.next_look, m.stopped_until);
}

void Simulation::turn() {
  uint64_t num_turns = 0;
  for (bool did = true; std::exchange(did, false);) {
    network_.pump();
    for (int32_t r = 0; r < script_.members; ++r) {
      bool has_acted = skip_through(r);
      if (make_calls(r)) has_acted = true;
      if (agree(r)) has_acted = true;
      if (next_look(r) <= clock_.now()) {
        member(r).group->on_time(clock_.now());
        member(r).is_touched = has_acted = true;
      }
      if (has_acted) look_at(r);
      did |= has_acted;
    }
    AIKIDO_CHECK(++num_turns < kMaxTurns, "a turn that does not end");
  }
}

// Called after each action of a member. Without delays a member goes through several
// views at one time, and each view must follow from the view before.
void Simulation::look_at(int32_t rank) {
  if (member(rank).group) checks_.on_view(rank, view_of(*member(rank).group));
}

TimePoint Simulation::next_event() {
  TimePoint earliest = network_.next_event().value_or(TimePoint::max());
  if (next_event_ < script_.events.size())
    earliest = std::min(earliest, start_ + script_.events[next_event_].at);
  for (int32_t r = 0; r < script_.members; ++r) {
    earliest = std::min(earliest, next_look(r));
    if (const auto until = member(r).agrees_until)
      earliest = std::min(earliest, std::max(*until, member(r).stopped_until));
    const bool is_due = !member(r).calls.empty() || member(r).agrees_due > 0;
    if (is_due && member(r).stopped_until > clock_.now())
      earliest = std::min(earliest, member(r).stopped_until);
  }
  return earliest;
}

bool Simulation::is_over() const {
  return num_open_ == 0 && next_event_ == script_.events.size() &&
         std::all_of(members_.begin(), members_.end(), [](const Member& m) {
           return m.calls.empty() && m.agrees_due == 0;
         });
}

void Simulation::check_memory() {
  for (int32_t r = 0; r < script_.members; ++r)
    for (const auto& answer : member(r).answers)
      if (member(r).group && answer->has_ended && !answer->is_untouched())
        checks_.on_memory_touched(r, answer->op);
}

void Simulation::check_standing() {
  for (int32_t r = 0; r < script_.members; ++r) {
    const Member& m = member(r);
    if (m.group && m.group->own_state().member_state() != engine::MemberState::kMember)
      checks_.on_excluded(
          r, m.group->own_state().member_state() == engine::MemberState::kRefused);
  }
}

Report Simulation::run() {
  TimePoint until = TimePoint::max();
  while (checks_.violation().empty() && agreements_.violation().empty()) {
    while (next_event_ < script_.events.size() &&
           start_ + script_.events[next_event_].at <= clock_.now())
      apply(script_.events[next_event_++]);
    turn();
    if (until == TimePoint::max() && is_over()) {
      report_.took = clock_.now() - start_;
      until = clock_.now() + kAfterwards;
    }
    const TimePoint next = next_event();
    if (next > until || next == TimePoint::max()) break;
    clock_.advance(std::max(next - clock_.now(), Duration{}));
  }
  check_memory();
  check_standing();
  if (checks_.violation().empty()) checks_.on_finish(clock_.now());
  report_.violation =
      checks_.violation().empty() ? agreements_.violation() : checks_.violation();
  report_.num_ends = checks_.num_ends();
  report_.num_views = checks_.num_views();
  return report_;
}

Report run(const Script& script, const Options& options) {
  try {
    return Simulation(script, options).run();
  } catch (const std::exception& defect) {
    Report report;
    report.violation = concat("a defect: ", defect.what());
    return report;
  }
}

}  // namespace aikido::sim

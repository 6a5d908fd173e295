// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// A whole group in one thread: N engine::Groups on a LoopbackNetwork. Only run_for()
// and similar functions move its clock. Runs with the same calls are equal.

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/group.h"
#include "harness/manual_clock.h"
#include "harness/reduce_data.h"
#include "kernels/reduce.h"
#include "transport/loopback_link.h"

namespace aikido::testing {

using collectives::Call;
using collectives::CallKind;
using std::chrono::milliseconds;

// Outcome of one call.
struct Answer {
  int times = 0;  // number of completions: must end at 1
  Status status;
  collectives::Outcome outcome;
  Rank peer = kNoRank;  // messages only
  TimePoint at{};
  Bytes output;                   // output at the completion
  Bytes given;                    // caller's memory then, with Cluster::takes_results
  bool memory_is_free = false;    // keep_alive was released
  std::shared_ptr<Bytes> memory;  // filled with 0xee at the completion
  std::shared_ptr<std::vector<Bytes>>
      input;  // the same, if the input has separate blocks

  bool is_done() const { return times > 0; }
  bool is_ok() const { return times == 1 && status.is_ok(); }
  // True if nothing wrote to the caller's memory after the completion.
  bool memory_is_untouched() const {
    return std::all_of(memory->begin(), memory->end(),
                       [](unsigned char b) { return b == 0xee; });
  }
};
using AnswerPtr = std::shared_ptr<Answer>;

struct ClusterOptions {
  int32_t size = 2;
  size_t chunk_bytes = 256;
  size_t eager_bytes = 64;
  size_t min_shard_bytes = 64;
  size_t lead_bytes = 1 << 20;
  uint64_t window_bytes = 1 << 20;
  uint64_t log_bytes = 1 << 20;
  engine::HeartbeatOptions heartbeat{};  // none
  std::vector<int32_t> reliable{};       // ranks; empty: each member has a vote
  std::vector<int32_t> hosts{};          // host of each rank; empty: unknown
  // Makes the recorder of a rank, which the cluster keeps. Empty: nothing is traced.
  std::function<std::unique_ptr<trace::Recorder>(int32_t rank, const Clock& clock)>
      recorder{};
};

inline const std::byte* bytes_of(const Bytes& data) {
  return reinterpret_cast<const std::byte*>(data.data());
}
inline std::byte* bytes_of(Bytes& data) {
  return reinterpret_cast<std::byte*>(data.data());
}

// A member that sends nothing for 50 ms is silent.
inline ClusterOptions with_heartbeats(int32_t size) {
  ClusterOptions options{.size = size};
  options.heartbeat = {.interval = milliseconds(10), .timeout = milliseconds(50)};
  return options;
}

class Cluster {
 public:
  explicit Cluster(const ClusterOptions& options)
      : network(&clock, options.chunk_bytes),
        size_(options.size),
        stopped_until_(static_cast<size_t>(options.size)) {
    for (int32_t r = 0; r < size_; ++r) {
      engine::GroupOptions o;
      o.name = "test";
      o.self = Rank(r);
      o.size = size_;
      o.operation.chunk_bytes = options.chunk_bytes;
      o.operation.eager_bytes = options.eager_bytes;
      o.operation.min_shard_bytes = options.min_shard_bytes;
      o.operation.lead_bytes = options.lead_bytes;
      o.operation.window_bytes = options.window_bytes;
      o.operation.hosts = options.hosts;
      o.reliable = RankSet(size_);
      for (const int32_t reliable : options.reliable) o.reliable.insert(Rank(reliable));
      o.log_bytes = options.log_bytes;
      o.heartbeat = options.heartbeat;
      if (options.recorder) {
        recorders_.push_back(options.recorder(r, clock));
        o.recorder = recorders_.back().get();
      }
      o.pool_bytes =
          0;  // so that the address sanitizer detects the use of returned memory
      groups_.push_back(std::make_unique<engine::Group>(&clock, o));
    }
    for (int32_t a = 0; a < size_; ++a) {
      for (int32_t b = a + 1; b < size_; ++b) {
        auto [first, second] =
            network.connect(Rank(a), group(a).handler(), Rank(b), group(b).handler());
        group(a).attach(Rank(b), std::move(first));
        group(b).attach(Rank(a), std::move(second));
      }
    }
  }

  int32_t size() const { return size_; }
  engine::Group& group(int32_t rank) { return *groups_[static_cast<size_t>(rank)]; }

  // ---- calls

  // Weights of the contributions to weighted calls, by rank; empty: 1 each.
  std::vector<double> weights;
  // Skippable allreduces take the memory of their results.
  bool takes_results = false;

  AnswerPtr allreduce(int32_t rank, const Call& call, Bytes input,
                      Duration timeout = milliseconds(10'000), bool in_place = true,
                      Priority priority = 0,
                      int32_t data_shard = straggler::kAnyDataShard,
                      int64_t step = -1) {
    auto answer = std::make_shared<Answer>();
    answer->memory = std::make_shared<Bytes>(std::move(input));
    std::shared_ptr<Bytes> apart;
    if (!in_place) {
      apart = std::exchange(answer->memory,
                            std::make_shared<Bytes>(answer->memory->size()));
    }
    collectives::LocalCall local;
    local.input = bytes_of(in_place ? *answer->memory : *apart);
    local.output = bytes_of(*answer->memory);
    local.priority = priority;
    local.data_shard = data_shard;
    local.step = step;
    local.traced_at = clock.now();
    start(rank, call, std::move(local), answer, timeout, apart);
    return answer;
  }

  // Contribution of a backup for `data_shard`.
  AnswerPtr back_up(int32_t rank, const Call& call, Bytes input, int32_t data_shard) {
    return allreduce(rank, call, std::move(input), milliseconds(10'000), true, 0,
                     data_shard);
  }

  AnswerPtr barrier(int32_t rank, Duration timeout = milliseconds(10'000)) {
    Call call;
    call.kind = CallKind::kBarrier;
    return allreduce(rank, call, {}, timeout);
  }

  // The root's input goes to the output of all members.
  AnswerPtr broadcast(int32_t rank, const Call& call, Bytes data,
                      Duration timeout = milliseconds(10'000), int64_t step = -1) {
    auto answer = std::make_shared<Answer>();
    answer->memory = std::make_shared<Bytes>(std::move(data));
    collectives::LocalCall local;
    local.step = step;
    local.traced_at = clock.now();
    std::byte* memory = bytes_of(*answer->memory);
    const size_t bytes = answer->memory->size();
    if (Rank(rank) == call.root) {
      for (int32_t r = 0; r < size_; ++r)
        if (r != rank) local.out_blocks.push_back({Rank(r), memory, bytes});
    } else {
      local.in_blocks.push_back({call.root, memory, bytes});
    }
    start(rank, call, std::move(local), answer, timeout);
    return answer;
  }

  AnswerPtr allgather(int32_t rank, const Call& call, const Bytes& data,
                      Duration timeout = milliseconds(10'000)) {
    auto answer = std::make_shared<Answer>();
    const size_t bytes = data.size();
    answer->memory = std::make_shared<Bytes>(bytes * static_cast<size_t>(size_));
    std::byte* memory = bytes_of(*answer->memory);
    std::byte* own = memory + static_cast<size_t>(rank) * bytes;
    std::copy_n(bytes_of(data), bytes, own);
    collectives::LocalCall local;
    for (int32_t r = 0; r < size_; ++r) {
      if (r == rank) continue;
      local.out_blocks.push_back({Rank(r), own, bytes});
      local.in_blocks.push_back(
          {Rank(r), memory + static_cast<size_t>(r) * bytes, bytes});
    }
    start(rank, call, std::move(local), answer, timeout);
    return answer;
  }

  // Any pattern of blocks: out[r] goes to rank r, and in[r] bytes of the output come
  // from rank r. The blocks lie one behind another. nullopt: no block.
  AnswerPtr exchange(int32_t rank, const Call& call,
                     const std::vector<std::optional<Bytes>>& out,
                     const std::vector<std::optional<size_t>>& in,
                     Duration timeout = milliseconds(10'000), int64_t step = -1) {
    auto answer = std::make_shared<Answer>();
    size_t total = 0;
    for (const auto& bytes : in) total += bytes.value_or(0);
    answer->memory = std::make_shared<Bytes>(total);
    const auto sent = std::make_shared<Bytes>();
    for (const auto& block : out)
      if (block) sent->insert(sent->end(), block->begin(), block->end());
    collectives::LocalCall local;
    local.step = step;
    local.traced_at = clock.now();
    std::byte* from = bytes_of(*sent);
    std::byte* to = bytes_of(*answer->memory);
    for (int32_t r = 0; r < size_; ++r) {
      const auto i = static_cast<size_t>(r);
      if (i < out.size() && out[i]) {
        local.out_blocks.push_back({Rank(r), from, out[i]->size()});
        from += out[i]->size();
      }
      if (i < in.size() && in[i]) {
        local.in_blocks.push_back({Rank(r), to, *in[i]});
        to += *in[i];
      }
    }
    start(rank, call, std::move(local), answer, timeout, sent);
    return answer;
  }

  // blocks[r] is this member's contribution to the result of rank r.
  AnswerPtr reduce_scatter(int32_t rank, const Call& call,
                           const std::vector<Bytes>& blocks,
                           Duration timeout = milliseconds(10'000),
                           bool in_place = false) {
    auto answer = std::make_shared<Answer>();
    const Bytes& own = blocks[static_cast<size_t>(rank)];
    answer->memory =
        in_place ? std::make_shared<Bytes>(own) : std::make_shared<Bytes>(own.size());
    const auto input = std::make_shared<std::vector<Bytes>>(blocks);
    answer->input = input;
    collectives::LocalCall local;
    for (int32_t r = 0; r < size_; ++r) {
      Bytes& block = (*input)[static_cast<size_t>(r)];
      local.out_blocks.push_back({Rank(r), bytes_of(block), block.size()});
    }
    local.output = bytes_of(*answer->memory);
    if (in_place) local.out_blocks[static_cast<size_t>(rank)].data = local.output;
    start(rank, call, std::move(local), answer, timeout, input);
    return answer;
  }

  AnswerPtr send(int32_t rank, int32_t to, int32_t tag, Bytes data,
                 Priority priority = 0, Duration timeout = milliseconds(10'000)) {
    auto answer = std::make_shared<Answer>();
    answer->memory = std::make_shared<Bytes>(std::move(data));
    collectives::SendCall call;
    call.to = Rank(to);
    call.tag = tag;
    call.data = bytes_of(*answer->memory);
    call.bytes = answer->memory->size();
    call.priority = priority;
    call.deadline = clock.now() + timeout;
    call.on_done = [this, answer](const Status& s, Rank p) { done(*answer, s, p); };
    call.keep_alive = answer->memory;
    group(rank).send(std::move(call));
    return answer;
  }

  AnswerPtr receive(int32_t rank, std::optional<int32_t> from, int32_t tag,
                    size_t bytes, Duration timeout = milliseconds(10'000)) {
    auto answer = std::make_shared<Answer>();
    answer->memory = std::make_shared<Bytes>(bytes);
    collectives::ReceiveCall call;
    if (from) call.from = Rank(*from);
    call.tag = tag;
    call.data = bytes_of(*answer->memory);
    call.bytes = bytes;
    call.deadline = clock.now() + timeout;
    call.on_done = [this, answer](const Status& s, Rank p) { done(*answer, s, p); };
    call.keep_alive = answer->memory;
    group(rank).receive(std::move(call));
    return answer;
  }

  // ---- time

  // Runs all work that needs no time.
  void turn() {
    for (bool did = true; std::exchange(did, false);) {
      network.pump();
      for (size_t r = 0; r < groups_.size(); ++r) {
        const auto look = next_look(r);
        if (!look || *look > clock.now()) continue;
        groups_[r]->on_time(clock.now());
        did = true;
      }
      AIKIDO_CHECK(++num_turns_ < 10'000'000, "the cluster turns for ever");
    }
  }
  // Runs all events up to `until`, and sets the clock to that time.
  void run_until(TimePoint until) {
    for (turn(); const auto next = next_event(); turn()) {
      if (*next > until) break;
      move_to(*next);
    }
    move_to(until);
    turn();
  }
  void run_for(Duration d) { run_until(clock.now() + d); }
  // Runs until the network carries nothing any more.
  void run_idle() {
    for (turn(); network.next_event(); turn()) move_to(*next_event());
  }
  // Runs until all calls have an answer. Returns false after `limit`.
  bool run_until_done(const std::vector<AnswerPtr>& answers, Duration limit) {
    const TimePoint until = clock.now() + limit;
    const auto is_done = [&] {
      return std::all_of(answers.begin(), answers.end(),
                         [](const auto& a) { return a->is_done(); });
    };
    for (turn(); !is_done(); turn()) {
      const auto next = next_event();
      if (!next || *next > until) return false;
      move_to(*next);
    }
    return true;
  }

  // ---- faults

  void set_all_delays(Duration d) {
    each_pair([&](Rank a, Rank b) { network.set_delay(a, b, d); });
  }
  void set_all_rates(uint64_t bytes_per_second) {
    each_pair([&](Rank a, Rank b) { network.set_rate(a, b, bytes_per_second); });
  }
  // Stops a member: it sends and receives nothing, and does not notice that time
  // passes.
  void stop(int32_t rank, Duration d) {
    const TimePoint until = clock.now() + d;
    stopped_until_[static_cast<size_t>(rank)] = until;
    each_pair([&](Rank a, Rank b) {
      if (a == Rank(rank) || b == Rank(rank)) network.stall(a, b, until);
    });
  }
  // All connections of a member break.
  void kill(int32_t rank) {
    for (int32_t r = 0; r < size_; ++r) network.cut(Rank(rank), Rank(r));
  }

  // Requires: the cluster was given recorders.
  trace::Recorder& recorder(int32_t rank) {
    return *recorders_[static_cast<size_t>(rank)];
  }

  ManualClock clock;
  transport::LoopbackNetwork network;

 private:
  void start(int32_t rank, const Call& call, collectives::LocalCall local,
             const AnswerPtr& answer, Duration timeout,
             std::shared_ptr<void> apart = nullptr) {
    if (takes_results) {
      local.output = nullptr;
      local.result_slot = std::make_shared<collectives::ResultSlot>();
    }
    local.on_done = [this, answer, slot = local.result_slot](
                        const Status& status, const collectives::Outcome& outcome) {
      answer->outcome = outcome;
      done(*answer, status, kNoRank);
      if (slot && status.is_ok()) read(*slot, *answer);
    };
    if (!weights.empty()) local.weight = weights[static_cast<size_t>(rank)];
    // Owner of the memory, which ends when the operation releases it.
    local.keep_alive = std::shared_ptr<void>(
        nullptr, [weak = std::weak_ptr(answer), apart, memory = answer->memory](void*) {
          if (const auto a = weak.lock()) a->memory_is_free = true;
        });
    group(rank).call(call, std::move(local), timeout);
    group(rank).end_turn();
  }
  // The caller's memory has its input until the completion.
  static void read(const collectives::ResultSlot& slot, Answer& answer) {
    answer.given = std::exchange(answer.output, Bytes(answer.memory->size()));
    if (answer.output.empty()) return;
    AIKIDO_CHECK(slot.memory != nullptr);
    std::memcpy(answer.output.data(), slot.memory.get(), answer.output.size());
  }
  void done(Answer& answer, const Status& status, Rank peer) {
    ++answer.times;
    answer.status = status;
    answer.peer = peer;
    answer.at = clock.now();
    answer.output = *answer.memory;
    std::fill(answer.memory->begin(), answer.memory->end(), 0xee);
    if (!answer.input) return;
    for (Bytes& block : *answer.input) std::fill(block.begin(), block.end(), 0xee);
  }
  std::optional<TimePoint> next_event() const {
    auto earliest = network.next_event();
    for (size_t r = 0; r < groups_.size(); ++r) {
      const auto t = next_look(r);
      if (t && (!earliest || *t < *earliest)) earliest = t;
    }
    return earliest;
  }
  std::optional<TimePoint> next_look(size_t rank) const {
    const auto look = groups_[rank]->next_look();
    if (!look) return look;
    return std::max(*look, stopped_until_[rank]);
  }
  void move_to(TimePoint t) {
    if (t > clock.now()) clock.advance(t - clock.now());
  }
  template <class Visit>
  void each_pair(Visit visit) {
    for (int32_t a = 0; a < size_; ++a)
      for (int32_t b = 0; b < size_; ++b)
        if (a != b) visit(Rank(a), Rank(b));
  }

  int32_t size_;
  std::vector<TimePoint> stopped_until_;  // by rank
  uint64_t num_turns_ = 0;
  std::vector<std::unique_ptr<trace::Recorder>> recorders_;  // by rank; used by groups
  std::vector<std::unique_ptr<engine::Group>> groups_;
};

inline Call allreduce_call(DType dtype, size_t count, ReduceOp op = ReduceOp::kSum) {
  Call call;
  call.kind = CallKind::kAllreduce;
  call.dtype = dtype;
  call.op = op;
  call.count = count;
  return call;
}

// fold(inputs of `ranks` in that order) * scale.
inline Bytes folded(const Call& call, const std::vector<Bytes>& inputs,
                    const std::vector<Rank>& ranks, double scale) {
  Bytes out(call.bytes());
  std::vector<const void*> sources;
  for (const Rank r : ranks)
    sources.push_back(inputs[static_cast<size_t>(r.value)].data());
  if (call.count > 0)
    kernels::find_reduce(call.op, call.dtype)(out.data(), sources.data(),
                                              sources.size(), call.count, scale);
  return out;
}

inline std::vector<Rank> all_ranks(int32_t size) {
  std::vector<Rank> ranks;
  for (int32_t r = 0; r < size; ++r) ranks.emplace_back(r);
  return ranks;
}

// A sum that may skip, with deadlines of milliseconds from the second operation on.
inline Call skip_sum_call(size_t count) {
  Call call = allreduce_call(DType::kFloat32, count, ReduceOp::kSum);
  call.policy.kind = straggler::Kind::kSkip;
  call.policy.floor = milliseconds(5);
  call.policy.ceiling = milliseconds(50);
  call.policy.warmup_operations = 1;
  return call;
}

// Each of `ranks` contributes the same input.
inline std::vector<AnswerPtr> call_all(Cluster& cluster, const Call& call,
                                       std::initializer_list<int32_t> ranks) {
  std::vector<AnswerPtr> answers;
  const Bytes input = random_elements(call.dtype, call.count, 7);
  for (const int32_t r : ranks) answers.push_back(cluster.allreduce(r, call, input));
  return answers;
}

inline bool all_ok(const std::vector<AnswerPtr>& answers) {
  return std::all_of(answers.begin(), answers.end(), [&](const AnswerPtr& a) {
    return a->is_ok() && a->output == answers.front()->output;
  });
}

}  // namespace aikido::testing

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
// Makes NUM strict allreduces of 4 KiB of float32, one after another, in a group of
// four members in this process:
//   count_allreduces NUM [without|disarmed|armed|spans [ELEMENTS]]
//
// Its instructions are the cost of a call in the engine and the collectives. They are
// counted by instructions.py and tracing.py. Links are in memory, the clock stands
// still and there is one thread, so each run executes the same instructions. The
// program also prints the number of its heap allocations.
//
// With a second argument links are traced, as links over sockets are: without a
// recorder, with a disarmed recorder, or with an armed recorder. Then the program also
// prints how often the recorder read the clock, because a reading takes no instructions
// here. With `spans` the recorder is armed, and the recorded spans are taken and
// counted.
#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/clock.h"
#include "counted.h"
#include "engine/group.h"
#include "trace/recorder.h"
#include "transport/loopback_link.h"
#include "transport/send_trace.h"

namespace aikido {
namespace {

constexpr int32_t kSize = 4;
constexpr size_t kCount = 1024;
class StandingClock final : public Clock {
 public:
  [[nodiscard]] TimePoint now() const override { return TimePoint(Duration(1)); }
};

// The clock of the recorder. It counts its readings.
class CountedClock final : public Clock {
 public:
  [[nodiscard]] TimePoint now() const override {
    ++num_asked;
    return TimePoint(Duration(1));
  }
  mutable std::atomic<uint64_t> num_asked{0};  // the recorder's watcher asks, too
};

struct Plan {
  uint64_t num = 0;
  size_t count = kCount;
  bool traces_links = false;
  trace::Recorder* recorder = nullptr;
};

// Reports to a trace the same events as StreamLink, for messages that the kernel takes
// at once.
class TracedLink final : public transport::Link {
 public:
  TracedLink(std::unique_ptr<transport::Link> link, transport::SendTrace trace,
             size_t chunk_bytes)
      : link_(std::move(link)), trace_(std::move(trace)), chunk_bytes_(chunk_bytes) {}

  transport::MessageId send(transport::OutMessage&& message) override {
    const size_t longest =
        message.chunk_bytes == 0 ? chunk_bytes_ : message.chunk_bytes;
    const transport::OutMessage copy = message;
    const transport::MessageId id = link_->send(std::move(message));
    trace_.on_queued(id, copy);
    size_t offset = 0;
    do {
      const size_t bytes = std::min(longest, copy.bytes - offset);
      trace_.on_picked(id, offset, bytes);
      trace_.on_written(id);
      offset += bytes;
    } while (offset < copy.bytes);
    trace_.on_gone(id, 0);
    return id;
  }
  void let_go(transport::MessageId id) override { link_->let_go(id); }
  void hurry() override { link_->hurry(); }
  size_t cancel(transport::MessageId id) override { return link_->cancel(id); }
  const transport::FrameHeader* incoming() const override { return link_->incoming(); }
  size_t num_received() const override { return link_->num_received(); }
  void drop_incoming() override { link_->drop_incoming(); }
  void hang_up() override { link_->hang_up(); }
  bool is_drained() const override { return link_->is_drained(); }
  void finish() override { link_->finish(); }
  void close() override { link_->close(); }

 private:
  const std::unique_ptr<transport::Link> link_;
  transport::SendTrace trace_;
  const size_t chunk_bytes_;
};

struct Member {
  std::unique_ptr<engine::Group> group;
  std::vector<float> data;
  bool is_done = false;
};

void allreduce(const Plan& plan, std::array<Member, kSize>& members,
               transport::LoopbackNetwork& network) {
  float expected = 0;
  for (int32_t r = 0; r < kSize; ++r) {
    Member& member = members[static_cast<size_t>(r)];
    const auto value = static_cast<float>(r + 1);
    member.data.assign(plan.count, value);
    expected += value;
    member.is_done = false;
    collectives::Call call;
    call.kind = collectives::CallKind::kAllreduce;
    call.dtype = DType::kFloat32;
    call.op = ReduceOp::kSum;
    call.count = plan.count;
    collectives::LocalCall local;
    local.input = local.output = reinterpret_cast<std::byte*>(member.data.data());
    if (plan.recorder != nullptr) {  // as Communicator::call does
      local.step = plan.recorder->traced_step();
      if (local.step != trace::Recorder::kNotTraced)
        local.traced_at = plan.recorder->now();
    }
    local.on_done = [&member](const Status& status, const collectives::Outcome&) {
      AIKIDO_CHECK(status.is_ok(), status.message());
      member.is_done = true;
    };
    member.group->call(std::move(call), std::move(local), std::chrono::seconds(1));
    member.group->end_turn();
  }
  network.pump();
  for (const Member& member : members)
    AIKIDO_CHECK(member.is_done && member.data.back() == expected,
                 "an allreduce did not end with the sum");
}

void run(const Plan& plan) {
  const StandingClock clock;
  const engine::GroupOptions defaults;
  transport::LoopbackNetwork network(&clock, defaults.operation.chunk_bytes);
  std::array<Member, kSize> members;
  for (int32_t r = 0; r < kSize; ++r) {
    engine::GroupOptions options;
    options.name = "counted";
    options.self = Rank(r);
    options.size = kSize;
    options.recorder = plan.recorder;
    members[static_cast<size_t>(r)].group =
        std::make_unique<engine::Group>(&clock, options);
  }
  for (int32_t a = 0; a < kSize; ++a)
    for (int32_t b = a + 1; b < kSize; ++b) {
      engine::Group& first = *members[static_cast<size_t>(a)].group;
      engine::Group& second = *members[static_cast<size_t>(b)].group;
      auto [to_b, to_a] =
          network.connect(Rank(a), first.handler(), Rank(b), second.handler());
      const auto traced = [&](std::unique_ptr<transport::Link> link, Rank peer,
                              engine::Group& group) {
        if (!plan.traces_links) return link;
        const transport::SendTrace trace{plan.recorder, peer, group.trace().name()};
        link = std::make_unique<TracedLink>(std::move(link), trace,
                                            defaults.operation.chunk_bytes);
        return link;
      };
      first.attach(Rank(b), traced(std::move(to_b), Rank(b), first));
      second.attach(Rank(a), traced(std::move(to_a), Rank(a), second));
    }
  for (uint64_t i = 0; i < plan.num; ++i) allreduce(plan, members, network);
  print_allocations();
}

bool is_mode(std::string_view mode) {
  return mode == "without" || mode == "disarmed" || mode == "armed" || mode == "spans";
}

void run_traced(Plan plan, std::string_view mode) {
  plan.traces_links = true;
  const CountedClock clock;
  std::optional<trace::Recorder> recorder;
  if (mode != "without") {
    recorder.emplace(trace::Recorder::kSpansPerThread, &clock);
    plan.recorder = &*recorder;
  }
  if (mode == "armed" || mode == "spans") recorder->arm();
  run(plan);
  std::printf("%llu readings\n", static_cast<unsigned long long>(clock.num_asked));
  if (mode != "spans") return;
  const trace::Recorder::Taken taken = recorder->take();
  AIKIDO_CHECK(taken.num_dropped == 0, "the ring is too small for so many allreduces");
  std::printf("%zu spans\n", taken.spans.size());
}

}  // namespace
}  // namespace aikido

int main(int argc, char** argv) {
  aikido::Plan plan;
  if (argc >= 2) plan.num = std::strtoull(argv[1], nullptr, 10);
  if (argc == 4) plan.count = std::strtoull(argv[3], nullptr, 10);
  if (plan.num == 0 || plan.count == 0 || argc > 4 ||
      (argc > 2 && !aikido::is_mode(argv[2]))) {
    std::fprintf(stderr,
                 "usage: count_allreduces NUM "
                 "[without|disarmed|armed|spans [ELEMENTS]]\n");
    return 2;
  }
  aikido::print_build();
  if (argc == 2) {
    aikido::run(plan);
  } else {
    aikido::run_traced(plan, argv[2]);
  }
}

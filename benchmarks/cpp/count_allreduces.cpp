// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
// Does NUM strict allreduces of 4 KiB of float32, one after another, in a group of four
// members of this process:
//   count_allreduces NUM
// For instructions.py, which counts its instructions: what a call costs in the engine
// and the collectives. Links are in memory, the clock stands still and there is one
// thread, so each run executes the same.
#include <array>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

#include "base/check.h"
#include "base/clock.h"
#include "engine/group.h"
#include "transport/loopback_link.h"

namespace aikido {
namespace {

// What decides about the number of instructions, beside the sources.
#if defined(__clang__)
constexpr const char* kCompiler = "clang";
constexpr int kVersion = __clang_major__;
#else
constexpr const char* kCompiler = "gcc";
constexpr int kVersion = __GNUC__;
#endif
#if defined(__x86_64__)
constexpr const char* kArchitecture = "x86_64";
#elif defined(__aarch64__)
constexpr const char* kArchitecture = "aarch64";
#else
constexpr const char* kArchitecture = "other";
#endif

constexpr int32_t kSize = 4;
constexpr size_t kCount = 1024;

class StandingClock final : public Clock {
 public:
  [[nodiscard]] TimePoint now() const override { return TimePoint(Duration(1)); }
};

struct Member {
  std::unique_ptr<engine::Group> group;
  std::vector<float> data = std::vector<float>(kCount);
  bool is_done = false;
};

void allreduce(std::array<Member, kSize>& members,
               transport::LoopbackNetwork& network) {
  float expected = 0;
  for (int32_t r = 0; r < kSize; ++r) {
    Member& member = members[static_cast<size_t>(r)];
    const auto value = static_cast<float>(r + 1);
    member.data.assign(kCount, value);
    expected += value;
    member.is_done = false;
    collectives::Call call;
    call.kind = collectives::CallKind::kAllreduce;
    call.dtype = DType::kFloat32;
    call.op = ReduceOp::kSum;
    call.count = kCount;
    collectives::LocalCall local;
    local.input = local.output = reinterpret_cast<std::byte*>(member.data.data());
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

void run(uint64_t num) {
  const StandingClock clock;
  const engine::GroupOptions defaults;
  transport::LoopbackNetwork network(&clock, defaults.operation.chunk_bytes);
  std::array<Member, kSize> members;
  for (int32_t r = 0; r < kSize; ++r) {
    engine::GroupOptions options;
    options.name = "counted";
    options.self = Rank(r);
    options.size = kSize;
    members[static_cast<size_t>(r)].group =
        std::make_unique<engine::Group>(&clock, options);
  }
  for (int32_t a = 0; a < kSize; ++a)
    for (int32_t b = a + 1; b < kSize; ++b) {
      engine::Group& first = *members[static_cast<size_t>(a)].group;
      engine::Group& second = *members[static_cast<size_t>(b)].group;
      auto [to_b, to_a] =
          network.connect(Rank(a), first.handler(), Rank(b), second.handler());
      first.attach(Rank(b), std::move(to_b));
      second.attach(Rank(a), std::move(to_a));
    }
  for (uint64_t i = 0; i < num; ++i) allreduce(members, network);
}

}  // namespace
}  // namespace aikido

int main(int argc, char** argv) {
  const uint64_t num = argc == 2 ? std::strtoull(argv[1], nullptr, 10) : 0;
  if (num == 0) {
    std::fprintf(stderr, "usage: count_allreduces NUM\n");
    return 2;
  }
  aikido::run(num);
  std::printf("%s %d, %s\n", aikido::kCompiler, aikido::kVersion,
              aikido::kArchitecture);
}

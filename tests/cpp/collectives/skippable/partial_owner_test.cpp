// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
// Tests of results that an owner sends before it has closed the shard.
#include <algorithm>
#include <map>
#include <tuple>

#include "harness/late_member.h"

using namespace aikido;
using namespace aikido::testing;
using transport::FrameHeader;
using transport::FrameKind;

namespace {

constexpr uint64_t kUsual = 1'000'000;  // bytes per second: a shard takes 100 ms

// Four members whose links have equal rates, after some operations.
struct Steady {
  Steady() : cluster({.size = 4, .chunk_bytes = 16 << 10}) {
    call.policy.floor = milliseconds(5);
    cluster.set_all_delays(milliseconds(1));
    cluster.set_all_rates(kUsual);
    for (int op = 0; op < 20; ++op) run_operation(cluster, call, {});
  }
  std::vector<AnswerPtr> call_all() {
    std::vector<AnswerPtr> answers;
    for (int32_t r = 0; r < cluster.size(); ++r)
      answers.push_back(cluster.allreduce(r, call, input));
    return answers;
  }

  Cluster cluster;
  Call call = skip_sum_call(kLarge);
  Bytes input = random_elements(call.dtype, call.count, 7);
};

// Results by their names (transport/shm/shm_buffer_pool.h). Equal names must mean equal
// bytes.
struct Results {
  void note(const transport::OutMessage& m) {
    if (m.header.kind != FrameKind::kResult || m.bytes == 0) return;
    const auto name =
        std::tuple(m.owner.get(), m.edition, m.header.shard, m.header.offset);
    const std::vector<std::byte> bytes(m.data, m.data + m.bytes);
    const auto [at, is_new] = named.try_emplace(name, bytes);
    CHECK(at->second == bytes);
    auto& num = num_messages[name];
    CHECK(++num <= m.num_receivers);
    owners.push_back(m.owner);
  }
  size_t num_shared() const {
    return static_cast<size_t>(std::ranges::count_if(
        num_messages, [](const auto& entry) { return entry.second > 1; }));
  }

  using Name = std::tuple<const void*, uint32_t, uint16_t, uint64_t>;
  std::map<Name, std::vector<std::byte>> named;
  std::map<Name, size_t> num_messages;
  std::vector<std::shared_ptr<transport::SendOwner>> owners;  // so names stay unique
};

bool is_last(const FrameHeader& h) {
  return h.offset + h.payload_bytes == h.total_bytes;
}

}  // namespace

TEST_CASE(
    "an owner sends all but the last piece of a result before the last contribution") {
  Steady s;
  // By owner: arrival of the last bytes that it gets, and of its result at rank 0.
  std::map<int32_t, TimePoint> whole, first_piece, last_piece;
  s.cluster.network.set_tap(
      [&](Rank from, Rank to, const FrameHeader& h, TimePoint arrives) {
        if (h.kind == FrameKind::kContrib && is_last(h))
          whole[to.value] = std::max(whole[to.value], arrives);
        if (h.kind == FrameKind::kResult && to.value == 0) {
          if (h.offset == 0) first_piece[from.value] = arrives;
          if (is_last(h)) last_piece[from.value] = arrives;
        }
        return arrives;
      });
  end_operation(s.cluster, s.call_all());
  for (const int32_t owner : {1, 2, 3}) {
    CAPTURE(owner);
    CHECK(last_piece[owner] > whole[owner]);
    CHECK(last_piece[owner] - whole[owner] < milliseconds(125));
    CHECK(first_piece[owner] - whole[owner] < milliseconds(25));
  }
}

TEST_CASE("a result that was sent in part is sent again if a member is skipped") {
  Steady s;
  // All of the contribution of kLate to rank 0 arrives soon, except its last pieces.
  const auto total = s.call.bytes() / 4;
  const auto stops_at =
      static_cast<size_t>(GENERATE(0.3, 0.9) * static_cast<double>(total));
  CAPTURE(stops_at);
  int num_beginnings = 0;
  s.cluster.network.set_tap(
      [&](Rank from, Rank to, const FrameHeader& h, TimePoint arrives) {
        const bool is_of_late = from.value == kLate && to.value == 0;
        if (h.kind == FrameKind::kContrib && is_of_late && h.offset >= stops_at)
          return arrives + milliseconds(1500);
        if (h.kind == FrameKind::kResult && from.value == 0 && to.value == 1)
          num_beginnings += h.offset == 0 && h.payload_bytes > 0;
        return arrives;
      });
  Results results;
  s.cluster.network.set_witness(
      [&](Rank, const transport::OutMessage& m) { results.note(m); });
  std::vector<AnswerPtr> answers = s.call_all();
  end_operation(s.cluster, answers);
  s.cluster.network.set_witness({});
  CHECK(results.num_shared() > 0);
  CHECK(num_beginnings == 2);
  const auto& shards = answers.front()->outcome.shards;
  REQUIRE(shards.size() == 4);
  CHECK(shards[0].contributors == std::vector{Rank(0), Rank(1), Rank(2)});
  s.cluster.network.set_tap({});
  run_operation(s.cluster, s.call, {});
}

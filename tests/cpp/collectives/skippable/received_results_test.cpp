// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "collectives/skippable/received_results.h"

#include <algorithm>
#include <cstring>

#include "harness/catch.h"
#include "harness/idle_operation.h"
#include "harness/views.h"

using namespace aikido;
using namespace aikido::testing;
using namespace aikido::collectives;
using transport::FrameHeader;
using transport::FrameKind;

namespace {

constexpr int32_t kSize = 4;
constexpr size_t kShard = 96 * 4;  // bytes

// Rank 0 of four, which has called and waits for the results of the others.
struct Receiver {
  Receiver() {
    cut_whole(shards, host.view());
    suspicion.on_progress();
    LocalCall local;
    local.input = local.output = output.data();
    REQUIRE(operation->start(std::move(local)).is_ok());
  }
  // The result of shard s arrives from its owner, with this mask.
  void receive(int32_t s, std::initializer_list<int32_t> mask) {
    FrameHeader header;
    header.kind = FrameKind::kResult;
    header.shard = static_cast<uint16_t>(s);
    header.view = 1;
    header.payload_bytes = kShard;
    header.total_bytes = kShard;
    auto place =
        received.place(Rank(s), header, s, encode_result_header({set_of(kSize, mask)}));
    REQUIRE(place.is_ok());
    std::byte* const memory = *place;
    REQUIRE(memory != nullptr);
    std::memset(memory, 7 + s, kShard);
    received.arrived(s, header);
  }
  size_t num_acks() const {
    return static_cast<size_t>(
        std::ranges::count_if(host.queued, [](const transport::OutMessage& m) {
          return m.header.kind == FrameKind::kAck;
        }));
  }

  IdleHost host{kSize};
  std::vector<std::byte> output = std::vector<std::byte>(kSize * kShard);
  std::shared_ptr<IdleOperation> operation =
      std::make_shared<IdleOperation>(&host, skippable_call(kSize * 96));
  straggler::GroupPolicy policy{skippable_call(kSize * 96).policy,
                                std::make_shared<straggler::ResultLog>(kSize, 1 << 20)};
  PartialShards shards{Rank(0), kSize, Seq(1), operation->call()};
  IncomingFrames incoming{&host, Seq(1)};
  ResultSends sends{*operation, policy.history(), shards};
  Contributions contributions{*operation, policy.history(), shards};
  CalledMembers called{*operation, shards};
  OwnerSuspicion suspicion{*operation, policy, shards, incoming, called};
  ReceivedResults received{*operation, policy,        shards,   incoming,
                           sends,      contributions, suspicion};
};

}  // namespace

TEST_CASE("a full result is copied to the caller, without an acknowledgement") {
  Receiver r;
  r.receive(1, {0, 1, 2, 3});
  CHECK(r.shards.at(1).is_received);
  CHECK(r.shards.num_left() == 3);
  CHECK(r.output[kShard] == std::byte{8});
  CHECK(r.output[2 * kShard - 1] == std::byte{8});
  CHECK(r.output[0] == std::byte{0});
  CHECK(r.num_acks() == 0);
}

TEST_CASE("from the first result without a member on, all results are acknowledged") {
  Receiver r;
  r.receive(1, {0, 1, 2, 3});
  r.receive(2, {0, 1, 2});
  CHECK(r.num_acks() == 2);
  r.receive(3, {0, 1, 2, 3});
  CHECK(r.num_acks() == 3);
  CHECK(r.policy.history().consecutive_skips(Rank(3)) == 1);
}

TEST_CASE("a result is received once, and from its owner only") {
  Receiver r;
  r.receive(1, {0, 1, 2, 3});
  FrameHeader header;
  header.kind = FrameKind::kResult;
  header.view = 1;
  header.total_bytes = kShard;
  const auto bytes = encode_result_header({set_of(kSize, {0, 1})});
  CHECK(*r.received.place(Rank(1), header, 1, bytes) == nullptr);
  CHECK_FALSE(r.received.place(Rank(3), header, 2, bytes).is_ok());
  header.view = 2;
  CHECK(*r.received.place(Rank(3), header, 2, bytes) == nullptr);
}

TEST_CASE("a shard is charged to the log once, and the operation once") {
  Receiver r;
  CHECK(r.received.charge(1) == kShard + straggler::ResultLog::kOperationCharge);
  CHECK(r.received.charge(1) == 0);
  CHECK(r.received.charge(2) == kShard);
}

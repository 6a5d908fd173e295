// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Parts of a group of four, as rank 0 has them, for tests of single parts. The links to
// the other ranks accept everything and send nothing. One thread.

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "engine/group_facts.h"
#include "engine/group_options.h"
#include "engine/group_trace.h"
#include "engine/peers.h"
#include "engine/policy_table.h"
#include "engine/shard_owners.h"
#include "harness/catch.h"
#include "harness/idle_host.h"
#include "harness/manual_clock.h"
#include "harness/spy_link.h"
#include "harness/views.h"
#include "membership/view_change.h"

namespace aikido::testing {

// Host of a view change that has no operations.
struct EmptyViewHost final : membership::ViewChangeHost, membership::MemberReports {
  explicit EmptyViewHost(int32_t num_ranks) : size(num_ranks) {}
  const membership::MemberReports& reports() const override { return *this; }
  void send_view(Rank, const membership::ViewMessage& message) override {
    sent.push_back(message);
  }
  membership::Report report() const override { return report_of(size, 0, 0); }
  void on_promise() override {}
  void on_install(const membership::View&) override {}
  std::optional<Status> compare(Rank, const membership::Report&) const override {
    return Status::ok();
  }
  void on_refused(const Status&) override {}

  int32_t size;
  std::vector<membership::ViewMessage> sent;
};

struct GroupParts {
  static constexpr int32_t kSize = 4;

  explicit GroupParts(const engine::HeartbeatOptions& heartbeat = {}) {
    options.name = "test";
    options.self = Rank(0);
    options.size = kSize;
    options.heartbeat = heartbeat;
    peers.emplace(
        &clock,
        engine::Peers::Settings{"test", Rank(0), kSize, heartbeat, 1 << 10, 1 << 10},
        engine::Peers::Own{&epoch, &marks});
    for (int32_t r = 1; r < kSize; ++r) {
      auto link = std::make_unique<SpyLink>();
      links.push_back(link.get());
      peers->attach(Rank(r), std::move(link));
    }
    owners.emplace(Rank(0), kSize,
                   engine::ShardOwners::Parts{&clock, &*peers, &policies, &change,
                                              &trace.member_events()});
  }
  GroupParts(const GroupParts&) = delete;
  GroupParts& operator=(const GroupParts&) = delete;

  // The next view arrives, changed by `edit`.
  template <class Edit>
  void install(Edit&& edit) {
    membership::ViewMessage message;
    message.step = membership::ViewStep::kView;
    message.proposed = change.view();
    message.proposed->number += 1;
    edit(*message.proposed);
    REQUIRE(change.on_message(Rank(1), message, clock.now()).is_ok());
    host.sent.clear();
  }

  engine::GroupFacts facts() {
    return {clock,  options,   marks,  *peers, calls,   policies,
            change, own_state, absent, keeper, skipped, life};
  }

  ManualClock clock;
  engine::GroupOptions options;
  uint32_t epoch = 1;
  engine::Watermarks marks;
  std::optional<engine::Peers> peers;
  std::vector<SpyLink*> links;  // of ranks 1, 2, 3
  engine::PolicyTable policies{kSize, 1000};
  engine::GroupTrace trace{nullptr, "test", Rank(0), kSize};
  EmptyViewHost host{kSize};
  membership::ViewChange change{Rank(0), kSize, &host};
  std::optional<engine::ShardOwners> owners;
  IdleHost idle{kSize};  // of the operations
  engine::CallTable calls{&idle, idle.recycler()};
  engine::OwnState own_state{Rank(0)};
  engine::AbsentMembers absent{Rank(0), kSize, std::chrono::seconds(5)};
  engine::ResultKeeper keeper;
  engine::SkippedCalls skipped;
  engine::Lifecycle life;
};

}  // namespace aikido::testing

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
// Sends NUM messages of 8 bytes back and forth between two members of a group that
// share memory. The receive of each message is posted before it is sent:
//   count_messages NUM
// instructions.py counts its instructions, which are the cost of a message in the turns
// of the event loop, the links, the engine and the mailbox. This thread drives the
// loops of both members in turns, so each run executes nearly the same instructions. To
// that end the groups are not asked for due work, because the number of such questions
// depends on the clock. The loops have no threads of their own, so no call decides if a
// loop may stay at rest. The communicator is not counted either.
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "counted.h"
#include "engine/group.h"
#include "transport/connector.h"
#include "transport/laned_link.h"
#include "transport/loop/event_loop.h"
#include "transport/schedule/uplink.h"
#include "transport/shm/shared_memory.h"
#include "transport/stream_link.h"

namespace aikido {
namespace {

constexpr size_t kRingBytes = 1 << 20;
constexpr TimePoint kNever = TimePoint::max();
constexpr Duration kLimit = std::chrono::minutes(1);  // for all messages

struct Member {
  explicit Member(Rank self) {
    engine::GroupOptions options;
    options.name = "counted";
    options.self = self;
    options.size = 2;
    chunk_bytes = options.operation.chunk_bytes;
    group = std::make_unique<engine::Group>(&loop, options);
  }

  // Like Communicator::attach.
  void attach(Rank peer, transport::Connections connections) {
    auto link = std::make_unique<transport::LanedLink>(peer, group->handler());
    link->set_shared();
    for (const auto lane : {transport::Lane::kBulk, transport::Lane::kControl}) {
      auto stream = transport::make_stream(
          &loop, std::move(connections[static_cast<size_t>(lane)]), lane);
      link->set(lane, std::make_unique<transport::StreamLink>(
                          &loop, &uplink, std::move(stream), lane, peer, chunk_bytes,
                          link->handler(lane)));
    }
    group->attach(peer, std::move(link));
  }

  transport::EventLoop loop;
  transport::Uplink uplink{&loop, 0};
  std::unique_ptr<engine::Group> group;
  size_t chunk_bytes = 0;
};

void connect(std::array<Member, 2>& members) {
  std::array<transport::Connections, 2> connections;
  for (size_t lane = 0; lane < transport::kNumLanes; ++lane) {
    std::array<int, 2> ends{};
    AIKIDO_CHECK(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0,
                              ends.data()) == 0,
                 "there are no more sockets");
    for (size_t m = 0; m < 2; ++m) connections[m][lane].socket = Fd(ends[m]);
  }
  auto made = transport::SharedMemory::make(kRingBytes);
  AIKIDO_CHECK(made.is_ok(), made.status().message());
  auto opened = transport::SharedMemory::open(Fd(::dup(made->fd().get())));
  AIKIDO_CHECK(opened.is_ok(), opened.status().message());
  const auto bulk = static_cast<size_t>(transport::Lane::kBulk);
  connections[0][bulk].memory.emplace(std::move(*made));
  connections[1][bulk].memory.emplace(std::move(*opened));
  for (size_t m = 0; m < 2; ++m)
    members[m].attach(Rank(static_cast<int32_t>(1 - m)), std::move(connections[m]));
}

void message(std::array<Member, 2>& members, size_t from, uint64_t number,
             TimePoint limit) {
  Member& sender = members[from];
  Member& receiver = members[1 - from];
  uint64_t got = 0;
  bool is_sent = false, is_here = false;
  collectives::ReceiveCall receive;
  receive.from = Rank(static_cast<int32_t>(from));
  receive.data = reinterpret_cast<std::byte*>(&got);
  receive.bytes = sizeof got;
  receive.deadline = kNever;
  receive.on_done = [&](const Status& status, Rank) { is_here = status.is_ok(); };
  bool is_called =
      receiver.loop.drive_with([&] { receiver.group->receive(std::move(receive)); });
  collectives::SendCall send;
  send.to = Rank(static_cast<int32_t>(1 - from));
  send.data = reinterpret_cast<const std::byte*>(&number);
  send.bytes = sizeof number;
  send.deadline = kNever;
  send.on_done = [&](const Status& status, Rank) { is_sent = status.is_ok(); };
  is_called =
      sender.loop.drive_with([&] { sender.group->send(std::move(send)); }) && is_called;
  AIKIDO_CHECK(is_called, "somebody else is in a turn of a loop");
  receiver.loop.help([&] { return is_here; }, limit, std::chrono::seconds(1));
  AIKIDO_CHECK(is_sent && got == number, "a message did not come as it was sent");
}

void run(uint64_t num) {
  std::array<Member, 2> members{Member(Rank(0)), Member(Rank(1))};
  connect(members);
  const TimePoint limit = SystemClock().now() + kLimit;
  for (uint64_t i = 1; i <= num; ++i) message(members, i % 2, i, limit);
  print_allocations();
  for (Member& member : members) member.group.reset();
}

}  // namespace
}  // namespace aikido

int main(int argc, char** argv) {
  const uint64_t num = argc == 2 ? std::strtoull(argv[1], nullptr, 10) : 0;
  if (num == 0) {
    std::fprintf(stderr, "usage: count_messages NUM\n");
    return 2;
  }
  aikido::print_build();
  aikido::run(num);
}

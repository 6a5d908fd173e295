// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors

#include "transport/shm/shm_leases.h"

#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <atomic>
#include <csignal>
#include <future>
#include <string>
#include <thread>

#include "harness/catch.h"
#include "harness/recording_handler.h"
#include "harness/shared_pair.h"
#include "transport/connector.h"
#include "transport/local_socket.h"
#include "transport/shm/shm_buffer_pool.h"
#include "transport/stream_link.h"

using namespace aikido;
using namespace aikido::testing;
using namespace aikido::transport;

namespace {

constexpr size_t kRing = 64 << 10;

// A process with a loop on a thread of its own.
struct Process {
  EventLoop loop;
  Uplink uplink{&loop, 0};
  std::unique_ptr<ShmBufferPool> shm_pool = make_shm_pool();

  std::unique_ptr<StreamLink> link_over(Connection connection, LinkHandler* handler) {
    return std::make_unique<StreamLink>(
        &loop, &uplink,
        make_stream(&loop, std::move(connection), Lane::kBulk, shm_pool.get()),
        Lane::kBulk, Rank(1), kBlockBytes, handler);
  }
};

// Streams between two processes, as the listener and the dialling member make them.
std::pair<Connection, Connection> connect(const Process& a, const Process& b) {
  int fds[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds) == 0);
  auto [made, opened] = make_shared_pair(kRing);
  return {Connection{Fd(fds[0]), std::move(made), Fd(::dup(b.shm_pool->fd()))},
          Connection{Fd(fds[1]), std::move(opened), Fd(::dup(a.shm_pool->fd()))}};
}

// Reads payloads in their blocks while it may keep more of them, and folds nothing.
struct Keeper final : LinkHandler {
  Result<std::byte*> on_frame_begin(Rank, const FrameHeader& header,
                                    std::span<const std::byte>) override {
    headers.push_back(header);
    Buffer frame = link->keep_incoming();
    num_kept += frame ? 1 : 0;
    if (!frame) frame = pool.take(header.payload_bytes);
    frames.push_back(std::move(frame));
    return frames.back().data();
  }
  void on_frame(Rank, const FrameHeader& header) override {
    num_received += header.payload_bytes;
  }
  void on_link_lost(Rank, const Status&) override {}
  uint64_t called() const override { return 0; }
  int32_t acked() const override { return 0; }
  WakePolicy wake_policy(Rank) const override { return WakePolicy::kNow; }

  StreamLink* link = nullptr;
  BufferPool pool{1 << 20};
  std::vector<FrameHeader> headers;
  std::vector<Buffer> frames;
  size_t num_kept = 0, num_received = 0;
};

// Stream to a reader that takes blocks. It records the number of parts of each write,
// and each wake-up with its urgency.
struct LendingStream final : ByteStream {
  explicit LendingStream(LeaseGrantor* to) : peer(to) {}
  void start(StreamHandler*) override {}
  Result<size_t> write(std::span<const iovec> parts) override {
    size_t all = 0;
    for (const iovec& part : parts) all += part.iov_len;
    what += "write" + std::to_string(parts.size()) + " ";
    return all;
  }
  void push(Urgency urgency) override {
    what += "push" + std::to_string(int(urgency)) + " ";
  }
  void push_at_once(Urgency urgency) override {
    what += "wake" + std::to_string(int(urgency)) + " ";
  }
  void wait_for_room(bool) override {}
  bool is_drained() const override { return true; }
  LeaseGrantor* grantor() override { return peer; }
  size_t room() const override { return kRing; }
  Result<size_t> read(std::span<const iovec>, Caching) override { return size_t{0}; }
  void end_sending() override {}
  void hang_up() override {}
  void end() override {}

  LeaseGrantor* peer;
  std::string what;
};

// Two processes that share one thread.
struct OneThread {
  Process here;
  RecordingHandler a;
  Keeper b;
  std::unique_ptr<StreamLink> to_b, to_a;

  OneThread() {
    auto [one, other] = connect(here, here);
    to_b = here.link_over(std::move(one), &a);
    to_a = here.link_over(std::move(other), &b);
    b.link = to_a.get();
  }
  void run_until(const std::function<bool()>& is_done) {
    int turns = 0;
    std::function<void()> look = [&] {
      if (is_done() || ++turns > 200'000) return here.loop.stop();
      here.loop.post(look);
    };
    here.loop.post(look);
    here.loop.run();
    REQUIRE(is_done());
  }
};

}  // namespace

TEST_CASE("two processes exchange large and small messages, and wake each other up",
          "[tcp]") {
  constexpr size_t kLarge = 20 << 20, kSmall = 3000;
  Process processes[2];
  RecordingHandler handlers[2];
  std::unique_ptr<StreamLink> links[2];
  auto [one, other] = connect(processes[0], processes[1]);
  links[0] = processes[0].link_over(std::move(one), &handlers[0]);
  links[1] = processes[1].link_over(std::move(other), &handlers[1]);
  const auto large = pattern(kLarge, 1), small = pattern(kSmall, 2);
  std::atomic<int> num_done{0};
  std::vector<std::thread> threads;
  for (size_t i = 0; i < 2; ++i) {
    handlers[i].on_end = [&, i](const FrameHeader&) {
      size_t all = 0;
      for (const auto& [seq, bytes] : handlers[i].received) all += bytes;
      if (all < kLarge + 8 * kSmall || ++num_done < 2) return;
      for (Process& p : processes) p.loop.stop();
    };
    processes[i].loop.post([&, i] {
      links[i]->send(message(1, large));
      for (uint64_t seq = 2; seq < 10; ++seq)
        links[i]->send(message(seq, small, {}, Priority(seq % 3) - 1));
    });
  }
  for (Process& p : processes) threads.emplace_back([&p] { p.loop.run(); });
  for (std::thread& t : threads) t.join();
  for (RecordingHandler& h : handlers) {
    CHECK((h.messages[1] == large));
    for (uint64_t seq = 2; seq < 10; ++seq) CHECK((h.messages[seq] == small));
    CHECK(h.times_lost == 0);
  }
  for (auto& link : links) link.reset();
}

TEST_CASE("a sender sleeps until its reader gives blocks back", "[tcp]") {
  constexpr size_t kLarge = 20 << 20;
  Process sender, reader;
  RecordingHandler a, b;
  auto [one, other] = connect(sender, reader);
  const auto to_b = sender.link_over(std::move(one), &a);
  const auto to_a = reader.link_over(std::move(other), &b);
  const auto data = pattern(kLarge, 1);
  std::promise<void> all_here;
  b.on_end = [&](const FrameHeader&) {
    if (b.received[1] == kLarge) all_here.set_value();
  };
  sender.loop.post([&] { to_b->send(message(1, data)); });
  std::atomic<bool> is_asleep{false};
  clockid_t clock{};
  std::thread sends([&] {
    REQUIRE(::pthread_getcpuclockid(::pthread_self(), &clock) == 0);
    is_asleep = true;
    sender.loop.run();
  });
  while (!is_asleep) std::this_thread::yield();
  const auto used_ms = [&] {
    timespec used{};
    ::clock_gettime(clock, &used);
    return used.tv_sec * 1000 + used.tv_nsec / 1'000'000;
  };
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  const auto before = used_ms();
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  CHECK(used_ms() - before < 50);
  std::thread reads([&] { reader.loop.run(); });
  CHECK(all_here.get_future().wait_for(std::chrono::seconds(20)) ==
        std::future_status::ready);
  for (Process* p : {&sender, &reader}) p->loop.stop();
  sends.join();
  reads.join();
  CHECK((b.messages[1] == data));
}

TEST_CASE("a reader sees each block before the next one is copied", "[unit]") {
  Process here;
  RecordingHandler handler;
  const Reader reader(here.shm_pool.get());
  auto owned = std::make_unique<LendingStream>(reader.grantor.get());
  LendingStream& stream = *owned;
  StreamLink link(&here.loop, &here.uplink, std::move(owned), Lane::kBulk, Rank(1),
                  kBlockBytes, &handler);
  const auto [bytes, what] = GENERATE(table<size_t, std::string>(
      {{3 * kBlockBytes, "write1 wake1 write1 wake1 write1 wake1 write2 push2 "},
       // A payload of the smallest size in a block is copied before any wake-up.
       {kLeastLeased, "write1 write2 push2 "},
       // A payload that goes through the ring is not copied before it is written.
       {kLeastLeased - 1, "write4 push2 "}}));
  const auto data = pattern(bytes, 1), small = pattern(100);
  for (const auto* of : {&data, &small}) {
    OutMessage m = message(1, *of);
    m.urgency = of == &data ? Urgency::kAwaited : Urgency::kServed;
    link.send(std::move(m));
  }
  here.loop.post([&] { here.loop.stop(); });
  here.loop.run();
  CHECK(stream.what == what);
}

TEST_CASE("no block is leased before the ring has room for its header", "[tcp]") {
  OneThread two;
  const auto large = pattern(kBlockBytes, 1);
  // Four of these messages leave 136 bytes of the ring.
  const auto small = pattern(16'286, 2);
  for (uint64_t seq = 1; seq <= 4; ++seq) two.to_b->send(message(seq, small));
  const MessageId id = two.to_b->send(message(5, large));
  two.here.loop.post([&] { two.here.loop.stop(); });
  two.here.loop.run();
  CHECK(two.to_b->cancel(id) == kBlockBytes);
  two.run_until([&] { return two.b.num_received == 4 * small.size(); });
}

TEST_CASE("payloads are kept in their blocks", "[tcp]") {
  OneThread two;
  const auto data = pattern(12 * kBlockBytes, 1);
  const auto owner = std::make_shared<CountingOwner>();
  two.to_b->send(message(1, data, owner));
  two.run_until([&] { return two.b.num_received == data.size(); });
  CHECK(owner->tokens == std::vector<uint32_t>{1});
  CHECK(two.b.num_kept == 12);
  REQUIRE(two.b.frames.size() == 12);
  for (size_t i = 0; i < 12; ++i) {
    CHECK(two.b.headers[i].block > 0);
    CHECK(std::equal(two.b.frames[i].data(), two.b.frames[i].data() + kBlockBytes,
                     data.begin() + static_cast<ptrdiff_t>(i * kBlockBytes)));
  }
  // The sender may write to its memory, because nothing reads there any more.
  two.b.frames.clear();
  two.to_b->send(message(2, data));
  two.run_until([&] { return two.b.num_received == 2 * data.size(); });
  CHECK(two.b.num_kept == 2 * 12);
}

TEST_CASE("a payload for two members is copied once", "[tcp]") {
  OneThread two;
  Keeper other;
  auto [one, far] = connect(two.here, two.here);
  const auto to_other = two.here.link_over(std::move(one), &two.a);
  const auto from_other = two.here.link_over(std::move(far), &other);
  other.link = from_other.get();
  const auto [num_receivers, num_editions] =
      GENERATE(table<size_t, uint32_t>({{1, 1}, {2, 1}, {2, 2}}));
  const bool is_same = num_receivers == 2 && num_editions == 1;
  const auto data = pattern(kBlockBytes, 1);
  const auto owner = std::make_shared<CountingOwner>();
  for (StreamLink* link : {two.to_b.get(), to_other.get()}) {
    OutMessage m = message(1, data, owner);
    m.num_receivers = num_receivers;
    m.edition = num_editions == 1 || link == to_other.get() ? 1 : 2;
    link->send(std::move(m));
  }
  two.run_until(
      [&] { return two.b.num_received + other.num_received == 2 * data.size(); });
  CHECK((two.b.headers[0].block == other.headers[0].block) == is_same);
  CHECK((two.b.frames[0].data()[5] == data[5]));
  CHECK((other.frames[0].data()[5] == data[5]));
}

TEST_CASE("without a free block a payload goes through the ring", "[tcp]") {
  OneThread two;
  const auto data = pattern(kBlockBytes, 1);
  std::vector<Reader> readers;
  for (size_t i = 0; i < kNumBlocks; ++i) {
    if (i % kMostLeased == 0) readers.emplace_back(two.here.shm_pool.get());
    const Content content{{}, 0, 0, data.size(), 1};
    REQUIRE(readers.back().grantor->grant(data.data(), content) != 0);
  }
  two.to_b->send(message(1, data));
  two.run_until([&] { return two.b.num_received == data.size(); });
  CHECK(two.b.headers[0].block == 0);
  CHECK(two.b.num_kept == 0);
  CHECK(std::equal(data.begin(), data.end(), two.b.frames[0].data()));
}

TEST_CASE("a message that is cancelled while its peer has all blocks goes no further",
          "[tcp]") {
  OneThread two;
  const auto data = pattern(20 * kBlockBytes, 1);
  const MessageId id = two.to_b->send(message(1, data));
  two.here.loop.post([&] { two.here.loop.stop(); });
  two.here.loop.run();
  const size_t dropped = two.to_b->cancel(id);
  CHECK(dropped >= (20 - kMostLeased) * kBlockBytes);
  const auto small = pattern(10, 2);
  two.to_b->send(message(2, small));
  two.run_until(
      [&] { return !two.b.headers.empty() && two.b.headers.back().seq == 2; });
  CHECK(two.b.num_received == data.size() - dropped + small.size());
}

TEST_CASE("a frame that names a block which was not leased ends the link", "[tcp]") {
  const bool are_there_blocks = GENERATE(false, true);
  Process here;
  RecordingHandler handler;
  auto [one, other] = connect(here, here);
  if (!are_there_blocks) other.blocks.reset();
  auto stream =
      make_stream(&here.loop, std::move(one), Lane::kBulk, here.shm_pool.get());
  const auto link = here.link_over(std::move(other), &handler);
  FrameHeader h;
  h.kind = FrameKind::kData;
  h.seq = 1;
  h.payload_bytes = 20'000;
  h.total_bytes = 20'000;
  h.block = 3;
  std::array<std::byte, kHeaderBytes> bytes;
  encode(h, bytes);
  const iovec part{bytes.data(), bytes.size()};
  REQUIRE(stream->write({&part, 1}).is_ok());
  std::function<void()> look = [&] {
    if (handler.times_lost > 0) return here.loop.stop();
    here.loop.post(look);
  };
  here.loop.post(look);
  here.loop.run();
  CHECK(handler.loss.code() == Code::kProtocol);
  CHECK(handler.loss.message() ==
        "rank 1: a frame names block 3, which was not leased");
  CHECK(handler.order.empty());
}

TEST_CASE("a reader whose peer has ended its stream reads no more blocks", "[tcp]") {
  Process here;
  RecordingHandler handler;
  auto [one, other] = connect(here, here);
  const auto link = here.link_over(std::move(one), &handler);
  auto reader = make_stream(&here.loop, std::move(other), Lane::kBulk, nullptr);
  const auto data = pattern(kMostLeased * kBlockBytes);
  link->send(message(1, data));
  here.loop.post([&] { here.loop.stop(); });
  here.loop.run();
  const auto next = [&] {
    const Reader another(here.shm_pool.get());
    return another.grantor->grant(data.data(), {{}, 0, 0, kBlockBytes, 1});
  };
  CHECK(next() == kMostLeased + 1);
  reader->end();
  CHECK(next() == 1);
}

TEST_CASE("blocks of a killed member come back although its link is kept", "[tcp]") {
  Process here;
  const Address address{"127.0.0.1",
                        static_cast<uint16_t>(::getpid() % 30'000 + 1'000)};
  const Fd listens = listen_beside(address);
  REQUIRE(listens.is_open());
  const pid_t child = ::fork();
  if (child == 0) {
    const Fd socket = connect_beside(address);
    ::pause();
    ::_exit(0);
  }
  pollfd wait{listens.get(), POLLIN, 0};
  REQUIRE(::poll(&wait, 1, 20'000) == 1);
  Fd socket(::accept4(listens.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  REQUIRE(pid_of_peer(socket) == child);
  auto [made, opened] = make_shared_pair(kRing);
  // Stands for the lease_holder of the child, which is killed before it can report that
  // it is done.
  auto lease_holder =
      LeaseHolder::open(Fd(::dup(here.shm_pool->fd())),
                        std::make_shared<SharedMemory>(std::move(opened)));
  RecordingHandler handler;
  const auto link = here.link_over({std::move(socket), std::move(made)}, &handler);
  const auto data = pattern(kBlockBytes);
  link->send(message(1, data));
  here.loop.post([&] { here.loop.stop(); });
  here.loop.run();
  REQUIRE((*lease_holder)->find(1, kBlockBytes) != nullptr);
  ::kill(child, SIGKILL);
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  handler.on_lost = [&] { here.loop.stop(); };
  here.loop.run();
  const Reader next(here.shm_pool.get());
  CHECK(next.grantor->grant(data.data(), {{}, 0, 0, kBlockBytes, 1}) == 1);
}

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "scene.h"

#include <sys/socket.h>

#include <algorithm>
#include <utility>

#include "target.h"
#include "transport/laned_link.h"
#include "transport/socket_stream.h"
#include "transport/stream_link.h"

namespace aikido::fuzz {

using collectives::Call;
using collectives::CallKind;
using std::chrono::milliseconds;
using transport::Lane;

namespace {

constexpr std::byte kDone{0xee};
constexpr Duration kTimeout = milliseconds(2000);

bool is_scatter(const Call& call) {
  return call.kind == CallKind::kReduceScatter;
}

void connect_pair(std::array<Fd, 2>& ends) {
  int fds[2];
  require(
      ::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) == 0,
      "a pair of sockets can be made");
  ends = {Fd(fds[0]), Fd(fds[1])};
}

}  // namespace

Call call_number(size_t index) {
  struct Row {
    CallKind kind;
    uint64_t count;
    int32_t root = -1;
    bool is_partial = false;
    int mode = -1;  // data shard of a backup
  };
  static constexpr std::array<Row, kNumCalls> kRows = {{
      {CallKind::kAllreduce, 10},
      {CallKind::kAllreduce, 1000},
      {CallKind::kAllreduce, 10, -1, true},
      {CallKind::kAllreduce, 1000, -1, true},
      {CallKind::kBroadcast, 10, 0},
      {CallKind::kBroadcast, 1000, 1},
      {CallKind::kAlltoall, 0},
      {CallKind::kAllgather, 10},
      {CallKind::kAllgather, 300},
      {CallKind::kReduce, 500, 1},
      {CallKind::kReduceScatter, 300},
      {CallKind::kGather, 20, 0},
      {CallKind::kScatter, 20, 0},
      {CallKind::kBarrier, 0},
      {CallKind::kMonitoredBarrier, 0},
      {CallKind::kSparseAllreduce, 0},
      {CallKind::kAllreduce, 500, -1, true, 0},
      {CallKind::kAllreduce, 10, -1, true, 1},
      {CallKind::kAllreduce, 500, -1, true, 4},
  }};
  const Row& row = kRows[index % kNumCalls];
  Call call;
  call.kind = row.kind;
  call.dtype = DType::kFloat32;
  call.count = row.count;
  call.root = Rank(row.root);
  if (row.is_partial) {
    call.policy.kind = straggler::Kind::kSkip;
    call.policy.min_contributors = 1;
  }
  if (row.mode >= 0) {
    call.policy.backups = 1;
    call.policy.backup_mode = static_cast<straggler::BackupMode>(row.mode % 4);
    call.policy.verify_shadows = row.mode >= 4;
  }
  return call;
}

std::optional<size_t> block_bytes(const Call& call, int32_t from, int32_t to) {
  if (from == to) return std::nullopt;
  switch (call.kind) {
    case CallKind::kBroadcast:
    case CallKind::kScatter:
      if (call.root != Rank(from)) return std::nullopt;
      break;
    case CallKind::kGather:
      if (call.root != Rank(to)) return std::nullopt;
      break;
    case CallKind::kAlltoall:
      return static_cast<size_t>(from) * 1000;
    case CallKind::kSparseAllreduce:
      return static_cast<size_t>(from) * 50;
    case CallKind::kAllgather:
      break;
    default:
      return std::nullopt;
  }
  return call.bytes();
}

Scene::Scene(int32_t self, int32_t size) {
  options_.name = "fuzz";
  options_.self = Rank(self);
  options_.size = size;
  options_.operation.chunk_bytes = 256;
  options_.operation.eager_bytes = 64;
  options_.operation.min_shard_bytes = 64;
  options_.operation.window_bytes = 16 << 10;
  options_.log_bytes = 64 << 10;
  options_.largest_call_bytes = 64 << 10;
  options_.pool_bytes =
      0;  // so that the address sanitizer detects the use of returned memory
  options_.heartbeat = {milliseconds(100), milliseconds(500)};
  group_ = std::make_unique<engine::Group>(&clock_, options_);
  for (int32_t r = 0; r < size; ++r) {
    if (r == self) continue;
    auto link = std::make_unique<transport::LanedLink>(Rank(r), group_->handler());
    for (const Lane lane : {Lane::kBulk, Lane::kControl}) {
      std::array<Fd, 2> ends;
      connect_pair(ends);
      far_[static_cast<size_t>(r)][static_cast<size_t>(lane)] = std::move(ends[1]);
      auto stream =
          std::make_unique<transport::SocketStream>(&loop_, std::move(ends[0]), lane);
      link->set(lane, std::make_unique<transport::StreamLink>(
                          &loop_, &uplink_, std::move(stream), lane, Rank(r),
                          options_.operation.chunk_bytes, link->handler(lane)));
    }
    group_->attach(Rank(r), std::move(link));
  }
}

Scene::~Scene() {
  group_.reset();
}

// ---- the local member

std::shared_ptr<Scene::Record> Scene::record(const std::shared_ptr<Memory>& memory) {
  const auto made = std::make_shared<Record>();
  made->memory = memory;
  records_.push_back(made);
  return made;
}

// The caller has its memory back, and writes to it.
void Scene::end(Record& record) {
  ++record.times_done;
  const auto memory = record.memory.lock();
  if (memory == nullptr) return;  // released before the callback
  std::fill(memory->input.begin(), memory->input.end(), kDone);
  std::fill(memory->output.begin(), memory->output.end(), kDone);
  for (auto& [rank, block] : memory->allocated)
    std::fill(block.begin(), block.end(), kDone);
}

void Scene::call(size_t index) {
  const Call call = call_number(index);
  const auto n = static_cast<size_t>(size());
  const auto memory = std::make_shared<Memory>();
  collectives::LocalCall local;
  if (is_scatter(call)) {
    memory->input.resize(call.bytes());
    memory->output.resize(call.bytes() / n);
    for (size_t r = 0; r < n; ++r)
      local.out_blocks.push_back({Rank(static_cast<int32_t>(r)),
                                  memory->input.data() + r * memory->output.size(),
                                  memory->output.size()});
  } else if (is_reduction(call.kind) && call.kind != CallKind::kSparseAllreduce) {
    memory->input.resize(call.bytes());
    memory->output.resize(call.bytes());
  } else {
    memory->input.resize(std::max<size_t>(call.bytes(), 4096));
    size_t in = 0;
    for (int32_t r = 0; r < size(); ++r) in += block_bytes(call, r, self()).value_or(0);
    memory->output.resize(in);
    in = 0;
    for (int32_t r = 0; r < size(); ++r) {
      if (const auto out = block_bytes(call, self(), r))
        local.out_blocks.push_back({Rank(r), memory->input.data(), *out});
      if (const auto bytes = block_bytes(call, r, self())) {
        const bool is_any = call.kind == CallKind::kSparseAllreduce;
        local.in_blocks.push_back({Rank(r),
                                   is_any ? nullptr : memory->output.data() + in,
                                   is_any ? kLargestSparse : *bytes});
        in += *bytes;
      }
    }
    local.allocate = [m = memory.get()](Rank from, size_t bytes) {
      require(bytes <= kLargestSparse, "no block is larger than what was agreed");
      require(!m->allocated.contains(from.value), "memory is asked for once");
      return m->allocated.emplace(from.value, bytes).first->second.data();
    };
  }
  local.input = memory->input.data();
  local.output = memory->output.data();
  local.on_done = [r = record(memory)](const Status&, const collectives::Outcome&) {
    end(*r);
  };
  local.keep_alive = memory;
  const bool is_any = call.policy.backup_mode == straggler::BackupMode::kSubstitute;
  local.data_shard = is_any ? straggler::kAnyDataShard : 0;
  ++called_;
  group_->call(call, std::move(local), kTimeout);
  group_->end_turn();
}

void Scene::send(int32_t to, int32_t tag, size_t bytes) {
  const auto memory = std::make_shared<Memory>();
  memory->input.resize(bytes);
  collectives::SendCall call;
  call.to = Rank(to);
  call.tag = tag;
  call.data = memory->input.data();
  call.bytes = bytes;
  call.deadline = clock_.now() + kTimeout;
  call.on_done = [r = record(memory)](const Status&, Rank) { end(*r); };
  call.keep_alive = memory;
  group_->send(std::move(call));
}

void Scene::receive(std::optional<int32_t> from, int32_t tag, size_t bytes) {
  const auto memory = std::make_shared<Memory>();
  memory->output.resize(bytes);
  collectives::ReceiveCall call;
  if (from) call.from = Rank(*from);
  call.tag = tag;
  call.data = memory->output.data();
  call.bytes = bytes;
  call.deadline = clock_.now() + kTimeout;
  call.on_done = [r = record(memory)](const Status&, Rank) { end(*r); };
  call.keep_alive = memory;
  group_->receive(std::move(call));
}

void Scene::abort() {
  group_->abort({Code::kAborted, "enough"});
}

void Scene::leave() {
  group_->leave();
}

// ---- the others

void Scene::write(int32_t peer, Lane lane, std::span<const std::byte> bytes,
                  size_t piece) {
  const Fd& fd = far_[static_cast<size_t>(peer)][static_cast<size_t>(lane)];
  // A member that has cut the link receives nothing any more.
  for (int failures = 0; !bytes.empty() && fd.is_open() && failures < 3;) {
    const size_t n = piece == 0 ? bytes.size() : std::min(piece, bytes.size());
    const auto sent = ::send(fd.get(), bytes.data(), n, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) bytes = bytes.subspan(static_cast<size_t>(sent));
    failures = sent > 0 ? 0 : failures + 1;
    turn();
  }
}

void Scene::drain(int32_t peer) {
  std::array<std::byte, 16 << 10> sink;
  for (const Fd& fd : far_[static_cast<size_t>(peer)]) {
    while (fd.is_open() &&
           ::recv(fd.get(), sink.data(), sink.size(), MSG_DONTWAIT) > 0) {
      turn();
    }
  }
}

void Scene::hang_up(int32_t peer, Lane lane) {
  far_[static_cast<size_t>(peer)][static_cast<size_t>(lane)].reset();
}

// ---- time

void Scene::turn() {
  loop_.post([this] { loop_.stop(); });
  loop_.run();
}

void Scene::pass(Duration time) {
  clock_.advance(time);
  const auto look = group_->next_look();
  if (look && *look <= clock_.now()) group_->on_time(clock_.now());
  turn();
}

void Scene::finish() {
  turn();
  group_->close_links();
  turn();
  for (const auto& record : records_) {
    require(record->times_done == 1, "each call gets one answer");
    const auto memory = record->memory.lock();
    if (!memory) continue;
    const auto is_untouched = [](const std::vector<std::byte>& bytes) {
      return std::all_of(bytes.begin(), bytes.end(),
                         [](std::byte b) { return b == kDone; });
    };
    require(is_untouched(memory->output),
            "nobody writes to memory that was given back");
    for (const auto& [rank, block] : memory->allocated)
      require(is_untouched(block), "nobody writes to a block that was given back");
  }
}

}  // namespace aikido::fuzz

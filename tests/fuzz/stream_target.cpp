// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
// A group with calls under way whose other members say whatever the input wants. The
// input is a list of commands (Command, a byte each, with choices behind it): calls of
// the local member, frames with right checksums and fields that mostly fit, raw bytes,
// time, and ends of connections. So the fuzzer need not guess checksums or sizes.
#include <array>
#include <map>
#include <tuple>

#include "collectives/shard_plan.h"
#include "input.h"
#include "scene.h"
#include "target.h"

namespace aikido::fuzz {
namespace {

using collectives::Call;
using collectives::CallKind;
using collectives::ShardPlan;
using std::chrono::milliseconds;
using transport::FrameHeader;
using transport::FrameKind;
using transport::Lane;

enum Command : uint8_t {
  kCall,
  kFrame,
  kHonest,  // all frames that a correct member sends for a call
  kMessage,
  kSend,
  kReceive,
  kRaw,
  kDrain,
  kPass,
  kHangUp,
  kEnd,
  kNumCommands,
};
constexpr int kMaxCommands = 100;
constexpr size_t kMaxPayload = 5000;
// Table of equally likely draws. Each command has one entry, in the order above;
// further entries raise its weight.
constexpr std::array<Command, 32> kMix = {
    kCall,   kFrame,  kHonest,  kMessage, kSend,    kReceive, kRaw,    kDrain,
    kPass,   kHangUp, kEnd,     kCall,    kCall,    kCall,    kFrame,  kFrame,
    kFrame,  kFrame,  kFrame,   kFrame,   kFrame,   kFrame,   kHonest, kHonest,
    kHonest, kHonest, kMessage, kMessage, kReceive, kReceive, kDrain,  kPass};

class Play {
 public:
  explicit Play(Input input)
      : in_(input), scene_(make(in_)), peer_((scene_.self() + 1) % scene_.size()) {}

  void run() {
    for (int i = 0; i < kMaxCommands && !in_.is_empty(); ++i) step();
    scene_.finish();
  }

 private:
  static Scene make(Input& in) {
    const int32_t size = 2 + static_cast<int32_t>(in.below(2));
    return Scene(static_cast<int32_t>(in.below(static_cast<size_t>(size))), size);
  }

  void step() {
    const Command command = kMix[in_.below(kMix.size())];
    const int32_t others = scene_.size() - 1;
    peer_ = (scene_.self() + 1 +
             static_cast<int32_t>(in_.below(static_cast<size_t>(others)))) %
            scene_.size();
    switch (command) {
      case kCall:
        return scene_.call(in_.below(kNumCalls));
      case kFrame:
        return frame();
      case kHonest:
        return honest();
      case kMessage:
        return message();
      case kSend:
        return scene_.send(in_.flip() ? peer_ : scene_.self(), tag(), message_bytes());
      case kReceive:
        return scene_.receive(in_.flip() ? std::optional(peer_) : std::nullopt, tag(),
                              message_bytes());
      case kRaw:
        return scene_.write(peer_, lane(), in_.take(in_.below(200)), in_.below(80));
      case kDrain:
        return scene_.drain(peer_);
      case kPass:
        return scene_.pass(milliseconds(in_.below(1500)));
      case kHangUp:
        return scene_.hang_up(peer_, lane());
      default:
        return end();
    }
  }

  void end() {
    const size_t how = in_.below(8);
    if (how == 0) scene_.abort();
    if (how == 1) scene_.leave();
    scene_.turn();
  }

  Lane lane() { return in_.flip() ? Lane::kControl : Lane::kBulk; }
  int32_t tag() { return static_cast<int32_t>(in_.below(3)); }
  size_t message_bytes() {
    static constexpr std::array<size_t, 4> kSizes = {0, 40, 64, 3000};
    return kSizes[in_.below(kSizes.size())];
  }
  uint64_t seq() {
    switch (in_.below(8)) {
      case 0:
        return in_.number();
      case 1:
        return scene_.called() + in_.below(40);
      case 2:
        return scene_.called() - std::min<uint64_t>(scene_.called(), in_.below(4));
      case 3:
        return scene_.called() + 1;
      default:
        return scene_.called();
    }
  }

  void put(FrameHeader h, std::span<const std::byte> extension, size_t payload,
           size_t piece, std::optional<Lane> lane = {}) {
    h.epoch = 1;
    h.extension_bytes = static_cast<uint8_t>(extension.size());
    std::vector<std::byte> bytes(transport::kHeaderBytes);
    transport::encode(
        h, std::span<std::byte, transport::kHeaderBytes>(bytes.data(), bytes.size()));
    bytes.insert(bytes.end(), extension.begin(), extension.end());
    bytes.resize(bytes.size() + payload, static_cast<std::byte>(h.seq));
    scene_.write(peer_, lane.value_or(lane_of(h.kind)), bytes, piece);
  }

  std::vector<std::byte> extension_of(const Call& call, FrameKind kind) {
    const auto encoded = collectives::encode(call);
    std::vector<std::byte> out(encoded.view().begin(), encoded.view().end());
    if (kind == FrameKind::kResult && call.is_partial()) {
      out.resize(out.size() + 9);
      out.back() = static_cast<std::byte>(1u << peer_ | in_.below(8));
    }
    if (!call.policy.has_stand_ins()) return out;
    const auto data_shard = static_cast<std::byte>(in_.below(4));
    if (kind == FrameKind::kResult && in_.flip())
      out.insert(out.end(), {data_shard, std::byte{0}});
    if (kind == FrameKind::kContrib) {
      const bool is_any = in_.below(4) == 3;
      const std::byte rest = is_any ? std::byte{0xff} : std::byte{0};
      out.insert(out.end(), {is_any ? rest : data_shard, rest, rest, rest});
    }
    return out;
  }

  ShardPlan plan(const Call& call) const {
    return {call.count, size_of(call.dtype), scene_.size(),
            scene_.options().operation.min_shard_bytes,
            call.kind == CallKind::kReduce ? call.root : Rank(0)};
  }

  // Any frame. Its fields fit one of the calls more often than not.
  void frame() {
    const Call call = call_number(in_.below(kNumCalls));
    FrameHeader h;
    h.kind = static_cast<FrameKind>(1 + in_.below(transport::kMaxFrameKind));
    h.seq = seq();
    h.shard = static_cast<uint16_t>(in_.below(8) == 7 ? in_.number() : in_.below(3));
    h.tag = in_.below(8) == 7 ? static_cast<int32_t>(in_.number()) : tag();
    h.called = in_.below(8) == 7 ? in_.number() : in_.below(8);
    switch (in_.below(4)) {
      case 0:
        h.total_bytes = in_.number();
        break;
      case 1:
        h.total_bytes = message_bytes();
        break;
      default:
        h.total_bytes = fitting_bytes(call, h);
    }
    uint64_t& next = next_[{peer_, h.kind, h.seq, h.shard}];
    h.offset = std::min(in_.below(6) == 5 ? in_.number() : next, h.total_bytes);
    const uint64_t left = h.total_bytes - h.offset;
    const size_t most = static_cast<size_t>(std::min<uint64_t>(left, kMaxPayload));
    size_t payload = in_.flip() ? most : in_.below(most + 1);
    h.payload_bytes = static_cast<uint32_t>(payload);
    next = h.offset + payload;
    // Announced bytes that do not come, or come later.
    if (in_.below(8) == 7)
      h.payload_bytes =
          static_cast<uint32_t>(std::min<uint64_t>({left, in_.number(), UINT32_MAX}));
    std::vector<std::byte> extension;
    if (in_.below(8) != 7 && h.offset == 0) extension = extension_of(call, h.kind);
    if (in_.below(8) == 7 && !extension.empty())
      extension[in_.below(extension.size())] ^= static_cast<std::byte>(in_.byte());
    const bool is_astray = in_.below(16) == 15;
    put(h, extension, payload, in_.below(4) == 3 ? 1 + in_.below(300) : 0,
        is_astray ? std::optional(lane()) : std::nullopt);
  }

  uint64_t fitting_bytes(const Call& call, const FrameHeader& h) const {
    if (const auto block = block_bytes(call, peer_, scene_.self())) return *block;
    if (call.kind == CallKind::kReduceScatter)
      return call.bytes() / static_cast<size_t>(scene_.size());
    const ShardPlan shards = plan(call);
    return h.shard < shards.num_shards() ? shards.num_bytes(h.shard) : 0;
  }

  // Sends a complete message in chunks, or only its beginning.
  void send_whole(FrameKind kind, uint64_t number, int32_t shard, size_t total,
                  const Call& call, size_t& frames_left) {
    const size_t chunk = scene_.options().operation.chunk_bytes;
    size_t offset = 0;
    do {
      if (frames_left == 0) return;
      --frames_left;
      FrameHeader h;
      h.kind = kind;
      h.seq = number;
      h.shard = static_cast<uint16_t>(shard);
      h.offset = offset;
      h.total_bytes = total;
      h.called = number;
      h.payload_bytes = static_cast<uint32_t>(std::min(chunk, total - offset));
      const auto extension =
          offset == 0 ? extension_of(call, kind) : std::vector<std::byte>();
      put(h, extension, h.payload_bytes, 0);
      offset += h.payload_bytes;
    } while (offset < total);
  }

  void honest() {
    const Call call = call_number(in_.below(kNumCalls));
    const uint64_t number = seq();
    size_t frames_left = in_.flip() ? SIZE_MAX : in_.below(16);
    if (const auto block = block_bytes(call, peer_, scene_.self()))
      send_whole(FrameKind::kData, number, 0, *block, call, frames_left);
    if (const auto wanted = block_bytes(call, scene_.self(), peer_)) {
      FrameHeader h;
      h.kind = FrameKind::kReady;
      h.seq = number;
      h.total_bytes = *wanted;
      h.called = number;
      put(h, extension_of(call, h.kind), 0, 0);
    }
    if (call.kind == CallKind::kReduceScatter)
      return send_whole(FrameKind::kContrib, number, scene_.self(),
                        call.bytes() / static_cast<size_t>(scene_.size()), call,
                        frames_left);
    if (!is_reduction(call.kind) && call.count > 0) return;
    const ShardPlan shards = plan(call);
    for (int32_t s = 0; s < shards.num_shards(); ++s) {
      if (shards.owner(s) == Rank(scene_.self()))
        send_whole(FrameKind::kContrib, number, s, shards.num_bytes(s), call,
                   frames_left);
      if (shards.owner(s) == Rank(peer_))
        send_whole(FrameKind::kResult, number, s, shards.num_bytes(s), call,
                   frames_left);
    }
  }

  // The next tagged message of the peer, or a frame about an earlier message.
  void message() {
    static constexpr std::array<FrameKind, 5> kKinds = {
        FrameKind::kP2pData, FrameKind::kP2pAnnounce, FrameKind::kP2pReady,
        FrameKind::kP2pWithdraw, FrameKind::kP2pTaken};
    uint64_t& sent = messages_[static_cast<size_t>(peer_)];
    FrameHeader h;
    h.kind = kKinds[in_.below(8) % kKinds.size()];
    h.tag = tag();
    h.seq = in_.flip() ? sent + 1 : in_.below(sent + 2);
    if (h.seq == sent + 1) ++sent;
    h.shard = static_cast<uint16_t>(in_.below(12));
    h.total_bytes = in_.below(8) == 7 ? in_.number() : message_bytes();
    uint64_t& next = next_[{peer_, FrameKind::kP2pData, h.seq, 0}];
    size_t payload = 0;
    if (h.kind == FrameKind::kP2pData) {
      h.offset = std::min(next, h.total_bytes);
      payload = static_cast<size_t>(
          std::min<uint64_t>(h.total_bytes - h.offset, kMaxPayload));
      if (in_.below(4) == 3) payload = in_.below(payload + 1);
      next = h.offset + payload;
    }
    h.payload_bytes = static_cast<uint32_t>(payload);
    put(h, {}, payload, in_.below(4) == 3 ? 1 + in_.below(300) : 0);
  }

  Input in_;
  Scene scene_;
  int32_t peer_;
  std::array<uint64_t, Scene::kMaxSize> messages_{};  // by peer
  // Offset at which a message continues, by peer, kind, number and shard.
  std::map<std::tuple<int32_t, FrameKind, uint64_t, uint16_t>, uint64_t> next_;
};

void run_stream(std::span<const uint8_t> input) {
  Play(Input(input)).run();
}

// Each call, with frames of both other members before or after it.
std::vector<Bytes> stream_seeds() {
  std::vector<Bytes> seeds;
  for (uint8_t self = 0; self < 3; ++self) {
    for (uint8_t call = 0; call < kNumCalls; ++call) {
      const Bytes ours = {kCall, 0, call};
      const auto theirs = [&](uint8_t peer, uint8_t seq) {
        return Bytes{kHonest, peer, call, seq, 1, 7};
      };
      for (const bool is_late : {false, true}) {
        Bytes seed = {1, self};
        const auto add = [&](const Bytes& more) {
          seed.insert(seed.end(), more.begin(), more.end());
        };
        if (!is_late) add(ours);
        add(theirs(0, is_late ? 3 : 4));
        add({kDrain, 1});
        add(theirs(1, is_late ? 3 : 4));
        if (is_late) add(ours);
        add({kPass, 0, 200, 0});
        seeds.push_back(seed);
      }
    }
  }
  seeds.push_back({0, 0, kMessage, 0, 0, 1, 1, 0, 1, 0, kReceive, 0, 1, 1, 1});
  seeds.push_back({0, 1, kSend, 0, 1, 1, 3, kMessage, 0, 2, 1, 1, 0, 3, kDrain, 0});
  return seeds;
}

}  // namespace

const Target kStream{"stream", run_stream, stream_seeds};

}  // namespace aikido::fuzz

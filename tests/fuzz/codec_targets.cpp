// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
// Targets for the decoders. Decoded values are encoded again and must give the same
// bytes. No decoder may read beyond the end of its input.
#include <algorithm>
#include <array>
#include <cstring>

#include "base/text.h"
#include "collectives/call.h"
#include "input.h"
#include "membership/handle.h"
#include "straggler/policy.h"
#include "target.h"
#include "transport/frame.h"
#include "transport/handshake.h"

namespace aikido::fuzz {
namespace {

using transport::FrameHeader;
using transport::kHeaderBytes;

Bytes to_input(std::span<const std::byte> bytes) {
  Bytes out(bytes.size());
  if (!bytes.empty()) std::memcpy(out.data(), bytes.data(), bytes.size());
  return out;
}

bool is_same(std::span<const std::byte> a, std::span<const std::byte> b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end());
}

// ---- greetings

template <class Greeting>
void check_prefixes(const std::vector<std::byte>& bytes, Greeting decode) {
  const auto whole = decode(bytes);
  if (!whole.is_ok()) return;
  // Each prefix of a correct greeting decodes without an error.
  for (size_t n = 0; n < bytes.size(); n += 1 + bytes.size() / 16) {
    // A separate copy, so that the sanitizer detects a read beyond the end.
    const std::vector<std::byte> part(bytes.begin(),
                                      bytes.begin() + static_cast<ptrdiff_t>(n));
    require(decode(part).is_ok(), "a beginning of a greeting is no error");
  }
}

void run_greeting(std::span<const uint8_t> input) {
  const auto bytes = Input(input).take(input.size());
  check_prefixes(bytes, transport::decode_hello);
  check_prefixes(bytes, transport::decode_welcome);
  if (auto hello = transport::decode_hello(bytes); hello && *hello) {
    const auto again = transport::encode(**hello);
    require(again.size() <= bytes.size() &&
                is_same(again, std::span(bytes).first(again.size())),
            "a HELLO that is understood has one encoding");
    require((*hello)->agreed.size() <= 1024, "the text of a HELLO has a limit");
  }
  if (auto refusal = transport::decode_welcome(bytes); refusal && *refusal) {
    require((*refusal)->size() <= 1024, "the text of a WELCOME has a limit");
  }
}

std::vector<Bytes> greeting_seeds() {
  transport::Hello hello;
  for (size_t i = 0; i < hello.token.size(); ++i)
    hello.token[i] = static_cast<std::byte>(i);
  hello.rank = Rank(3);
  hello.size = 8;
  hello.agreed = "a=1;b=2";
  std::vector<Bytes> seeds = {to_input(transport::encode(hello))};
  hello.lane = transport::Lane::kControl;
  hello.agreed.clear();
  seeds.push_back(to_input(transport::encode(hello)));
  seeds.push_back(to_input(transport::encode_welcome("")));
  seeds.push_back(to_input(transport::encode_welcome("rank 5 has no place here")));
  return seeds;
}

// ---- frames

void run_call(std::span<const std::byte> bytes) {
  auto decoded = collectives::decode_call(bytes);
  if (!decoded) return;
  const collectives::Call& call = decoded->call;
  const auto again = collectives::encode(call);
  const bool is_default = call.policy == straggler::PolicyOptions();
  if (call.is_partial() || is_default) {
    require(again.size + decoded->rest.size() == bytes.size() ||
                static_cast<uint8_t>(bytes[3]) >= 0x80,
            "a call and its rest are the whole extension");
  }
  require(decoded->rest.size() <= bytes.size(), "the rest lies in the extension");
  require(!collectives::describe(call).empty(), "every call has a name");
  for (const int32_t size : {1, 2, 3, 1025}) {
    const Status valid = collectives::validate(call, size);
    require(valid.is_ok() || !valid.message().empty(), "a refusal has a sentence");
  }
}

void run_header(std::span<const std::byte, kHeaderBytes> bytes) {
  auto header = transport::decode(bytes);
  if (!header) return;
  require(header->offset <= header->total_bytes &&
              header->payload_bytes <= header->total_bytes - header->offset,
          "a payload lies in its message");
  std::array<std::byte, kHeaderBytes> again;
  transport::encode(*header, again);
  auto twice = transport::decode(again);
  require(twice && *twice == *header, "a header is the same after a round trip");
}

void run_frame(std::span<const uint8_t> input) {
  const auto bytes = Input(input).take(input.size());
  std::array<std::byte, kHeaderBytes> raw{};
  std::copy_n(bytes.begin(), std::min(bytes.size(), raw.size()), raw.begin());
  run_header(raw);
  // Decodes the same bytes with a correct magic, version and checksum. The encoder
  // writes these, and takes all other fields as they are.
  FrameHeader header;
  std::memcpy(&header.shard, raw.data() + 6, 2);
  std::memcpy(&header.payload_bytes, raw.data() + 8, 4);
  std::memcpy(&header.epoch, raw.data() + 12, 4);
  std::memcpy(&header.tag, raw.data() + 16, 4);
  std::memcpy(&header.seq, raw.data() + 24, 8);
  std::memcpy(&header.offset, raw.data() + 32, 8);
  std::memcpy(&header.total_bytes, raw.data() + 40, 8);
  std::memcpy(&header.called, raw.data() + 48, 8);
  std::memcpy(&header.acked, raw.data() + 20, 4);
  std::memcpy(&header.view, raw.data() + 56, 4);
  header.kind = static_cast<transport::FrameKind>(raw[3]);
  header.extension_bytes = static_cast<uint8_t>(raw[4]);
  transport::encode(header, raw);
  run_header(raw);
  const size_t skip = std::min(bytes.size(), kHeaderBytes);
  const size_t n = std::min(bytes.size() - skip, transport::kMaxExtensionBytes);
  const std::vector<std::byte> extension(
      bytes.begin() + static_cast<ptrdiff_t>(skip),
      bytes.begin() + static_cast<ptrdiff_t>(skip + n));
  run_call(extension);
  if (extension.size() >= straggler::kEncodedPolicyBytes) {
    const auto encoded = std::span(extension).first<straggler::kEncodedPolicyBytes>();
    auto policy = straggler::decode_policy(encoded);
    if (policy) {
      require(is_same(straggler::encode(*policy), encoded),
              "a policy has one encoding");
      require(!straggler::to_string(*policy).empty(), "a policy has a name");
      for (const int32_t size : {1, 3}) {
        if (policy->kind == straggler::Kind::kSkip &&
            straggler::validate(*policy, size).is_ok())
          require(straggler::quorum_of(*policy, size) <= size, "a quorum is a part");
      }
    }
  }
}

std::vector<Bytes> frame_seeds() {
  std::vector<Bytes> seeds;
  collectives::Call call;
  call.dtype = DType::kFloat32;
  call.count = 4096;
  call.shape.num_dims = 2;
  call.shape.dims = {64, 64};
  for (const int policy : {0, 1, 2, 3, 4}) {
    call.policy = {};
    call.policy.rebalance = policy == 1;
    if (policy > 1) call.policy.kind = straggler::Kind::kSkip;
    if (policy > 2) call.policy.masks = straggler::Masks::kBucket;
    if (policy > 3) call.policy.log_full = straggler::LogFull::kLeave;
    const auto encoded = collectives::encode(call);
    FrameHeader header;
    header.kind = transport::FrameKind::kContrib;
    header.extension_bytes = static_cast<uint8_t>(encoded.size);
    header.shard = 2;
    header.payload_bytes = 4096;
    header.epoch = 1;
    header.seq = 5;
    header.total_bytes = 16384;
    header.called = 7;
    std::vector<std::byte> frame(kHeaderBytes);
    transport::encode(header, std::span<std::byte, kHeaderBytes>(frame));
    frame.insert(frame.end(), encoded.view().begin(), encoded.view().end());
    seeds.push_back(to_input(frame));
  }
  return seeds;
}

// ---- handles

void run_handle(std::span<const uint8_t> input) {
  const std::string text(input.begin(), input.end());
  auto handle = membership::MemberHandle::parse(text);
  if (handle) return require(handle->to_string() == text, "a handle has one text");
  const std::string& why = handle.status().message();
  require(why == printable(why), "a refusal can be printed, whatever was refused");
}

std::vector<Bytes> handle_seeds() {
  membership::MemberHandle handle{{"127.0.0.1", 29500}, 0x0123456789abcdef, {}};
  std::vector<Bytes> seeds;
  for (const char* host : {"127.0.0.1", "::1", "fe80::1%lo"}) {
    handle.address.host = host;
    const std::string text = handle.to_string();
    seeds.emplace_back(text.begin(), text.end());
  }
  return seeds;
}

}  // namespace

const Target kGreeting{"greeting", run_greeting, greeting_seeds};
const Target kFrame{"frame", run_frame, frame_seeds};
const Target kHandle{"handle", run_handle, handle_seeds};

}  // namespace aikido::fuzz

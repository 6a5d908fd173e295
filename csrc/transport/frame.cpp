// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "transport/frame.h"

#include <bit>
#include <cstring>

namespace aikido::transport {
namespace {

static_assert(std::endian::native == std::endian::little,
              "the wire is little-endian; add byte swaps to port");

template <class T>
void put(std::span<std::byte, kHeaderBytes> out, size_t at, T value) {
  std::memcpy(out.data() + at, &value, sizeof value);
}

template <class T>
T get(std::span<const std::byte, kHeaderBytes> in, size_t at) {
  T value;
  std::memcpy(&value, in.data() + at, sizeof value);
  return value;
}

constexpr size_t kChecksumAt = 60;

// Detects a stream that has lost its position, and a peer that speaks another protocol.
// It does not protect against forgery. Payloads rely on TCP's own checksum.
uint32_t checksum(std::span<const std::byte, kHeaderBytes> bytes) {
  uint64_t h = 0x9e3779b97f4a7c15ull;
  for (size_t at = 0; at < kHeaderBytes; at += 8) {
    auto word = get<uint64_t>(bytes, at);
    if (at == 56) word &= 0xffffffffull;  // The checksum field itself does not count.
    h = (h ^ word) * 0xff51afd7ed558ccdull;
    h ^= h >> 32;
  }
  return static_cast<uint32_t>(h);
}

}  // namespace

void encode(const FrameHeader& header, std::span<std::byte, kHeaderBytes> out) {
  put(out, 0, kFrameMagic);
  put(out, 2, kProtocolVersion);
  put(out, 3, static_cast<uint8_t>(header.kind));
  put(out, 4, header.extension_bytes);
  put(out, 5, header.block);
  put(out, 6, header.shard);
  put(out, 8, header.payload_bytes);
  put(out, 12, header.epoch);
  put(out, 16, header.tag);
  put(out, 20, header.acked);
  put(out, 24, header.seq);
  put(out, 32, header.offset);
  put(out, 40, header.total_bytes);
  put(out, 48, header.called);
  put(out, 56, header.view);
  put(out, kChecksumAt, uint32_t{0});
  put(out, kChecksumAt, checksum(out));
}

Result<FrameHeader> decode(std::span<const std::byte, kHeaderBytes> bytes) {
  const auto bad = [](const std::string& what) {
    return Status(Code::kProtocol, "this is no aikido frame: " + what);
  };
  if (get<uint16_t>(bytes, 0) != kFrameMagic) {
    return bad(
        concat("it begins with ", get<uint16_t>(bytes, 0), ", not ", kFrameMagic));
  }
  if (get<uint8_t>(bytes, 2) != kProtocolVersion) {
    return bad(concat("protocol version ", int{get<uint8_t>(bytes, 2)},
                      ", this build speaks ", int{kProtocolVersion},
                      "; install the same aikido on every rank"));
  }
  if (get<uint32_t>(bytes, kChecksumAt) != checksum(bytes)) {
    return bad("its header checksum does not match");
  }
  const auto kind = get<uint8_t>(bytes, 3);
  if (kind == 0 || kind > kMaxFrameKind) return bad(concat("unknown kind ", int{kind}));
  FrameHeader h;
  h.kind = static_cast<FrameKind>(kind);
  h.extension_bytes = get<uint8_t>(bytes, 4);
  h.block = get<uint8_t>(bytes, 5);
  h.shard = get<uint16_t>(bytes, 6);
  h.payload_bytes = get<uint32_t>(bytes, 8);
  h.epoch = get<uint32_t>(bytes, 12);
  h.tag = get<int32_t>(bytes, 16);
  h.seq = get<uint64_t>(bytes, 24);
  h.offset = get<uint64_t>(bytes, 32);
  h.total_bytes = get<uint64_t>(bytes, 40);
  h.called = get<uint64_t>(bytes, 48);
  h.acked = get<int32_t>(bytes, 20);
  h.view = get<uint32_t>(bytes, 56);
  // Written so that no sum of received numbers can overflow.
  if (h.offset > h.total_bytes || h.payload_bytes > h.total_bytes - h.offset) {
    return bad(concat("bytes ", h.offset, "+", h.payload_bytes, " of a message of ",
                      h.total_bytes));
  }
  return h;
}

}  // namespace aikido::transport

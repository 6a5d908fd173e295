// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// LinkHandler that stores received frames and their order, and an owner that counts its
// completions. One thread.

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "transport/link.h"

namespace aikido::testing {

struct RecordingHandler final : transport::LinkHandler {
  using Header = transport::FrameHeader;

  Result<std::byte*> on_frame_begin(Rank, const Header& header,
                                    std::span<const std::byte> extension) override {
    if (!refuse.empty()) return Status(Code::kProtocol, refuse);
    if (!extension.empty())
      extensions[header.seq] = {extension.begin(), extension.end()};
    order.push_back(header.seq);
    if (on_begin) on_begin(header);
    auto& data = messages[header.seq];
    data.resize(header.total_bytes);
    return is_unwanted ? nullptr : data.data() + header.offset;
  }
  void on_frame(Rank, const Header& header) override {
    kinds.push_back(header.kind);
    received[header.seq] += header.payload_bytes;
    last = header;
    if (on_end) on_end(header);
  }
  void on_link_lost(Rank from, const Status& why) override {
    ++times_lost;
    loss = why;
    lost_rank = from;
    if (on_lost) on_lost();
  }
  uint64_t called() const override { return num_called; }
  int32_t acked() const override { return 0; }
  transport::WakePolicy wake_policy(Rank) const override {
    return transport::WakePolicy::kNow;
  }

  std::map<uint64_t, std::vector<std::byte>> messages, extensions;  // by seq
  std::map<uint64_t, size_t> received;
  std::vector<uint64_t> order;  // of frames
  std::vector<transport::FrameKind> kinds;
  Header last;
  int times_lost = 0;
  Status loss;
  Rank lost_rank = kNoRank;
  uint64_t num_called = 0;
  bool is_unwanted = false;
  std::string refuse;
  std::function<void(const Header&)> on_begin, on_end;
  std::function<void()> on_lost;
};

struct CountingOwner final : transport::SendOwner {
  void on_sent(uint32_t token) override {
    tokens.push_back(token);
    if (then) then(token);
  }
  std::vector<uint32_t> tokens;
  std::function<void(uint32_t)> then;
};

inline std::vector<std::byte> pattern(size_t bytes, unsigned start = 0) {
  std::vector<std::byte> data(bytes);
  for (size_t i = 0; i < bytes; ++i)
    data[i] = static_cast<std::byte>((start + i * 7 + i / 251) & 0xff);
  return data;
}

inline transport::OutMessage message(uint64_t seq, const std::vector<std::byte>& data,
                                     std::shared_ptr<transport::SendOwner> owner = {},
                                     Priority priority = 0) {
  transport::OutMessage m;
  m.header.kind = transport::FrameKind::kData;
  m.header.seq = seq;
  m.header.total_bytes = data.size();
  m.data = data.data();
  m.bytes = data.size();
  m.priority = priority;
  m.owner = std::move(owner);
  m.token = static_cast<uint32_t>(seq);
  return m;
}

}  // namespace aikido::testing

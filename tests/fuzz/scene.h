// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// One member with a real group and real links over socket pairs. The fuzzer controls
// the far ends. The scene has its own clock and its own calls, and records how the
// calls ended. One thread.

#include <array>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "base/fd.h"
#include "engine/group.h"
#include "transport/loop/event_loop.h"
#include "transport/schedule/uplink.h"

namespace aikido::fuzz {

// Calls that members may make. There are few, so that frames of a peer often fit one.
inline constexpr size_t kNumCalls = 19;
inline constexpr size_t kLargestSparse = 4096;
collectives::Call call_number(size_t index);
// Bytes that member `from` gives to member `to`, in calls that exchange blocks.
std::optional<size_t> block_bytes(const collectives::Call& call, int32_t from,
                                  int32_t to);

class Scene {
 public:
  static constexpr int32_t kMaxSize = 3;

  Scene(int32_t self, int32_t size);
  ~Scene();

  int32_t self() const { return options_.self.value; }
  int32_t size() const { return options_.size; }
  const engine::GroupOptions& options() const { return options_; }
  uint64_t called() const { return called_; }

  // ---- the local member
  void call(size_t index);
  void send(int32_t to, int32_t tag, size_t bytes);
  void receive(std::optional<int32_t> from, int32_t tag, size_t bytes);
  void abort();
  void leave();

  // ---- the others
  // Writes to the link of `peer`, in pieces of `piece` bytes (0: at once).
  void write(int32_t peer, transport::Lane lane, std::span<const std::byte> bytes,
             size_t piece);
  // Reads the bytes that our member has sent. Otherwise its sends wait.
  void drain(int32_t peer);
  void hang_up(int32_t peer, transport::Lane lane);

  // ---- time
  void turn();
  void pass(Duration time);

  // Ends the group and checks that each call has an answer and its memory back.
  void finish();

 private:
  class Clock final : public aikido::Clock {
   public:
    [[nodiscard]] TimePoint now() const override { return now_; }
    void advance(Duration d) { now_ += d; }

   private:
    TimePoint now_{Duration(1)};
  };
  // Memory of a caller. It lives as long as the group keeps it alive.
  struct Memory {
    std::vector<std::byte> input, output;
    std::map<int32_t, std::vector<std::byte>> allocated;  // by rank
  };
  struct Record {
    int times_done = 0;
    std::weak_ptr<Memory> memory;
  };
  static void end(Record& record);
  std::shared_ptr<Record> record(const std::shared_ptr<Memory>& memory);

  engine::GroupOptions options_;
  Clock clock_;
  transport::EventLoop loop_;
  transport::Uplink uplink_{&loop_, 0};
  std::unique_ptr<engine::Group> group_;
  std::array<std::array<Fd, transport::kNumLanes>, kMaxSize> far_;
  std::vector<std::shared_ptr<Record>> records_;
  uint64_t called_ = 0;
};

}  // namespace aikido::fuzz

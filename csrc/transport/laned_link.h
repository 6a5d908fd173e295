// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Link with one connection per lane, so that control frames never wait behind bulk data
// that the kernel holds. Frames of one lane stay in order. Between the lanes there is
// no order, except that the goodbye is behind all data. Lanes end together: if one is
// lost, the other hangs up. The link is lost once both have delivered all received
// frames. Progress thread only.

#include <array>
#include <memory>
#include <optional>

#include "transport/link.h"

namespace aikido::transport {

class LanedLink final : public Link {
 public:
  // `handler` must outlive the link.
  LanedLink(Rank peer, LinkHandler* handler);

  // Handler for the link of `lane`.
  LinkHandler* handler(Lane lane) { return &end(lane); }
  // Called once, before everything else.
  void set(Lane lane, std::unique_ptr<Link> link) { end(lane).link = std::move(link); }
  // The bulk lane is shared memory. Then it also carries kReady and kCalled. There they
  // need no system call, and wake only members that wait for them.
  void set_shared() { is_shared_ = true; }

  MessageId send(OutMessage&& message) override;
  bool send_at_once(const OutMessage& message) override;
  void let_go(MessageId id) override;
  void hurry() override;
  size_t cancel(MessageId id) override;
  bool reads_our_memory() const override {
    return end(Lane::kBulk).link->reads_our_memory();
  }
  // Only bulk payloads are placed in memory that may have to be given back early.
  const FrameHeader* incoming() const override {
    return end(Lane::kBulk).link->incoming();
  }
  size_t num_received() const override { return end(Lane::kBulk).link->num_received(); }
  void drop_incoming() override { end(Lane::kBulk).link->drop_incoming(); }
  Buffer keep_incoming() override { return end(Lane::kBulk).link->keep_incoming(); }
  void hang_up() override;
  bool is_drained() const override;
  void finish() override { end(Lane::kBulk).link->finish(); }
  void close() override;

 private:
  struct End final : LinkHandler {
    Result<std::byte*> on_frame_begin(Rank from, const FrameHeader& header,
                                      std::span<const std::byte> extension) override {
      if (owner->lane_for(header.kind) == lane)
        return owner->handler_->on_frame_begin(from, header, extension);
      return Status(Code::kProtocol, concat("a frame of kind ", int(header.kind),
                                            " on a lane that it does not belong to"));
    }
    void on_frame(Rank from, const FrameHeader& header) override {
      owner->handler_->on_frame(from, header);
    }
    void on_link_lost(Rank, const Status& why) override {
      is_lost = true;
      owner->on_lane_lost(why);
    }
    uint64_t called() const override { return owner->handler_->called(); }
    int32_t acked() const override { return owner->handler_->acked(); }
    WakePolicy wake_policy(Rank from) const override {
      return owner->handler_->wake_policy(from);
    }

    LanedLink* owner = nullptr;
    Lane lane = Lane::kBulk;
    std::unique_ptr<Link> link;
    bool is_lost = false;
  };

  End& end(Lane lane) { return ends_[static_cast<size_t>(lane)]; }
  const End& end(Lane lane) const { return ends_[static_cast<size_t>(lane)]; }
  void on_lane_lost(const Status& why);
  Lane lane_for(FrameKind kind) const {
    const bool goes_shared = kind == FrameKind::kReady || kind == FrameKind::kCalled;
    return is_shared_ && goes_shared ? Lane::kBulk : lane_of(kind);
  }

  Rank peer_;
  LinkHandler* handler_;
  std::array<End, kNumLanes> ends_;
  bool is_shared_ = false;
  std::optional<Status> first_loss_;  // of a lane
};

}  // namespace aikido::transport

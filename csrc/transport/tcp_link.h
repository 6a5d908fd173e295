// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// One lane of a Link: one connected TCP socket on the event loop. Writes gather several
// chunks per system call from the memory of their owners; reads place payloads where
// the handler says, so that large data is copied by the kernel alone. Progress thread
// only.

#include <array>
#include <deque>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "base/fd.h"
#include "transport/event_loop.h"
#include "transport/link.h"
#include "transport/scheduler.h"
#include "transport/unsent_limit.h"

namespace aikido::transport {

class TcpLink final : public Link, private FdHandler, private Flushable {
 public:
  // Takes a connected, non-blocking socket whose handshake is through. `loop` and
  // `handler` must outlive the link. `chunk_bytes`: the longest payload of a frame that
  // is sent.
  TcpLink(EventLoop* loop, Fd socket, Lane lane, Rank peer, size_t chunk_bytes,
          LinkHandler* handler);
  ~TcpLink() override;

  MessageId send(OutMessage message) override;
  void let_go(MessageId id) override;
  size_t cancel(MessageId id) override;
  const FrameHeader* incoming() const override {
    return reading_ == Reading::kPayload ? &header_ : nullptr;
  }
  void drop_incoming() override { payload_ = nullptr; }
  void hang_up() override;
  bool is_drained() const override;
  void finish() override;
  void close() override;

 private:
  // A chunk on its way into the kernel: header and extension copied, payload in place.
  struct Outgoing {
    MessageId message = 0;
    bool is_last = false;
    std::array<std::byte, kHeaderBytes + kMaxExtensionBytes> prefix;
    size_t prefix_bytes = 0;
    const std::byte* payload = nullptr;
    size_t payload_bytes = 0;
    size_t sent = 0;               // of prefix and payload together
    std::vector<std::byte> aside;  // the payload, once its message is cancelled
  };
  struct Queued {
    OutMessage message;
    size_t in_flight = 0;     // chunks of it in outgoing_
    bool is_through = false;  // nothing of it is left in the scheduler
  };
  enum class Reading { kHeader, kExtension, kPayload };

  void on_events(uint32_t events) override;
  void flush() override;
  void want_flush();

  bool write_some();
  void gather();
  void note_room();
  void note_taken(size_t written);
  void advance(size_t written);
  void release(MessageId id);
  void deliver_sent();

  void read_some();
  bool parse();
  bool begin_frame(std::span<const std::byte> extension);
  void end_payload(size_t bytes);
  void stop_sending();
  void lose(const Status& why);

  EventLoop* loop_;
  Fd socket_;
  Rank peer_;
  LinkHandler* handler_;
  uint32_t events_ = 0;
  bool flush_wanted_ = false;
  bool is_lost_ = false;
  bool can_send_ = true;               // false: what is sent is through at once
  std::optional<UnsentLimit> unsent_;  // between hosts, of bulk
  bool ran_dry_ = false;               // since it was full

  // Sending.
  Scheduler scheduler_;
  MessageId next_id_ = 1;
  std::unordered_map<MessageId, Queued> messages_;
  std::deque<Outgoing> outgoing_;
  size_t outgoing_bytes_ = 0;
  std::vector<std::pair<std::shared_ptr<SendOwner>, uint32_t>> sent_;
  bool finishing_ = false;
  bool half_closed_ = false;

  // Receiving.
  Reading reading_ = Reading::kHeader;
  FrameHeader header_;
  std::byte* payload_ = nullptr;  // null: thrown away
  size_t payload_left_ = 0;
  std::vector<std::byte> in_;
  size_t in_begin_ = 0;
  size_t in_end_ = 0;
};

}  // namespace aikido::transport

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Another member as its group knows it: the link to it, what either has called as the
// other knows, and the control frames that the group itself sends. Progress thread.

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/status.h"
#include "base/types.h"
#include "transport/link.h"

namespace aikido::engine {

class Peer {
 public:
  // `epoch` of the view, and `called`, the highest collective called here, outlive the
  // peer.
  Peer(const uint32_t* epoch, const uint64_t* called);
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  void attach(std::unique_ptr<transport::Link> link) { link_ = std::move(link); }
  bool is_connected() const { return link_ != nullptr; }

  // As the functions of Link. A message to a member that was never connected is
  // through at once.
  transport::MessageId send(transport::OutMessage message);
  size_t cancel(transport::MessageId id) { return link_ ? link_->cancel(id) : 0; }
  bool is_drained() const { return !link_ || link_->is_drained(); }
  void finish();
  void close();
  // If a payload of this kind and number is being received, the rest is thrown away.
  void drop_incoming(transport::FrameKind kind, uint64_t number);

  // Its highest collective that is known here.
  uint64_t called() const { return called_; }
  // Returns whether that is news.
  bool note_called(uint64_t called);

  // Tells it which collectives were called here, if no frame has done so.
  void tell_called();
  // Says that we live. One is on its way at most, whatever the peer takes.
  void beat() { notify(transport::FrameKind::kHeartbeat); }

  // Collective `seq` failed here, or with 0 the group.
  void send_abort(Seq seq, const Status& why);
  // A kAbort that comes: where its text goes, and what it says once it is whole.
  std::byte* place_abort(const transport::FrameHeader& header);
  std::optional<Status> read_abort(const transport::FrameHeader& header,
                                   int32_t size) const;

  bool has_left = false;
  Status lost;  // not ok: the link is down

 private:
  class Notice;
  void notify(transport::FrameKind kind);

  const uint32_t* epoch_;
  const uint64_t* own_called_;
  std::unique_ptr<transport::Link> link_;
  uint64_t called_ = 0;
  uint64_t told_called_ = 0;  // ours, as it knows it
  std::shared_ptr<Notice> notice_;
  std::vector<std::byte> abort_text_;
};

}  // namespace aikido::engine

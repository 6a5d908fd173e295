// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Another member as its group knows it: the link to it, what either has called as the
// other knows, and the control frames that the group itself sends. Progress thread.

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "base/status.h"
#include "base/types.h"
#include "collectives/operation_host.h"
#include "engine/receive_window.h"
#include "engine/result_backlog.h"
#include "engine/send_window.h"
#include "membership/view_message.h"
#include "straggler/contribution_share.h"
#include "straggler/uplink.h"
#include "transport/link.h"

namespace aikido::engine {

class Peer {
 public:
  // `clock`, `epoch` of the view, `called`, the highest collective called here, and
  // `settled`, up to which no result is needed here, outlive the peer. `window_bytes`:
  // of what either has not called. `log_bytes`: of results that either has not called.
  Peer(const Clock* clock, const uint32_t* epoch, const uint64_t* called,
       const uint64_t* settled, uint64_t window_bytes, uint64_t log_bytes);
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  void attach(std::unique_ptr<transport::Link> link) { link_ = std::move(link); }
  bool is_connected() const { return link_ != nullptr; }

  // As the functions of Link, but that messages beyond the window wait (SendWindow),
  // and results that a slow link does not take (ResultBacklog). A message to a member
  // that was never connected is through at once.
  transport::MessageId send(transport::OutMessage&& message);
  // As Link::send_at_once, of what belongs to no collective.
  bool send_at_once(const transport::OutMessage& message);
  size_t cancel(transport::MessageId id);
  bool reads_our_memory() const { return link_ && link_->reads_our_memory(); }
  bool is_drained() const;
  void finish();
  void close();
  // The bytes that are here of a payload of this kind and number that is being
  // received; 0 if none is, nothing if it is another one.
  std::optional<size_t> num_received(transport::FrameKind kind, uint64_t number) const;
  // As Link::keep_incoming.
  Buffer keep_incoming() { return link_ ? link_->keep_incoming() : Buffer(); }
  // The rest of it is thrown away.
  void drop_incoming(transport::FrameKind kind, uint64_t number);

  // Its highest collective that is known here.
  uint64_t called() const { return called_; }
  // Returns whether that is news.
  bool note_called(uint64_t called);
  // It needs no result up to this collective. Returns whether that is news.
  bool note_settled(uint64_t settled);
  uint64_t settled() const { return settled_; }
  // Collective `seq` needs no memory there any more. Not `is_known` there: once it has
  // settled it.
  void note_over(uint64_t seq, bool is_known);
  // A message for a collective begins to come. A failed Status: it is more than the
  // peer may send before the call. `most_unasked`: bytes of a block that go before it
  // is asked for.
  Status admit(const transport::FrameHeader& header, size_t most_unasked);
  // Contributions to collective `seq` are not kept here any more.
  void note_dropped(uint64_t seq) { early_.on_over(seq); }

  // Tells it which collectives were called here, if no frame has done so. One that
  // shares memory with us and sleeps is not woken for that.
  void tell_called();
  // Asks it to tell when it calls collective `seq`.
  void ask_called(uint64_t seq);
  // It wants to know when collective `seq` was called here.
  void on_asked(uint64_t seq) { note_asked(asked_[0], seq); }
  // Asks it to tell when it needs no result up to collective `seq`.
  void ask_settled(uint64_t seq) { ask(transport::FrameKind::kAskSettled, seq); }
  // It wants to know when collective `seq` is settled here.
  void on_asked_settled(uint64_t seq) { note_asked(asked_[1], seq); }
  // Tells it, if it is time. To be called after each call, and when more is settled.
  void answer();
  // Says that we live. One is on its way at most, whatever the peer takes.
  void beat() { notify(transport::FrameKind::kHeartbeat, transport::Haste::kServed); }

  // Collective `seq` failed here, or with 0 the group, of which collectives up to
  // `spared` need nothing of this member any more. One of which calls differ is told
  // ahead of everything that goes later, too.
  void send_abort(Seq seq, const Status& why, uint64_t spared = 0);
  // The same for one that comes: where its text goes, and what it says once it is
  // whole.
  Result<std::byte*> place_abort(const transport::FrameHeader& header,
                                 std::span<const std::byte> extension);
  std::optional<Status> read_abort(const transport::FrameHeader& header,
                                   int32_t size) const;
  // What the last one that was placed spares.
  uint64_t spared() const { return spared_; }

  // A message about the view; a kView goes ahead of everything else.
  void send_view(membership::ViewStep step, std::vector<std::byte> message);
  // The same for one that comes.
  Result<std::byte*> place_view(const transport::FrameHeader& header);
  std::optional<std::span<const std::byte>> read_view(
      const transport::FrameHeader& header) const;
  // A word about collective `seq`.
  void send_notice(transport::FrameKind kind, uint64_t seq, uint16_t shard,
                   uint32_t view);
  // Results of collective `seq` that have come may come again.
  void forget_results(uint64_t seq) { early_results_.on_over(seq); }

  // Ends the link for a reason of ours, which is the reason of the loss that follows.
  void give_up(const Status& why);
  const Status& reason_of_loss(const Status& why) const {
    return gave_up_ ? why : gave_up_;
  }
  // The link is down.
  void set_lost(const Status& why);

  bool has_left = false;
  Status left_for;  // not ok: the loss for which it leaves, as it said
  Status lost;      // not ok: see set_lost
  // Of its contributions, while it owns nothing.
  straggler::Uplink uplink;
  collectives::Learnt learnt;
  straggler::ContributionShare share;

 private:
  bool is_receiving(transport::FrameKind kind, uint64_t number) const;
  class Notice;
  // It is to hear when a number of ours is `from`, and so on to `up_to`; zero: nothing.
  struct Asked {
    const uint64_t* own;
    uint64_t from = 0;
    uint64_t up_to = 0;
    bool is_due() const { return from > 0 && *own >= from; }
  };
  void note_asked(Asked& asked, uint64_t seq);
  bool notify(transport::FrameKind kind, transport::Haste haste);
  void ask(transport::FrameKind kind, uint64_t seq);
  bool is_held_result(uint64_t seq);
  void let_go(const std::vector<transport::MessageId>& ids);
  void ask_if_due();

  const Clock* clock_;
  const uint32_t* epoch_;
  const uint64_t* own_called_;
  std::unique_ptr<transport::Link> link_;
  uint64_t called_ = 0;
  uint64_t told_called_ = 0;    // ours, as it knows it
  std::array<Asked, 2> asked_;  // for what we have called, and what is settled here
  SendWindow window_;
  ResultBacklog results_;
  ReceiveWindow early_;
  ReceiveWindow early_results_;
  std::shared_ptr<Notice> notice_;
  Status gave_up_;
  std::array<std::vector<std::byte>, transport::kNumLanes> abort_text_;  // by lane
  uint64_t spared_ = 0;
  uint64_t settled_ = 0;
  std::set<uint64_t> failed_;  // here, and beyond what it has settled
  std::array<std::vector<std::byte>, transport::kNumLanes> view_;  // by lane
};

}  // namespace aikido::engine

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Another member as its group knows it: the link to the member, the calls that each of
// the two knows of the other, and the control frames that the group itself sends.
// Progress thread.

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
#include "engine/call_report.h"
#include "engine/early_data.h"
#include "engine/incoming_texts.h"
#include "engine/result_backlog.h"
#include "engine/send_window.h"
#include "membership/view_message.h"
#include "straggler/contribution_share.h"
#include "straggler/uplink_estimate.h"
#include "transport/link.h"

namespace aikido::engine {

// End of the membership of a peer, with the reasons that are known.
//
//   connected --goodbye--> left --link is down--> lost
//   connected --give_up()--> given up --link is down--> lost
//   connected --link is down--> lost
struct PeerEnd {
  bool has_left = false;
  std::optional<Status> reason_to_leave;  // a loss that the peer has reported
  std::optional<Status> given_up;         // reason of Peer::give_up()
  Status loss;                            // reason of Peer::set_lost(); ok before

  bool is_lost() const { return !loss.is_ok(); }
};

// Stays where it is: its link and its notices point to it.
class Peer {
 public:
  // These outlive the peer: `clock`; `epoch` of the view; `called`, the highest
  // collective called here; `acked`, up to which no result is needed here.
  // `window_bytes` limits the data that one side may send before the other side has
  // called, and `log_bytes` limits the results.
  Peer(const Clock* clock, const uint32_t* epoch, const uint64_t* called,
       const uint64_t* acked, uint64_t window_bytes, uint64_t log_bytes);

  void attach(std::unique_ptr<transport::Link> link) { link_ = std::move(link); }
  bool is_connected() const { return link_ != nullptr; }

  // As the functions of Link. In addition, messages beyond the window wait
  // (SendWindow), and so do results for a slow link (ResultBacklog). A message to a
  // member that was never connected counts as sent at once.
  transport::MessageId send(transport::OutMessage&& message);
  // As Link::send_at_once, for messages of no collective.
  bool send_at_once(const transport::OutMessage& message);
  size_t cancel(transport::MessageId id);
  bool reads_our_memory() const { return link_ && link_->reads_our_memory(); }
  bool is_drained() const;
  void finish();
  void close();
  // Received bytes of the payload of this kind and number that is being received. 0:
  // none is being received. Empty: another payload is being received.
  std::optional<size_t> num_received(transport::FrameKind kind, uint64_t number) const;
  // As Link::keep_incoming.
  Buffer keep_incoming() { return link_ ? link_->keep_incoming() : Buffer(); }
  // Discards the rest of the payload.
  void drop_incoming(transport::FrameKind kind, uint64_t number);

  // Highest collective that the peer is known to have called.
  uint64_t called() const { return called_; }
  // Returns true if the number is new.
  bool note_called(uint64_t called);
  // The peer needs no result up to this collective. Returns true if the number is new.
  bool note_acked(uint64_t acked);
  uint64_t acked() const { return acked_; }
  // The peer keeps no memory for collective `seq` any more. If the peer does not know
  // that yet (not `is_known`): not before it has acknowledged the collective.
  void note_over(uint64_t seq, bool is_known);

  // Reports the last collective called here to the peer, unless a frame reports it
  // within `wait`; see Note [reports of calls wait]. The report does not wake a
  // sleeping peer that shares memory with this member. Call it after each call, and at
  // report_due().
  void tell_called(Duration wait = Duration::zero());
  // The peer must still hear of the last collective called here.
  bool lacks_report() const {
    return report_.is_missing() && is_connected() && !is_lost();
  }
  std::optional<TimePoint> report_due() const;
  // Asks the peer to send a frame when it calls collective `seq`.
  void ask_called(uint64_t seq);
  // The peer asks for a frame when collective `seq` is called here.
  void on_asked(uint64_t seq) { note_asked(asked_[0], seq); }
  // Asks the peer to send a frame when it needs no result up to collective `seq`.
  void ask_acked(uint64_t seq) { ask(transport::FrameKind::kAskAcked, seq); }
  // The peer asks for a frame when this member needs no result up to collective `seq`.
  void on_asked_acked(uint64_t seq) { note_asked(asked_[1], seq); }
  // Sends the frames that were asked for and are due. Call it after each call, and when
  // either number has grown.
  void answer();
  // Sends a heartbeat. At most one is queued, however slowly the peer reads.
  void beat() { notify(transport::FrameKind::kHeartbeat, transport::Urgency::kServed); }

  // Collective `seq` failed here. With 0 the group failed, and collectives up to
  // `spared` need nothing more of this member. If two calls differ, an abort also
  // travels ahead of all later bulk data.
  void send_abort(Seq seq, const Status& why, uint64_t spared = 0);
  // Sends a message about the view. A kView goes ahead of everything else.
  void send_view(membership::ViewStep step, std::vector<std::byte> message);
  // Sends a notice about collective `seq`.
  void send_notice(transport::FrameKind kind, uint64_t seq, uint16_t shard,
                   uint32_t view);

  // Ends the link for a local reason, which becomes the reason of the loss that
  // follows.
  void give_up(const Status& why);
  // The link is down.
  void set_lost(const Status& why);
  bool is_lost() const { return end.is_lost(); }

  PeerEnd end;
  // Estimates from the peer's contributions while it owns nothing.
  straggler::UplinkEstimate uplink;
  collectives::Learnt learnt;
  straggler::ContributionShare share;
  IncomingTexts texts;  // aborts and messages about the view
  EarlyData early;      // for collectives that are not called here

 private:
  bool is_receiving(transport::FrameKind kind, uint64_t number) const;
  class Notice;
  // Request of the peer: a report when the number `own` reaches `from`, and then for
  // each number up to `up_to`. from = 0: no request.
  struct Asked {
    const uint64_t* own;
    uint64_t from = 0;
    uint64_t up_to = 0;
    bool is_due() const { return from > 0 && *own >= from; }
  };
  void note_asked(Asked& asked, uint64_t seq);
  bool notify(transport::FrameKind kind, transport::Urgency urgency);
  void ask(transport::FrameKind kind, uint64_t seq);
  bool is_held_result(uint64_t seq);
  void let_go(const std::vector<transport::MessageId>& ids);
  void ask_if_due();

  const Clock* clock_;
  const uint32_t* epoch_;
  const uint64_t* own_called_;
  std::unique_ptr<transport::Link> link_;
  uint64_t called_ = 0;
  CallReport report_;
  std::array<Asked, 2> asked_;  // for local calls, and for acknowledged results
  SendWindow window_;
  ResultBacklog results_;
  std::shared_ptr<Notice> notice_;
  uint64_t acked_ = 0;
  std::set<uint64_t> failed_;  // local failures that it has not acknowledged
};

}  // namespace aikido::engine

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Decider that moves items of a step from slow ranks to fast ranks, peer to peer. Our
// design after FlexRR (Harlap et al., "Addressing the straggler problem for iterative
// convergent parallel ML", SoCC 2016). It is fed with the events of its rank, messages
// of other ranks and `now`, and answers with items to compute and messages to send.
//
// Threads: one at a time, so the caller has a lock. No call blocks or takes longer than
// some microseconds. Only table() may be used without the lock: the training thread
// claims own items there, and then calls on_claimed(). Callers of claim() that got
// kWait ask again after every message, loss or on_time(), and at `until` at the latest.
//
// Note [how items move]
// Every rank has a few helpers, which may take its items. It may take items of a few
// owners itself (helper_group.h). A rank tells its group at the begin of a step how
// much work it has, and again if its expected end has moved. All messages carry these
// news.
//   A rank that will be idle soon asks the owner with the largest gain. Soon means: it
// has begun its last item, one micro-batch ahead, so the answer arrives while it
// computes. It asks earlier if the owner is `behind` by more than a share of a step: so
// work can travel over several groups. A rank asks early only after it has finished an
// item in this step, because speeds of the former step may be wrong. The owner alone
// decides about its items (grant_size.h), takes them from the tail of its table and
// sends them. The helper confirms, and computes them before its own items: its helpers
// can take only its own items from it. Only the owner of an item can get it from a
// helper again, by kCancel, and only if the helper has not begun it.
//   FlexRR's helpers begin at once and tell the owner, which may cancel. There both may
// compute an item if their messages cross. Here no item has two ranks at any time.
//
// Note [end of a step]
// A rank comes to an end if it has nothing to claim, no answer can bring an item, and
// no owner has an item whose move would be a gain, as far as it knows. If there is such
// an owner it asks, so it waits for answers only. It often knows that nothing follows
// when it claims its last item, which is then `is_last`. Every wait has a deadline:
// - for the answer to a request: answer_timeout, then it counts as declined. If a grant
//   comes later, the helper takes it, or refuses it if it has come to its end.
// - for the answer to a grant: answer_timeout. If the owner has come to its end before
// a
//   refusal arrives, it reports the items as lost (grant_ledger.h).
// - for an owner that has not begun the step: absent_patience of an own step.
//
// Note [the outcome decides]
// An item is in the step's sum if the rank that computed it is among the contributors.
// So the caller passes the outcome of each step. Items given to a rank that is not
// among them are lost: the caller issues them again in a later step, or drops and
// counts them. The caller must do the same with own items of its own rank if that was
// skipped, but not with items that it took: their owner does that. If a contribution is
// carried into a later step, the caller treats it as a contribution to its own step.
//   Items of a rank that died: items that it had given away are in the lists `taken` of
// its helpers (StepReport). The other items are in the sum if the rank contributed. The
// survivors issue the rest again, by the caller's list of all items.

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/rank_set.h"
#include "base/status.h"
#include "reassign/grant_ledger.h"
#include "reassign/grant_size.h"
#include "reassign/helper_group.h"
#include "reassign/item.h"
#include "reassign/item_rate.h"
#include "reassign/item_table.h"
#include "reassign/message.h"
#include "reassign/own_work.h"

namespace aikido::reassign {

struct ReassignOptions {
  GrantOptions grant;
  // Share of an own step by which an owner must be behind for a rank that still has
  // items to ask. After FlexRR; we know its constant second hand only.
  double behind = 0.2;
  Duration answer_timeout = std::chrono::milliseconds(50);
  double absent_patience = 0.25;  // share of the expected time of the own items
};
// kInvalidArgument, with the name of the option and its range.
Status check(const ReassignOptions& options);

// Answer to a claim.
struct Claim {
  enum class Kind : uint8_t {
    kItem,      // compute `id`
    kWait,      // nothing now: ask again after an event, or at `until`
    kStepOver,  // nothing more in this step: contribute
  };
  Kind kind = Kind::kStepOver;
  ItemId id;
  ItemSpec spec;
  bool is_last = false;  // kItem: nothing follows, so the sum may start in its backward
  TimePoint until{};     // kWait
};

struct OutgoingMessage {
  Rank to = kNoRank;
  MessageKind kind = MessageKind::kProgress;
  std::vector<std::byte> payload;
};

// Work of a rank in a step.
struct StepReport {
  uint64_t step = 0;
  uint32_t num_begun_with = 0;
  uint32_t num_given = 0;     // items granted, without returned items
  std::vector<ItemId> taken;  // begun items of other owners, in order
  uint32_t num_messages = 0;  // sent
  uint64_t num_bytes = 0;     // of these messages
};

// State of a rank within a step. A rank begins outside.
//
//     state     event                               next
// - kOutside  begin()                             kWorking
// - kWorking  claims the last item (`is_last`)    kOver
// - kWorking  claim() without an item: kWait      kWaiting
// - kWaiting  claim() with an item                kWorking
// - kWorking  claim(): no move is possible        kOver
// - kWaiting  claim(): no move is possible        kOver
// - kWorking  leave()                             kOver
// - kWaiting  leave()                             kOver
// - kOver     begin() of a later step             kWorking
enum class StepPhase : uint8_t { kOutside, kWorking, kWaiting, kOver };

class Reassigner {
 public:
  // Requires: a group of helper_group(), checked options.
  Reassigner(Rank self, HelperGroup group, const ReassignOptions& options);

  // --- The step of this rank.

  // Begins `step` with own items; none is allowed. Requires: a later step than before,
  // and the step before is over (claim() said so, or leave()).
  void begin(uint64_t step, std::vector<ItemSpec> items, TimePoint now);
  // Own items of the present step. Requires: a step has begun.
  const std::shared_ptr<ItemTable>& table() const { return work_.table(); }
  // Next item: items taken over first, then own items.
  Claim claim(TimePoint now);
  // The training thread has claimed an own item from table(). Returns `is_last`. May be
  // called later, from any thread that has the lock, unless num_left is 0.
  bool on_claimed(const ItemTable::Claimed& claimed, TimePoint now);
  // The gradient of the item that was claimed last is in this rank's sum.
  void on_finished(Duration took, TimePoint now);
  // Leaves the step early: returns the own items that will not be computed here, with
  // the item that was claimed last unless on_finished() was called for it. Items of
  // other owners go back to them. Then the step is over.
  std::vector<ItemId> leave(TimePoint now);
  // The step's sum has the contributions of `contributors`. Requires: the own step is
  // over, each step once, in order.
  void on_outcome(uint64_t step, const RankSet& contributors);

  // --- Other ranks, time.

  // kProtocol, with a sentence, if the message is nonsense: the peer runs another
  // version, or has a defect. The message is ignored.
  Status on_message(Rank from, std::span<const std::byte> payload, TimePoint now);
  // `rank` is gone for good. Its items that this rank took stay valid.
  void on_peer_lost(Rank rank, TimePoint now);
  void on_time(TimePoint now);
  // When to call on_time(). nullopt: only an event can change anything.
  std::optional<TimePoint> next_look() const;

  // --- Answers. Each is returned once.

  std::vector<OutgoingMessage> take_messages() { return std::exchange(messages_, {}); }
  std::vector<Loss> take_losses() { return ledger_.take_losses(); }

  StepPhase phase() const { return phase_; }
  uint64_t step() const { return report_.step; }
  const StepReport& report() const { return report_; }
  // Measured speed of this rank.
  const ItemRate& rate() const { return work_.rate(); }

 private:
  // Last news of a rank.
  struct Peer {
    bool is_helper = false;  // of this rank
    bool is_owner = false;   // of items that this rank may take
    bool is_lost = false;
    bool is_over = false;  // has come to the end of `step`
    uint64_t step = 0;     // 0: nothing known
    News news;
    TimePoint finish{};                        // expected end of its work
    std::optional<TimePoint> declined_finish;  // as it was when the rank declined
    bool is_declined_early = false;            // this rank had items to claim then
  };
  struct Request {
    Rank to = kNoRank;
    uint32_t serial = 0;
    bool is_recall = false;  // by kCancel
    TimePoint deadline{};
  };
  // Choice of the rank to ask.
  struct Candidate {
    Rank rank = kNoRank;
    bool is_recall = false;
    double lag_ns = 0;  // of its expected end behind the own
  };

  // reassigner.cpp: claims, estimates, ends
  Claim start(const NamedItem& item, TimePoint now);
  bool is_active() const;
  void finish(TimePoint now);
  std::optional<TimePoint> wait_until(TimePoint now) const;
  News news(TimePoint now) const;
  void tell_if_moved(TimePoint now);
  void give_back_block(const Block& block, uint32_t count, uint32_t serial,
                       TimePoint now);
  void tell(MessageKind kind, TimePoint now);
  void send(Rank to, Message message, TimePoint now);

  // reassigner_moves.cpp: requests and answers
  void ask_if_worth(TimePoint now);
  std::optional<Candidate> best_candidate(TimePoint now) const;
  bool is_gain_from(const Peer& peer, const News& offered, TimePoint now) const;
  bool is_in_step(const Peer& peer) const;
  void expire_request(TimePoint now);
  void note_declined(Peer& peer);
  Load load_of(const Peer& peer, TimePoint now) const;
  void answer_request(Rank from, const Message& message, TimePoint now);
  void answer_cancel(Rank from, const Message& message, TimePoint now);
  Status take_grant(Rank from, Message message, TimePoint now);
  void take_back(ReturnedItems returned);
  void note_news(Peer& peer, const Message& message, TimePoint now);
  void end_request(Rank from, uint32_t serial);

  const Rank self_;
  const ReassignOptions options_;
  std::map<Rank, Peer> peers_;
  OwnWork work_;
  GrantLedger ledger_;
  // The present step.
  StepPhase phase_ = StepPhase::kOutside;
  StepReport report_;
  std::optional<Request> request_;
  TimePoint absent_until_{};  // end of the patience with owners that have not begun
  TimePoint told_finish_{};   // expected end of this rank that the others know
  bool is_rate_told_ = false;
  uint32_t serial_ = 0;
  std::vector<OutgoingMessage> messages_;
};

}  // namespace aikido::reassign

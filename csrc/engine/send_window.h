// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Decision which messages of collectives may be sent to a peer, so that a fast sender
// does not fill the memory of a late peer. Pure: takes events, returns decisions. One
// thread.

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "base/recycler.h"
#include "transport/schedule/message_id.h"

namespace aikido::engine {

// Note [windows]
// Data for a collective that its receiver has not called waits in the receiver's
// memory. So the sender counts this data, by the calls of the receiver that it knows
// of. It holds back messages beyond the window. Data of the receiver's next call is
// never held back, even if it is large. Held messages go in the order of their
// collectives. So a member that waits for a call that all have made always gets its
// data. If its window is half full, the sender asks the receiver to report further
// calls. While no member is late, the numbers in ordinary frames suffice, and nothing
// is asked.
class SendWindow {
 public:
  using MessageId = transport::MessageId;

  // Bytes that a message counts for in addition to its payload, because an operation
  // that nobody has called also takes memory.
  static constexpr uint64_t kMessageCharge = 1024;

  explicit SendWindow(uint64_t bytes) : bytes_(bytes) {}

  // A message of `bytes` for collective `seq`. True: send it now. False: hold it, and
  // call hold() with its id.
  [[nodiscard]] bool admit(uint64_t seq, uint64_t bytes);
  void hold(uint64_t seq, uint64_t bytes, MessageId id);

  // The peer has called `called`. Returns the held messages to send now.
  std::vector<MessageId> on_called(uint64_t called);
  // The peer keeps nothing for collective `seq` any more. Returns the held messages to
  // send now.
  std::vector<MessageId> on_over(uint64_t seq);
  // A held message was cancelled.
  void forget(MessageId id);
  // Forgets all held messages and returns them.
  std::vector<MessageId> clear();

  // Number of a call that the peer must be asked to report, once each.
  std::optional<uint64_t> ask();

  bool is_holding() const { return !held_.empty(); }
  // Bytes that the peer may have to keep, including the charges.
  uint64_t ahead_bytes() const { return ahead_bytes_; }

 private:
  struct Ahead {
    uint64_t seq;
    uint64_t bytes;
  };
  struct Held {
    uint64_t bytes;
    MessageId id;
  };
  bool fits(uint64_t seq, uint64_t bytes) const;
  void charge(uint64_t seq, uint64_t bytes);
  std::vector<MessageId> take_free();

  uint64_t bytes_;
  uint64_t called_ = 0;  // by the peer
  uint64_t asked_ = 0;
  uint64_t ahead_bytes_ = 0;
  Recycler recycler_{2 << 10};
  RecycledDeque<Ahead> ahead_{recycler_};  // in the order of sending
  std::multimap<uint64_t, Held> held_;     // by seq
};

}  // namespace aikido::engine

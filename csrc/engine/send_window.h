// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Decides which messages of collectives may go to one peer, so that a sender that runs
// ahead of a late peer does not fill its memory. PURE: events in, decisions out. One
// thread.

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "base/recycler.h"
#include "transport/message_id.h"

namespace aikido::engine {

// Note [windows]
// What is sent for a collective that its receiver has not called waits in the
// receiver's memory. So a sender keeps count of it, by what it knows of the receiver's
// calls, and holds back what is beyond the window. What the receiver calls next is
// never held back, whatever its size, and held messages go in the order of their
// collectives: whoever waits for a call that all have made gets its data. A sender
// whose window is half full asks the receiver to tell when it has called more; while
// nobody is late, the numbers in the frames that come anyway suffice and nothing is
// asked.
class SendWindow {
 public:
  using MessageId = transport::MessageId;

  // Bytes that a message counts for besides its payload: an operation that nobody has
  // called takes memory too.
  static constexpr uint64_t kMessageCharge = 1024;

  explicit SendWindow(uint64_t bytes) : bytes_(bytes) {}

  // A message of `bytes` for collective `seq`. True: it goes now. False: it is to be
  // held, and hold() called with its id.
  [[nodiscard]] bool admit(uint64_t seq, uint64_t bytes);
  void hold(uint64_t seq, uint64_t bytes, MessageId id);

  // The peer has called `called`. Returns the held messages that go now.
  std::vector<MessageId> on_called(uint64_t called);
  // The peer keeps nothing for collective `seq` any more. Returns the same.
  std::vector<MessageId> on_over(uint64_t seq);
  // A held message was cancelled.
  void forget(MessageId id);
  // Forgets all that is held, and returns it.
  std::vector<MessageId> clear();

  // The number of a call that the peer is to be asked to tell, once each.
  std::optional<uint64_t> ask();

  bool is_holding() const { return !held_.empty(); }
  // What the peer may have to keep, with the charges.
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

// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Finding each other: the listener that every member of a process shares, and dialling.
// Who is on the same host (local_socket.h) is dialled there, and offered memory to
// share for bulk. The listener lives on the progress thread; dial() blocks its caller
// and must not run there.

#include <array>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "base/status.h"
#include "transport/address.h"
#include "transport/byte_stream.h"
#include "transport/event_loop.h"
#include "transport/handshake.h"
#include "transport/outbox.h"
#include "transport/shared_memory.h"

namespace aikido::transport {

// A connected, non-blocking socket, the memory that is shared with who is there, and,
// with the control lane, its blocks (outbox.h).
struct Connection {
  Fd socket;
  std::optional<SharedMemory> memory = {};
  Fd blocks = {};
};
// One per lane, by Lane.
using Connections = std::array<Connection, kNumLanes>;

// The stream of bytes over it. `outbox`, if there is one, lends our blocks, and
// `blocks` are the other's. `loop` and `outbox` outlive it.
std::unique_ptr<ByteStream> make_stream(EventLoop* loop, Connection connection,
                                        Lane lane, Outbox* outbox = nullptr);

// Decides who is let in. Progress thread.
class Doorkeeper {
 public:
  virtual ~Doorkeeper() = default;
  // Whether this is about this group, by its token; who is not known anywhere gets no
  // answer, and may try again.
  virtual bool knows(const Hello& hello) const = 0;
  // How many connections are still to come.
  virtual size_t num_expected() const { return 0; }
  // Somebody, maybe a member, cannot be understood or let in here: `why`.
  virtual void on_turned_away(const std::string&) {}
  // Nobody could be let in for the handshake timeout, since there is no descriptor or
  // no memory for it here: `why`.
  virtual void on_no_room(const std::string&) {}
  // Empty: welcome. Else the sentence to refuse with; both sides report it. Asked for
  // each lane.
  virtual std::string refusal(const Hello& hello) = 0;
  // A member that was welcomed on all lanes.
  virtual void on_connected(Rank rank, Connections connections) = 0;
};

class Listener final : private FdHandler, private Timed {
 public:
  // Listens on a free port of `host` (numeric), and beside it for who is on this host
  // if `is_local`. Strangers must greet within `handshake_timeout`, and a member must
  // have come on all its lanes by then. kRetryLater or kInvalidArgument when the host
  // cannot be bound.
  static Result<std::unique_ptr<Listener>> open(EventLoop* loop,
                                                const std::string& host,
                                                Duration handshake_timeout,
                                                bool is_local);
  // Members on this host get the blocks of `outbox`, which outlives the listener.
  void share(const Outbox* outbox) { outbox_ = outbox; }
  ~Listener() override;

  const Address& address() const { return address_; }
  // Whether members on this host find it beside its address.
  bool is_local() const { return local_.is_open(); }
  // Doorkeepers are asked in the order of arrival; they must be removed before they go.
  void add(Doorkeeper* doorkeeper) { doorkeepers_.push_back(doorkeeper); }
  void remove(Doorkeeper* doorkeeper) { std::erase(doorkeepers_, doorkeeper); }
  // Members of a group that has been given up get this sentence when they come late.
  // The last few groups are remembered.
  void refuse(const Token& token, const std::string& why);
  // Connections dropped because they were no member of any group here.
  uint64_t num_strangers() const { return num_strangers_; }

 private:
  class Guest;
  // A member that has come on some of its lanes.
  struct HalfOpen {
    Token token{};
    Rank rank;
    TimePoint deadline{};
    Connections connections;
  };
  Listener(EventLoop* loop, Fd socket, Fd local, Address address,
           Duration handshake_timeout);

  void on_events(uint32_t events) override;
  void on_time(TimePoint now) override;
  [[nodiscard]] std::optional<TimePoint> next_look() const override;
  void admit(Guest* guest, const Hello& hello);
  bool accept_one(const Fd& from, size_t most);
  void on_shortage(int error);
  void watch_for(uint32_t events);
  void join(Doorkeeper* doorkeeper, const Hello& hello, Connection connection);
  void turn_away(Guest* guest, uint16_t version);
  void drop(Guest* guest);

  EventLoop* loop_;
  Fd socket_;
  Fd local_;
  Address address_;
  Duration handshake_timeout_;
  std::vector<Doorkeeper*> doorkeepers_;
  std::list<std::unique_ptr<Guest>> guests_;  // in the order of their deadlines
  std::list<HalfOpen> half_open_;             // likewise
  std::deque<std::pair<Token, std::string>> refused_;
  std::optional<TimePoint> resume_at_;   // accepts nothing until then
  TimePoint short_from_{}, short_at_{};  // nobody could be let in, first and last
  uint64_t num_strangers_ = 0;
  const Outbox* outbox_ = nullptr;
};

// What memory is shared with members on this host, and why there is none.
struct Sharing {
  size_t ring_bytes = 0;  // each way; 0: TCP is used with everybody
  const Outbox* outbox = nullptr;
  std::string failure;  // set by dial()
};

// Connects to a member on all lanes, one after the other, and greets it (`lane` of
// `hello` is set here). Blocks until `deadline` at most. kRetryLater: nobody answers
// there; kInvalidArgument: refused, with the other's sentence; kProtocol: something
// else answers. Without memory to share, bulk takes the socket.
Result<Connections> dial(const Address& address, Hello hello, const Clock& clock,
                         TimePoint deadline, Sharing& sharing);

}  // namespace aikido::transport

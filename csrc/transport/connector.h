// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Connection setup: the listener that all groups of a process share, and dial().
// Members on the same host are dialled through local_socket.h, and offered shared
// memory for bulk data. The listener lives on the progress thread. dial() blocks its
// caller and must not run there.

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
#include "transport/handshake.h"
#include "transport/loop/event_loop.h"
#include "transport/shm/shared_memory.h"
#include "transport/shm/shm_buffer_pool.h"

namespace aikido::transport {

// Connected, non-blocking socket, with the memory that is shared with the peer. The
// control lane also has the peer's blocks (`shm_buffer_pool.h`).
struct Connection {
  Fd socket;
  std::optional<SharedMemory> memory = {};
  Fd blocks = {};
};
// One connection per lane, indexed by Lane.
using Connections = std::array<Connection, kNumLanes>;

// Byte stream over `connection`. If `shm_pool` is given, it leases the blocks of this
// process; the connection's `blocks` are the peer's. `loop` and `shm_pool` outlive the
// stream.
std::unique_ptr<ByteStream> make_stream(EventLoop* loop, Connection connection,
                                        Lane lane, ShmBufferPool* shm_pool = nullptr);

// Decides which connections are accepted. Progress thread.
class Doorkeeper {
 public:
  virtual ~Doorkeeper() = default;
  // True if the token is of this group. A connection that no doorkeeper knows gets no
  // answer, and may try again.
  virtual bool knows(const Hello& hello) const = 0;
  // Number of connections that are still missing.
  virtual size_t num_expected() const { return 0; }
  // A process, maybe a member, cannot be understood or accepted, for the reason `why`.
  virtual void on_turned_away(const std::string&) {}
  // No connection could be accepted for the handshake timeout, because there is no
  // descriptor or memory for it, with the reason `why`.
  virtual void on_no_room(const std::string&) {}
  // Empty: accepted. Otherwise the sentence of the refusal, which both sides report.
  // Called for each lane.
  virtual std::string refusal(const Hello& hello) = 0;
  // A member was accepted on all lanes.
  virtual void on_connected(Rank rank, Connections connections) = 0;
};

class Listener final : private FdHandler, private Timed {
 public:
  // Listens on a free port of `host` (numeric), and if `is_local` also for processes on
  // this host. A new connection must send its greeting within `handshake_timeout`, and
  // a member must connect on all lanes in that time. kRetryLater or kInvalidArgument if
  // the host cannot be bound.
  static Result<std::unique_ptr<Listener>> open(EventLoop* loop,
                                                const std::string& host,
                                                Duration handshake_timeout,
                                                bool is_local);
  // Members on this host get the blocks of `shm_pool`, which outlives the listener.
  void share(const ShmBufferPool* shm_pool) { shm_pool_ = shm_pool; }
  ~Listener() override;

  const Address& address() const { return address_; }
  // True if members on this host can also connect through a local socket.
  bool is_local() const { return local_.is_open(); }
  // Doorkeepers are asked in the order of add(). Remove a doorkeeper before it is
  // destroyed.
  void add(Doorkeeper* doorkeeper) { doorkeepers_.push_back(doorkeeper); }
  void remove(Doorkeeper* doorkeeper) { std::erase(doorkeepers_, doorkeeper); }
  // Late members of an abandoned group get this sentence. Only the last few groups are
  // remembered.
  void refuse(const Token& token, const std::string& why);
  // Number of connections dropped because they belong to no group of this process.
  uint64_t num_strangers() const { return num_strangers_; }

 private:
  class Guest;
  // A member that has connected on some of its lanes.
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
  TimePoint short_from_{}, short_at_{};  // first and last failed accept
  uint64_t num_strangers_ = 0;
  const ShmBufferPool* shm_pool_ = nullptr;
};

// Memory shared with members on this host, or the reason why there is none.
struct Sharing {
  size_t ring_bytes = 0;  // each direction; 0: TCP with every member
  const ShmBufferPool* shm_pool = nullptr;
  std::string failure;  // set by dial()
};

// Connects to a member on all lanes, one after the other, and sends the greeting
// (dial() sets `lane` of `hello`). Blocks for at most until `deadline`. kRetryLater: no
// answer. kInvalidArgument: refused, with the peer's sentence. kProtocol: the answer is
// not of this protocol. Without shared memory, bulk data uses the socket.
Result<Connections> dial(const Address& address, Hello hello, const Clock& clock,
                         TimePoint deadline, Sharing& sharing);

}  // namespace aikido::transport

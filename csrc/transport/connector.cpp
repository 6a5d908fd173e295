// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "transport/connector.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/check.h"
#include "transport/local_socket.h"
#include "transport/shm/shared_stream.h"
#include "transport/socket_stream.h"

namespace aikido::transport {
namespace {

constexpr size_t kMaxGuests = 256;  // without a greeting, beside expected ones
// Refusals kept for groups that have failed; the oldest is dropped first.
constexpr size_t kMaxRefused = 16;
// Without a free descriptor a connection stays in the kernel's queue, and epoll reports
// it in each turn. So the listener pauses for this time instead of looping.
constexpr Duration kAcceptPause = std::chrono::milliseconds(100);
// If no accept has failed for this time, the next failure counts as a new shortage,
// because no member has waited since the last one.
constexpr Duration kShortAgain = 10 * kAcceptPause;

bool is_short_of_something(int error) {
  return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
}

void set_options(Fd& socket) {
  socket.close_in_children();
  // Frames are gathered before they are written, so Nagle's delay would only cost time.
  const int on = 1;
  ::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

// Waits for `events` on `fd`. Returns false if the deadline passes first.
bool wait_for(const Fd& fd, short events, const Clock& clock, TimePoint deadline) {
  while (true) {
    const Duration left = deadline - clock.now();
    if (left <= Duration::zero()) return false;
    pollfd p{fd.get(), events, 0};
    // At most one minute: an int of milliseconds holds no more than 24 days.
    const auto ms = std::min<int64_t>(left.count() / 1'000'000 + 1, 60'000);
    const int n = ::poll(&p, 1, static_cast<int>(ms));
    if (n > 0) return true;
    if (n < 0 && errno != EINTR) return false;
  }
}

Status failure(const Address& address, Code code, const std::string& what) {
  return {code,
          concat("connecting to ", address.host, " port ", address.port, ": ", what)};
}

Result<Fd> connect_tcp(const Address& address, const Clock& clock, TimePoint deadline) {
  const auto fail = [&](Code code, const std::string& what) {
    return failure(address, code, what);
  };
  auto target = to_socket_address(address);
  if (!target) return target.status();
  Fd socket(::socket(target->storage.ss_family,
                     SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.is_open()) {
    const int error = errno;
    // A shortage in this process does not end by dialling again. Other errors may.
    const bool is_ours = is_short_of_something(error);
    return fail(is_ours ? Code::kInvalidArgument : Code::kRetryLater,
                describe_errno(error));
  }
  set_options(socket);
  if (::connect(socket.get(), target->get(), target->length) == 0) return socket;
  if (errno != EINPROGRESS) return fail(Code::kRetryLater, describe_errno(errno));
  if (!wait_for(socket, POLLOUT, clock, deadline)) {
    return fail(Code::kTimedOut, "Timed out while waiting for it to answer");
  }
  int error = 0;
  socklen_t length = sizeof error;
  ::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &length);
  if (error != 0) return fail(Code::kRetryLater, describe_errno(error));
  return socket;
}

// Sends the greeting and reads the answer. The descriptor `passed` goes with the
// greeting, unless it is -1. A descriptor that comes with the answer is stored in
// `got`.
Status greet(const Fd& socket, const Hello& hello, int passed, Fd& got,
             const Address& address, const Clock& clock, TimePoint deadline) {
  const auto fail = [&](Code code, const std::string& what) {
    return failure(address, code, what);
  };
  if (!send_with(socket, encode(hello), passed)) {
    return fail(Code::kRetryLater, "it hung up before the greeting");
  }
  std::vector<std::byte> answer;
  while (true) {
    auto refusal = decode_welcome(answer);
    if (!refusal) return fail(Code::kProtocol, refusal.status().message());
    if (*refusal) {
      if ((*refusal)->empty()) return Status::ok();
      return {Code::kInvalidArgument, **refusal};
    }
    if (!wait_for(socket, POLLIN, clock, deadline)) {
      return fail(Code::kTimedOut, "Timed out while waiting for its greeting");
    }
    // One byte at a time: frames or a wake-up descriptor may follow the answer, and
    // they belong to the link.
    std::byte next{};
    const ssize_t n = receive_with(socket, {&next, 1}, got);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (n <= 0) {
      return fail(Code::kRetryLater, "it hung up; it may belong to another job");
    }
    answer.push_back(next);
  }
}

}  // namespace

// Accepted connection whose peer has not identified itself yet.
class Listener::Guest final : public FdHandler {
 public:
  Guest(Listener* host, Fd socket, TimePoint deadline)
      : host_(host), socket_(std::move(socket)), deadline_(deadline) {
    host_->loop_->add(socket_.get(), EPOLLIN, this);
  }
  ~Guest() override {
    if (socket_.is_open()) host_->loop_->remove(socket_.get(), this);
  }

  TimePoint deadline() const { return deadline_; }
  bool has_passed() const { return passed_.is_open(); }
  Connection take() {
    host_->loop_->remove(socket_.get(), this);
    return {std::move(socket_), std::move(memory_), std::move(passed_)};
  }
  // Called before the answer. If it fails, bulk data goes through the socket.
  void accept_memory() {
    if (!passed_.is_open()) return;
    auto memory = SharedMemory::open(std::move(passed_));
    if (!memory) return;
    memory->accept();
    memory_.emplace(std::move(*memory));
  }
  // Passes the descriptor `passed` along, unless it is -1, or unless the kernel refuses
  // because too many descriptors are in transit.
  void answer(const std::string& refusal, int passed = -1) {
    // A new connection takes a kilobyte at once. If it does not, it is dropped later.
    const auto bytes = encode_welcome(refusal);
    if (!send_with(socket_, bytes, passed) && passed != -1)
      send_with(socket_, bytes, -1);
  }

 private:
  void on_events(uint32_t) override {
    // Reads exactly the greeting. The bytes after it are frames, which belong to the
    // link.
    if (is_answered_) return wait_for_end();
    while (true) {
      const size_t had = bytes_.size();
      // The version stands at a fixed place, so it is readable even if the rest has
      // another layout.
      if (const auto version = other_version(bytes_)) {
        host_->turn_away(this, *version);
        is_answered_ = true;
        return wait_for_end();
      }
      const auto wanted = missing();
      if (!wanted) return host_->drop(this);
      if (*wanted == 0) break;
      bytes_.resize(had + *wanted);
      const ssize_t n =
          receive_with(socket_, std::span(bytes_).subspan(had, *wanted), passed_);
      bytes_.resize(had + static_cast<size_t>(std::max<ssize_t>(n, 0)));
      if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
      if (n <= 0) return host_->drop(this);
    }
    auto hello = decode_hello(bytes_);
    if (!hello || !*hello) return host_->drop(this);
    host_->admit(this, **hello);
  }

  // Discards all further bytes of a rejected connection. If a socket with unread bytes
  // is closed, the kernel resets the connection, and the peer may lose the answer.
  void wait_for_end() {
    std::array<std::byte, kMaxHelloBytes> rest;
    const ssize_t n = ::recv(socket_.get(), rest.data(), rest.size(), 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n <= 0) host_->drop(this);
  }

  // Number of bytes to read next. 0: the greeting is complete. Empty: it is no
  // greeting.
  std::optional<size_t> missing() const {
    if (!decode_hello(bytes_)) return std::nullopt;
    constexpr size_t kLengthEnd = 12;
    if (bytes_.size() < kLengthEnd) return kLengthEnd - bytes_.size();
    uint32_t length = 0;
    std::copy_n(bytes_.data() + 8, sizeof length,
                reinterpret_cast<std::byte*>(&length));
    return length - bytes_.size();
  }

  Listener* host_;
  Fd socket_;
  Fd passed_;
  std::optional<SharedMemory> memory_;
  TimePoint deadline_;
  std::vector<std::byte> bytes_;
  bool is_answered_ = false;  // and rejected
};

Result<std::unique_ptr<Listener>> Listener::open(EventLoop* loop,
                                                 const std::string& host,
                                                 Duration handshake_timeout,
                                                 bool is_local) {
  auto wanted = to_socket_address({host, 0});
  if (!wanted) return wanted.status();
  Fd socket(::socket(wanted->storage.ss_family,
                     SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  socket.close_in_children();
  if (!socket.is_open() || ::bind(socket.get(), wanted->get(), wanted->length) != 0 ||
      ::listen(socket.get(), 1024) != 0) {
    const int error = errno;
    const char* advice = "; name an interface of this host with AIKIDO_SOCKET_IFNAME";
    return Status(Code::kInvalidArgument,
                  concat("cannot listen on ", host, ": ", describe_errno(error),
                         error == EMFILE ? "" : advice));
  }
  SocketAddress bound;
  bound.length = sizeof bound.storage;
  // The kernel has chosen the port.
  AIKIDO_CHECK(::getsockname(socket.get(), bound.get(), &bound.length) == 0,
               describe_errno(errno));
  const Address address = from_socket_address(bound.storage);
  return std::unique_ptr<Listener>(
      new Listener(loop, std::move(socket), is_local ? listen_beside(address) : Fd(),
                   address, handshake_timeout));
}

Listener::Listener(EventLoop* loop, Fd socket, Fd local, Address address,
                   Duration handshake_timeout)
    : loop_(loop),
      socket_(std::move(socket)),
      local_(std::move(local)),
      address_(std::move(address)),
      handshake_timeout_(handshake_timeout) {
  for (const Fd* own : {&socket_, &local_})
    if (own->is_open()) loop_->add(own->get(), EPOLLIN, this);
  loop_->add_timed(this);
}

Listener::~Listener() {
  for (const Fd* socket : {&socket_, &local_})
    if (socket->is_open()) loop_->remove(socket->get(), this);
  loop_->remove_timed(this);
}

void Listener::on_events(uint32_t) {
  size_t most = kMaxGuests;
  for (const Doorkeeper* doorkeeper : doorkeepers_) most += doorkeeper->num_expected();
  // Accepts only a part of the queue per turn. Otherwise a flood of strangers would
  // push out members before their greetings are read.
  for (const Fd* from : {&local_, &socket_}) {
    for (size_t i = 0; i < kMaxGuests / 4 && from->is_open(); ++i) {
      if (!accept_one(*from, most)) break;
    }
  }
}

// Returns false if the queue is empty or the process lacks a resource.
bool Listener::accept_one(const Fd& from, size_t most) {
  Fd socket(::accept4(from.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!socket.is_open()) {
    if (is_short_of_something(errno)) on_shortage(errno);
    return false;
  }
  short_at_ = TimePoint{};
  // Any user can connect to a local name. Only processes of the same user are members.
  if (&from == &local_ && !is_same_user(socket)) {
    ++num_strangers_;
    return true;
  }
  // The oldest connection without a greeting makes room.
  if (guests_.size() >= most) drop(guests_.front().get());
  set_options(socket);
  guests_.push_back(std::make_unique<Guest>(this, std::move(socket),
                                            loop_->now() + handshake_timeout_));
  return true;
}

// A shortage may pass, and the waiting peers stay in the kernel's queue until then.
// Only a shortage that lasts for a whole handshake time fails the rendezvous.
void Listener::on_shortage(int error) {
  watch_for(0);
  const TimePoint now = loop_->now();
  resume_at_ = now + kAcceptPause;
  if (now - short_at_ > kShortAgain) short_from_ = now;
  short_at_ = now;
  const bool lasts = now - short_from_ >= handshake_timeout_;
  const std::string why =
      concat("no connection can be taken in: ", describe_errno(error));
  for (Doorkeeper* doorkeeper : doorkeepers_) {
    doorkeeper->on_turned_away(why);
    if (lasts) doorkeeper->on_no_room(why);
  }
}

void Listener::watch_for(uint32_t events) {
  for (const Fd* socket : {&socket_, &local_})
    if (socket->is_open()) loop_->modify(socket->get(), events, this);
}

void Listener::on_time(TimePoint now) {
  if (resume_at_ && *resume_at_ <= now) {
    resume_at_.reset();
    watch_for(EPOLLIN);
  }
  while (!guests_.empty() && guests_.front()->deadline() <= now) {
    drop(guests_.front().get());
  }
  // The second lane of this member has not come in time.
  while (!half_open_.empty() && half_open_.front().deadline <= now) {
    ++num_strangers_;
    half_open_.pop_front();
  }
}

std::optional<TimePoint> Listener::next_look() const {
  std::optional<TimePoint> earliest = resume_at_;
  const auto consider = [&](TimePoint t) {
    if (!earliest || t < *earliest) earliest = t;
  };
  if (!guests_.empty()) consider(guests_.front()->deadline());
  if (!half_open_.empty()) consider(half_open_.front().deadline);
  return earliest;
}

void Listener::admit(Guest* guest, const Hello& hello) {
  const auto it = std::find_if(doorkeepers_.begin(), doorkeepers_.end(),
                               [&](Doorkeeper* d) { return d->knows(hello); });
  if (it == doorkeepers_.end()) {
    for (const auto& [token, why] : refused_) {
      if (equal_tokens(token, hello.token)) guest->answer(why);
    }
    return drop(guest);
  }
  const std::string refusal = (*it)->refusal(hello);
  int passed = -1;
  if (refusal.empty() && hello.lane == Lane::kBulk) guest->accept_memory();
  // A peer that has passed its blocks gets the descriptor of the blocks of this
  // process.
  if (refusal.empty() && hello.lane == Lane::kControl && guest->has_passed() &&
      shm_pool_ != nullptr)
    passed = shm_pool_->fd();
  guest->answer(refusal, passed);
  Connection connection = guest->take();
  std::erase_if(guests_, [&](const auto& g) { return g.get() == guest; });
  if (refusal.empty()) join(*it, hello, std::move(connection));
}

// A member that dials a lane again has given up the earlier connection. So the new
// connection replaces it.
void Listener::join(Doorkeeper* doorkeeper, const Hello& hello, Connection connection) {
  auto it = std::find_if(half_open_.begin(), half_open_.end(), [&](const HalfOpen& h) {
    return h.rank == hello.rank && equal_tokens(h.token, hello.token);
  });
  if (it == half_open_.end()) {
    it = half_open_.insert(
        half_open_.end(),
        {hello.token, hello.rank, loop_->now() + handshake_timeout_, {}});
  }
  it->connections[static_cast<size_t>(hello.lane)] = std::move(connection);
  if (!std::all_of(it->connections.begin(), it->connections.end(),
                   [](const Connection& c) { return c.socket.is_open(); })) {
    return;
  }
  Connections connections = std::move(it->connections);
  half_open_.erase(it);
  doorkeeper->on_connected(hello.rank, std::move(connections));
}

void Listener::refuse(const Token& token, const std::string& why) {
  refused_.emplace_back(token, why);
  if (refused_.size() > kMaxRefused) refused_.pop_front();
}

// Both sides learn the reason. The peer reads this version from the answer. The groups
// of this process get it too, because they wait for a member that cannot connect with
// its build.
void Listener::turn_away(Guest* guest, uint16_t version) {
  const std::string why = different_version(version);
  guest->answer(why);
  for (Doorkeeper* doorkeeper : doorkeepers_) doorkeeper->on_turned_away(why);
}

void Listener::drop(Guest* guest) {
  ++num_strangers_;
  std::erase_if(guests_, [&](const auto& g) { return g.get() == guest; });
}

std::unique_ptr<ByteStream> make_stream(EventLoop* loop, Connection connection,
                                        Lane lane, ShmBufferPool* shm_pool) {
  if (connection.memory)
    return std::make_unique<SharedStream>(loop, std::move(connection.socket),
                                          std::move(*connection.memory), shm_pool,
                                          connection.blocks);
  return std::make_unique<SocketStream>(loop, std::move(connection.socket), lane);
}

Result<Connections> dial(const Address& address, Hello hello, const Clock& clock,
                         TimePoint deadline, Sharing& sharing) {
  Connections connections;
  for (size_t lane = 0; lane < kNumLanes; ++lane) {
    auto& [socket, memory, blocks] = connections[lane];
    hello.lane = static_cast<Lane>(lane);
    int passed = -1;
    // The local socket is tried first; it fails if the address is on another host.
    if (sharing.ring_bytes > 0) socket = connect_beside(address);
    if (!socket.is_open()) {
      auto connected = connect_tcp(address, clock, deadline);
      if (!connected) return connected.status();
      socket = std::move(*connected);
    } else if (hello.lane == Lane::kBulk) {
      auto made = SharedMemory::make(sharing.ring_bytes);
      if (made)
        passed = memory.emplace(std::move(*made)).fd().get();
      else
        sharing.failure = made.status().message();
    } else if (sharing.shm_pool != nullptr) {
      passed = sharing.shm_pool->fd();
    }
    AIKIDO_TRY(greet(socket, hello, passed, blocks, address, clock, deadline));
    if (memory && !memory->is_accepted()) {
      sharing.failure = "the other process cannot map it";
      memory.reset();
    }
  }
  return connections;
}

}  // namespace aikido::transport

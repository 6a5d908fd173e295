// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// The progress thread of this process: one event loop, one listener, all groups. Made
// once, shared by the groups, and gone with the last of them. Must not be destroyed on
// its own thread. Callers may lend it a hand (event_loop.h, Note [who runs a turn]):
// while one does, it is the progress thread.

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/own_process.h"
#include "base/status.h"
#include "trace/recorder.h"
#include "transport/connector.h"
#include "transport/event_loop.h"
#include "transport/send_counters.h"

namespace aikido::transport {
class Uplink;
}

namespace aikido::engine {

class Group;

class Engine {
 public:
  // Listens on `host` (numeric address of this machine) and starts the thread.
  // `shared_memory_bytes`: each way, with each member on this host; 0: none.
  // `credit_bytes`: see transport/uplink_credit.h; 0: by the measured rate.
  // kInvalidArgument: the host is not here, or the system gives no descriptors or no
  // thread.
  static Result<std::shared_ptr<Engine>> start(const std::string& host,
                                               Duration handshake_timeout,
                                               size_t shared_memory_bytes,
                                               size_t credit_bytes);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Whether the caller runs on the progress thread of some engine.
  static bool is_progress_thread() { return transport::EventLoop::is_in_turn(); }

  // Whether this process is a child of the one that started the engine: it has a copy
  // of the memory and of the descriptors, but no progress thread. What would talk to
  // the event loop, which the parent shares, must be left alone.
  bool is_forked() const { return !own_process_.is_here(); }

  // Any thread.
  void post(std::function<void()> work) { loop_.post(std::move(work)); }
  // Any thread: the same in two steps, of which the second may do the work itself.
  void enqueue(std::function<void()> work) { loop_.enqueue(std::move(work)); }
  void drive();
  // Any thread: does `work` itself, as EventLoop::drive_with(). True also where it was
  // a defect, which ends the groups: it is not to be done again.
  bool drive_with(const std::function<void()>& work);
  // Any thread but the progress thread: is that until `is_over` or `deadline`, and does
  // not sleep for `spin` after something has happened. Returns at once in a forked
  // child, and if somebody else helps already. Requires: what makes `is_over` true is
  // done on the progress thread.
  void help(const std::function<bool()>& is_over, TimePoint deadline, Duration spin);
  // Any thread but the progress thread: runs `work` there and waits for it. Does
  // nothing in a forked child.
  void run_and_wait(std::function<void()> work);
  const transport::Address& address() const { return listener_->address(); }
  // Members on this host can share memory with this one.
  bool is_local() const { return listener_->is_local(); }
  size_t shared_memory_bytes() const { return shared_memory_bytes_; }
  uint64_t num_strangers();
  // Of all groups of this process. Any thread.
  const std::shared_ptr<trace::Recorder>& recorder() const { return recorder_; }

  // Any thread.
  const transport::SendCounters& send_counters() const;

  // Progress thread.
  transport::EventLoop& loop() { return loop_; }
  transport::Uplink& uplink() { return *uplink_; }
  // Null: there is no memory for it, or none is shared. Its fd() is any thread's.
  transport::Outbox* outbox() { return outbox_.get(); }
  transport::Listener& listener() { return *listener_; }
  void add(Group* group);
  void remove(Group* group);

 private:
  explicit Engine(size_t credit_bytes);
  void run();
  void end_groups(const std::exception& defect);

  const std::shared_ptr<trace::Recorder> recorder_ =
      std::make_shared<trace::Recorder>();
  transport::EventLoop loop_;
  std::unique_ptr<transport::Uplink> uplink_;
  std::unique_ptr<transport::Outbox> outbox_;
  std::unique_ptr<transport::Listener> listener_;
  std::vector<Group*> groups_;
  std::thread thread_;
  size_t shared_memory_bytes_ = 0;
  OwnProcess own_process_;
};

}  // namespace aikido::engine

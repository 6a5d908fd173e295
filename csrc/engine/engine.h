// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Progress thread of this process: one event loop, one listener, all groups. It is made
// once, shared by the groups, and destroyed with the last of them. It must not be
// destroyed on its own thread. Callers may run turns of the loop (event_loop.h, Note
// [threads that run turns]). A caller that runs a turn counts as the progress thread
// for that time.

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
#include "transport/loop/event_loop.h"
#include "transport/schedule/send_counters.h"

namespace aikido::transport {
class Uplink;
}

namespace aikido::engine {

class Group;

class Engine {
 public:
  // Listens on `host` (a numeric address of this machine) and starts the thread.
  // `shared_memory_bytes`: bytes in each direction, with each member on this host; 0:
  // none. `credit_bytes`: see transport/schedule/inflight_limit.h; 0: derived from the
  // measured rate. kInvalidArgument: `host` is no address of this machine, or the
  // system provides no descriptors or no thread.
  static Result<std::shared_ptr<Engine>> start(const std::string& host,
                                               Duration handshake_timeout,
                                               size_t shared_memory_bytes,
                                               size_t credit_bytes);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // True if the caller runs on the progress thread of some engine.
  static bool is_progress_thread() { return transport::EventLoop::is_in_turn(); }

  // True if this process is a child of the process that started the engine. The child
  // has copies of the memory and of the descriptors, but no progress thread. It must
  // not use the event loop, which it shares with the parent.
  bool is_forked() const { return !own_process_.is_here(); }

  // Any thread.
  void post(std::function<void()> work) { loop_.post(std::move(work)); }
  // Any thread: as post(), in two steps. The second step may run the work on the
  // calling thread.
  void enqueue(std::function<void()> work) { loop_.enqueue(std::move(work)); }
  void drive();
  // Any thread: runs `work` on the calling thread, as EventLoop::drive_with(). Also
  // returns true if `work` had a defect, which ends the groups. So `work` must not be
  // repeated.
  bool drive_with(const std::function<void()>& work);
  // Any thread except the progress thread: acts as the progress thread until `is_over`
  // or `deadline`. Does not sleep for `spin` after an event. Returns at once in a
  // forked child, and if another thread already helps. Requires: the work that makes
  // `is_over` true runs on the progress thread.
  void help(const std::function<bool()>& is_over, TimePoint deadline, Duration spin);
  // Any thread except the progress thread: runs `work` on the progress thread and waits
  // for it. Does nothing in a forked child.
  void run_and_wait(std::function<void()> work);
  const transport::Address& address() const { return listener_->address(); }
  // True if members on this host can share memory with this member.
  bool is_local() const { return listener_->is_local(); }
  size_t shared_memory_bytes() const { return shared_memory_bytes_; }
  uint64_t num_strangers();
  // Recorder of all groups of this process. Any thread.
  const std::shared_ptr<trace::Recorder>& recorder() const { return recorder_; }

  // Any thread.
  const transport::SendCounters& send_counters() const;

  // Progress thread.
  transport::EventLoop& loop() { return loop_; }
  transport::Uplink& uplink() { return *uplink_; }
  // Null: there is no memory for it, or no memory is shared. Any thread may call fd()
  // of it.
  transport::ShmBufferPool* shm_pool() { return shm_pool_.get(); }
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
  std::unique_ptr<transport::ShmBufferPool> shm_pool_;
  std::unique_ptr<transport::Listener> listener_;
  std::vector<Group*> groups_;
  std::thread thread_;
  size_t shared_memory_bytes_ = 0;
  OwnProcess own_process_;
};

}  // namespace aikido::engine

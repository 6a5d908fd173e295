// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "engine/engine.h"

#include <pthread.h>

#include <future>
#include <system_error>
#include <utility>

#include "engine/group.h"
#include "transport/schedule/uplink.h"

namespace aikido::engine {

Result<std::shared_ptr<Engine>> Engine::start(const std::string& host,
                                              Duration handshake_timeout,
                                              size_t shared_memory_bytes,
                                              size_t credit_bytes) try {
  std::shared_ptr<Engine> engine(new Engine(credit_bytes));
  engine->shared_memory_bytes_ = shared_memory_bytes;
  auto listener = transport::Listener::open(&engine->loop_, host, handshake_timeout,
                                            shared_memory_bytes > 0);
  if (!listener) return listener.status();
  engine->listener_ = std::move(*listener);
  if (engine->is_local()) {
    // Without blocks all payloads go through the rings.
    if (auto shm_pool = transport::ShmBufferPool::make())
      engine->shm_pool_ = std::move(*shm_pool);
    engine->listener_->share(engine->shm_pool_.get());
  }
  engine->thread_ = std::thread([e = engine.get()] { e->run(); });
  return engine;
} catch (const std::system_error& error) {
  return Status(Code::kInvalidArgument,
                concat("this process can have no progress thread: ",
                       describe_errno(error.code().value())));
}

Engine::Engine(size_t credit_bytes)
    : uplink_(std::make_unique<transport::Uplink>(&loop_, credit_bytes)) {}

const transport::SendCounters& Engine::send_counters() const {
  return uplink_->counters();
}

Engine::~Engine() {
  if (is_forked()) {
    thread_.detach();
    [[maybe_unused]] const auto* leaked = listener_.release();
    // After a fork, its address range may contain another mapping.
    [[maybe_unused]] const auto* unmapped = shm_pool_.release();
    return;
  }
  loop_.stop();
  if (thread_.joinable()) thread_.join();
  listener_.reset();
}

void Engine::run() {
  ::pthread_setname_np(::pthread_self(), "aikido");
  while (true) {
    try {
      loop_.run();
      return;
    } catch (const std::exception& defect) {
      end_groups(defect);
    }
  }
}

// Last resort on the progress thread: a defect ends the groups and not the process.
void Engine::end_groups(const std::exception& defect) {
  const Status why(Code::kInternal, defect.what());
  loop_.between_turns([&] {
    for (Group* group : groups_) group->abort(why);
  });
}

void Engine::drive() {
  try {
    loop_.drive();
  } catch (const std::exception& defect) {
    end_groups(defect);
  }
}

bool Engine::drive_with(const std::function<void()>& work) {
  try {
    return loop_.drive_with(work);
  } catch (const std::exception& defect) {
    end_groups(defect);
    return true;
  }
}

void Engine::help(const std::function<bool()>& is_over, TimePoint deadline,
                  Duration spin) {
  if (is_forked()) return;
  try {
    loop_.help(is_over, deadline, spin);
  } catch (const std::exception& defect) {
    end_groups(defect);
  }
}

void Engine::run_and_wait(std::function<void()> work) {
  if (is_forked()) return;
  std::promise<void> done;
  loop_.post([&] {
    try {
      work();
      // The waiting thread must return before the exception ends the groups.
    } catch (...) {
      done.set_value();
      throw;
    }
    done.set_value();
  });
  done.get_future().wait();
}

uint64_t Engine::num_strangers() {
  uint64_t count = 0;
  run_and_wait([&] { count = listener_->num_strangers(); });
  return count;
}

void Engine::add(Group* group) {
  groups_.push_back(group);
  loop_.add_timed(group);
}

void Engine::remove(Group* group) {
  std::erase(groups_, group);
  loop_.remove_timed(group);
}

}  // namespace aikido::engine

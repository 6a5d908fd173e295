// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "c10d/device/transfers.h"

#include <c10/core/StreamGuard.h>
#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <thread>
#include <utility>

#include "base/text.h"
#include "c10d/common/error.h"

namespace aikido::adapter {
namespace {

using std::chrono::microseconds;

// Pause between two checks of a mark: an eighth of the time so far, within these
// limits.
constexpr Duration kShortestPause = microseconds(5);
constexpr Duration kLongestPause = microseconds(200);

std::string sentence(const CopySite& site, const std::string& why) {
  return concat(site.what, " of ", site.bytes, " bytes of ", site.device.str(), ": ",
                why);
}

}  // namespace

Mark Mark::of(const c10::Stream& stream) {
  auto event = std::make_shared<c10::Event>(stream.device_type());
  event->record(stream);
  return {stream.device(), std::move(event)};
}

c10::Stream current_stream(c10::Device device) {
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
}

void stay_with_current_stream(const at::Tensor& tensor) {
  const c10::Device device = tensor.device();
  c10::impl::VirtualGuardImpl(device.type())
      .recordDataPtrOnStream(tensor.storage().data_ptr(), current_stream(device));
}

void rethrow(const CopySite& site) {
  try {
    throw;
  } catch (const c10::OutOfMemoryError& error) {
    throw c10::OutOfMemoryError({"aikido", "", 0},
                                sentence(site, error.what_without_backtrace()));
  } catch (const Error&) {
    throw;
  } catch (const c10::Error& error) {
    raise({Code::kAborted, sentence(site, error.what_without_backtrace())});
  } catch (const std::exception& error) {
    raise({Code::kAborted, sentence(site, error.what())});
  }
}

// ---- copies up ----

// Made for each group, so that groups do not hold up each other.
Transfers::Streams Transfers::streams(c10::Device device) {
  const std::lock_guard lock(mutex_);
  for (const Streams& known : streams_)
    if (known.device == device) return known;
  const c10::impl::VirtualGuardImpl guard(device.type());
  streams_.push_back({device, guard.getStreamFromGlobalPool(device),
                      guard.getStreamFromGlobalPool(device)});
  return streams_.back();
}

void Transfers::queue_up(c10::Device device, const std::function<void()>& queue) {
  const c10::StreamGuard guard(up(device));
  has_copied_up_ = true;
  queue();
}

void Transfers::copy_up(const at::Tensor& from, const at::Tensor& to,
                        const CopySite& site) {
  try {
    queue_up(site.device, [&] {
      to.copy_(from, /*non_blocking=*/true);
      // Its owner may drop it before the stream has reached it. The copy itself takes
      // care of pinned memory.
      stay_with_current_stream(to);
    });
  } catch (...) {
    rethrow(site);
  }
}

void Transfers::wait_for_copies_up() {
  std::vector<Streams> all;
  {
    const std::lock_guard lock(mutex_);
    all = streams_;
  }
  for (const Streams& streams : all) {
    try {
      streams.up.synchronize();
    } catch (...) {
      rethrow({"a copy from the host", streams.device, 0});
    }
  }
}

// ---- copies down ----

// Note [thread that checks for the end of copies]
// c10 has no callback of a stream. A wait in the driver has no deadline, and by default
// it spins on a core that the progress thread needs. So one thread checks the first
// mark again and again. Its pauses grow with the elapsed time, so they add at most an
// eighth. The thread ends with its Transfers, but nobody waits for that, because the
// last release may be on the progress thread, for which this thread may be waiting.
class Transfers::Watcher : public std::enable_shared_from_this<Transfers::Watcher> {
 public:
  struct WatchedCopy {
    std::vector<Mark> marks;
    CopySite site;
    TimePoint deadline;
    std::function<void(const Status&)> then;
  };

  void push(WatchedCopy watch) {
    {
      const std::lock_guard lock(mutex_);
      watches_.push_back(std::move(watch));
      if (!std::exchange(is_started_, true))
        std::thread([self = shared_from_this()] { self->loop(); }).detach();
    }
    wake_.notify_one();
  }

  // Watched marks are still watched to their end.
  void stop() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    wake_.notify_one();
  }

 private:
  void loop() {
    ::pthread_setname_np(::pthread_self(), "aikido-copies");
    std::unique_lock lock(mutex_);
    while (true) {
      wake_.wait(lock, [this] { return stop_ || !watches_.empty(); });
      if (watches_.empty()) return;
      WatchedCopy first = std::move(watches_.front());
      watches_.pop_front();
      lock.unlock();
      first.then(wait_for(first));
      first.then = nullptr;
      lock.lock();
    }
  }

  static Status wait_for(const WatchedCopy& watch) {
    const TimePoint begin = SystemClock().now();
    try {
      for (const Mark& mark : watch.marks) {
        while (!mark.event->query()) {
          const TimePoint now = SystemClock().now();
          if (now >= watch.deadline) {
            return {Code::kTimedOut,
                    sentence(watch.site,
                             "Timed out; the streams of the device have "
                             "not come to it within the time-out of the "
                             "call, as behind a kernel that does not end")};
          }
          std::this_thread::sleep_for(
              std::clamp((now - begin) / 8, kShortestPause, kLongestPause));
        }
      }
    } catch (const c10::Error& error) {
      return {Code::kAborted, sentence(watch.site, error.what_without_backtrace())};
    } catch (const std::exception& error) {
      return {Code::kAborted, sentence(watch.site, error.what())};
    }
    return Status::ok();
  }

  std::mutex mutex_;
  std::condition_variable wake_;
  // Guarded by mutex_.
  std::deque<WatchedCopy> watches_;
  bool is_started_ = false, stop_ = false;
};

Transfers::Transfers() : watcher_(std::make_shared<Watcher>()) {}

Transfers::~Transfers() {
  watcher_->stop();
}

void Transfers::watch(std::vector<Mark> marks, const CopySite& site, TimePoint deadline,
                      std::function<void(const Status&)> then) {
  watcher_->push({std::move(marks), site, deadline, std::move(then)});
}

}  // namespace aikido::adapter

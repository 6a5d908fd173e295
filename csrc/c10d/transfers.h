// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Copies between devices and the host, on streams of their own, and who is told when
// they are through. Knows devices by c10's generic interface only, so it needs no CUDA
// toolkit. One for each backend; without tensors on devices it has no stream and no
// thread. All methods from any thread.

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <atomic>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"

namespace aikido::adapter {

// The moment when a stream of a device has passed a point.
struct Mark {
  c10::Device device;
  std::shared_ptr<c10::Event> event;

  // Behind what is queued on `stream` now.
  static Mark of(const c10::Stream& stream);
  // `stream` goes on once the mark has been passed; the host does not wait.
  void hold_up(const c10::Stream& stream) const { event->block(stream); }
};

c10::Stream current_stream(c10::Device device);
// Its memory is not used again before the stream that is now the current one of its
// device has come to the moment when it is freed.
void stay_with_current_stream(const at::Tensor& tensor);

// What to say of a copy that fails.
struct CopySite {
  std::string what;  // "all_reduce on rank 0: the copy to the host"
  c10::Device device;
  size_t bytes = 0;
};

// Rethrows what is being handled, with call, device and size: want of memory as torch's
// own class, everything else as Error. Requires: inside of a catch.
[[noreturn]] void rethrow(const CopySite& site);

class Transfers {
 public:
  Transfers();
  ~Transfers();
  Transfers(const Transfers&) = delete;
  Transfers& operator=(const Transfers&) = delete;

  // Copies to the host; copies to the device. Beside each other, and beside the streams
  // of the user.
  c10::Stream down(c10::Device device) { return streams(device).down; }
  c10::Stream up(c10::Device device) { return streams(device).up; }

  // Calls `then` on a thread of its own once `marks` have been passed, or cannot be, or
  // at the `deadline`: the others on failure. In the order of the calls of watch().
  void watch(std::vector<Mark> marks, const CopySite& site, TimePoint deadline,
             std::function<void(const Status&)> then);

  // What `queue` queues on the current stream, goes to the stream for copies up of
  // `device`, and counts as one.
  void queue_up(c10::Device device, const std::function<void()>& queue);
  // `to`, on a device, gets what `from`, on the host, has: behind what its stream for
  // copies up has to do. Keeps the memory of both for so long.
  void copy_up(const at::Tensor& from, const at::Tensor& to, const CopySite& site);
  bool has_copied_up() const { return has_copied_up_; }
  // Blocks until all copies up are through.
  void wait_for_copies_up();

 private:
  struct Streams {
    c10::Device device;
    c10::Stream down, up;
  };
  class Watcher;
  Streams streams(c10::Device device);

  std::mutex mutex_;
  std::vector<Streams> streams_;  // guarded by mutex_
  std::atomic<bool> has_copied_up_ = false;
  // Its thread holds it too.
  std::shared_ptr<Watcher> watcher_;
};

}  // namespace aikido::adapter

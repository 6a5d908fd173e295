// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Copies between devices and the host, on separate streams, with a callback at their
// end. Uses devices only by c10's generic interface, so it needs no CUDA toolkit. One
// for each backend. Without tensors on devices it has no stream and no thread. All
// methods from any thread.

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

// Point in the stream of a device.
struct Mark {
  c10::Device device;
  std::shared_ptr<c10::Event> event;

  // The point behind all work that is now queued on `stream`.
  static Mark of(const c10::Stream& stream);
  // Makes `stream` wait until the mark is passed. The host does not wait.
  void hold_up(const c10::Stream& stream) const { event->block(stream); }
};

c10::Stream current_stream(c10::Device device);
// Keeps the memory of a freed tensor until the current stream of its device has done
// the work that was queued before the free.
void stay_with_current_stream(const at::Tensor& tensor);

// Description of a copy for error texts.
struct CopySite {
  std::string what;  // "all_reduce on rank 0: the copy to the host"
  c10::Device device;
  size_t bytes = 0;
};

// Rethrows the current exception with call, device and size. Lack of memory becomes
// torch's own class, all else Error. Requires: inside a catch block.
[[noreturn]] void rethrow(const CopySite& site);

class Transfers {
 public:
  Transfers();
  ~Transfers();
  Transfers(const Transfers&) = delete;
  Transfers& operator=(const Transfers&) = delete;

  // Streams for copies to the host and to the device. They are independent of each
  // other and of the user's streams.
  c10::Stream down(c10::Device device) { return streams(device).down; }
  c10::Stream up(c10::Device device) { return streams(device).up; }

  // Calls `then` on a separate thread once `marks` are passed, have failed, or at the
  // `deadline`. The last two are failures. In the order of the calls of watch().
  void watch(std::vector<Mark> marks, const CopySite& site, TimePoint deadline,
             std::function<void(const Status&)> then);

  // Work that `queue` puts on the current stream goes to the stream for copies up of
  // `device`, and counts as one.
  void queue_up(c10::Device device, const std::function<void()>& queue);
  // Copies `from`, on the host, to `to`, on a device, behind the work of the stream for
  // copies up. Keeps the memory of both until then.
  void copy_up(const at::Tensor& from, const at::Tensor& to, const CopySite& site);
  bool has_copied_up() const { return has_copied_up_; }
  // Blocks until all copies up are done.
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

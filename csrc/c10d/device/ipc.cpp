// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "c10d/device/ipc.h"

#include <c10/core/StreamGuard.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <map>
#include <optional>

#include "base/message_tags.h"
#include "c10d/common/call_of.h"
#include "c10d/common/error.h"

namespace aikido::adapter {
namespace {

// Never destroyed, because the destruction of a Python object takes Python's lock.
Ipc::Finder& ipc_finder() {
  static auto* finder = new Ipc::Finder;
  return *finder;
}

// Never destroyed: its mappings end with the process.
struct Offered {
  std::mutex mutex;
  std::map<c10::DeviceType, std::shared_ptr<DeviceMemory>> by_type;
};
Offered& offered() {
  static auto* offered = new Offered;
  return *offered;
}

// Works whose tensors a leader may still write to.
class Kept {
 public:
  void add(c10::intrusive_ptr<AikidoWork> work, TimePoint until) {
    const std::lock_guard lock(mutex_);
    works_.emplace_back(until, std::move(work));
  }
  // Releases the works whose time has passed. Not on the progress thread.
  void purge() {
    std::vector<Work> over;
    const std::lock_guard lock(mutex_);
    const auto first_over = std::partition(
        works_.begin(), works_.end(),
        [now = SystemClock().now()](const Work& work) { return work.first > now; });
    std::move(first_over, works_.end(), std::back_inserter(over));
    works_.erase(first_over, works_.end());
  }

 private:
  using Work = std::pair<TimePoint, c10::intrusive_ptr<AikidoWork>>;
  std::mutex mutex_;
  std::vector<Work> works_;  // guarded by mutex_
};
Kept& kept() {
  static auto* kept = new Kept;
  return *kept;
}

// A small kernel takes less time than waking the thread that watches longer ones.
bool passes_soon(const Mark& mark) {
  const SystemClock clock;
  const TimePoint end = clock.now() + std::chrono::microseconds(50);
  do {
    if (mark.event->query()) return true;
  } while (clock.now() < end);
  return false;
}

// Status for the current exception.
Status failure_at(const CopySite& site) {
  try {
    rethrow(site);
  } catch (const Error& error) {
    return error.status();
  } catch (const c10::Error& error) {
    return {Code::kAborted, error.what_without_backtrace()};
  }
}

}  // namespace

std::shared_ptr<DeviceMemory> DeviceMemory::of(c10::DeviceType type) {
  const std::lock_guard lock(offered().mutex);
  const auto it = offered().by_type.find(type);
  return it != offered().by_type.end() ? it->second : nullptr;
}

void DeviceMemory::offer(c10::DeviceType type, std::shared_ptr<DeviceMemory> memory) {
  const std::lock_guard lock(offered().mutex);
  offered().by_type[type] = std::move(memory);
}

void Ipc::set_finder(Finder next) {
  ipc_finder() = std::move(next);
}

bool Ipc::find(const BackendPtr& outer, c10::Device device, Milliseconds limit) {
  const std::lock_guard finding(finding_);
  {
    const std::lock_guard lock(mutex_);
    if (is_found_) return is_shared_;
  }
  const bool is_shared = ipc_finder()(outer, setting_, device, limit);
  const std::lock_guard lock(mutex_);
  is_found_ = true;
  is_shared_ = is_shared;
  device_ = device;
  return is_shared;
}

std::shared_ptr<void> Ipc::begin() {
  ++open_->num_calls;
  const std::lock_guard lock(open_->mutex);
  ++open_->num;
  return {nullptr, [open = open_](void*) {
            const std::lock_guard inner(open->mutex);
            --open->num;
            open->over.notify_all();
          }};
}

void Ipc::wait_for_calls(Duration limit) {
  std::unique_lock lock(open_->mutex);
  open_->over.wait_for(lock, limit, [this] { return open_->num == 0; });
}

c10::Device Ipc::device() const {
  const std::lock_guard lock(mutex_);
  return device_;
}

// ---- one call ----

CopySite ipc_site(int rank, const at::Tensor& tensor) {
  return {
      concat("all_reduce on rank ", rank, ": the sum in memory that all ranks share"),
      tensor.device(), tensor.nbytes()};
}

IpcCall::IpcCall(What what, const at::Tensor& tensor,
                 const DeviceMemory::IpcHandle& handle,
                 std::shared_ptr<Transfers> transfers)
    : what_(std::move(what)),
      transfers_(std::move(transfers)),
      device_memory_(DeviceMemory::of(tensor.device().type())),
      site_(ipc_site(what_.rank, tensor)),
      data_(tensor.mutable_data_ptr()),
      offers_(leads() ? static_cast<size_t>(what_.size) : 1) {
  if (!leads()) offers_[0] = {handle, what_.deadline.time_since_epoch().count()};
}

void IpcCall::add_blocks(collectives::LocalCall& local) {
  for (int r = 0; r < what_.size; ++r) {
    if (r == what_.rank) continue;
    collectives::OutBlock out{Rank(r)};
    collectives::InBlock in{Rank(r)};
    if (leads()) {
      in.data = reinterpret_cast<std::byte*>(&offers_[static_cast<size_t>(r)]);
      in.bytes = sizeof(Offer);
    } else if (r == kLeader) {
      out.data = reinterpret_cast<const std::byte*>(offers_.data());
      out.bytes = sizeof(Offer);
    }
    local.out_blocks.push_back(out);
    local.in_blocks.push_back(in);
  }
}

// From here on, a later barrier waits for the owed result: all have called, so it needs
// no further action of a user.
void IpcCall::on_called(const Status& status, Seq seq) {
  seq_ = seq;
  if (status.has_failed()) return;
  is_owed_ = true;
  ++*what_.owed;
}

void IpcCall::go_on(const Status& status, CommunicatorPtr communicator) {
  if (!leads()) return receive(status, communicator);
  communicator_ = std::move(communicator);
  lead(status);
}

int32_t IpcCall::tag() const {
  return kIpcTags.cyclic(seq_.value);
}

void IpcCall::purge() {
  kept().purge();
}

// ---- of rank 0 ----

void IpcCall::lead(const Status& status) {
  if (status.has_failed()) return conclude(status);
  std::optional<Mark> mark;
  Status failure;
  bool is_through = false;
  try {
    mark = queue();
    is_through = passes_soon(*mark);
  } catch (...) {
    failure = failure_at(site_);
  }
  if (failure.has_failed() || is_through) return conclude(failure);
  transfers_->watch(
      {*mark}, site_, first_deadline_ + kGrace / 2,
      [self = shared_from_this()](const Status& passed) { self->conclude(passed); });
}

Mark IpcCall::queue() {
  const c10::Stream stream = transfers_->up(site_.device);
  const c10::StreamGuard guard(stream);
  std::vector<void*> buffers{data_};
  first_deadline_ = what_.deadline;
  for (size_t r = 1; r < offers_.size(); ++r) {
    buffers.push_back(device_memory_->open(site_.device, offers_[r].handle));
    first_deadline_ =
        std::min(first_deadline_, TimePoint(Duration(offers_[r].deadline)));
  }
  if (SystemClock().now() >= first_deadline_)
    raise({Code::kTimedOut,
           concat(site_.what, " has not begun within the time-out of the call")});
  device_memory_->reduce_to_all(what_.call.op, what_.call.dtype, buffers,
                                what_.call.count,
                                scale_of(what_.call, what_.size, what_.size), stream);
  end_message_.is_running = true;
  return Mark::of(stream);
}

void IpcCall::conclude(const Status& status) {
  end_message_.is_running = end_message_.is_running && status.has_failed();
  end_message_.culprit =
      (status.culprit() == kNoRank ? Rank(kLeader) : status.culprit()).value;
  end_message_.code = status.code();
  status.message().copy(end_message_.text, sizeof end_message_.text - 1);
  if (end_message_.is_running) kept().add(what_.work, TimePoint::max());
  const auto communicator = std::move(communicator_);
  if (!communicator) return finish(status);
  num_unsent_ = what_.size - 1;
  const auto self = shared_from_this();
  for (int r = 1; r < what_.size; ++r) {
    collectives::SendCall call;
    call.to = Rank(r);
    call.tag = tag();
    call.data = reinterpret_cast<const std::byte*>(&end_message_);
    call.bytes = sizeof end_message_;
    call.priority = what_.priority;
    call.deadline = SystemClock().now() + kGrace;
    call.keep_alive = self;
    // A rank that does not get the end message reports that itself.
    call.on_done = [self, status](const Status&, Rank) {
      self->on_end_message_sent(status);
    };
    communicator->send_ahead(std::move(call));
  }
}

// This rank may give the group up next, and the others have their end messages by then.
void IpcCall::on_end_message_sent(const Status& status) {
  if (--num_unsent_ == 0) finish(status);
}

// ---- of the others ----

// Also if the call has failed, which its work reports at once.
void IpcCall::receive(const Status& status, const CommunicatorPtr& communicator) {
  const TimePoint soon = SystemClock().now() + kGrace;
  if (status.has_failed()) end(Status::ok());
  if (!communicator) {
    kept().add(what_.work, soon);
    return finish({Code::kAborted, concat(site_.what, ": its group is gone")});
  }
  collectives::ReceiveCall call;
  call.from = Rank(kLeader);
  call.tag = tag();
  call.data = reinterpret_cast<std::byte*>(&end_message_);
  call.bytes = sizeof end_message_;
  call.deadline = status.is_ok() ? what_.deadline + kGrace : soon;
  call.on_done = [self = shared_from_this()](const Status& received, Rank) {
    self->end_receive(received);
  };
  communicator->receive(std::move(call));
}

void IpcCall::end_receive(const Status& status) {
  if (status.has_failed()) {
    kept().add(what_.work, SystemClock().now() + kGrace);
    return finish({status.code(),
                   concat(site_.what, " is made by rank ", kLeader,
                          ", which has not said that it is there: ", status.message()),
                   status.culprit()});
  }
  if (end_message_.is_running) kept().add(what_.work, TimePoint::max());
  if (end_message_.code == Code::kOk) return finish(Status::ok());
  end_message_.text[sizeof end_message_.text - 1] = 0;
  finish({end_message_.code, end_message_.text, Rank(end_message_.culprit)});
}

// ---- all ----

// Ends the call. Only the first call of this function has an effect.
void IpcCall::end(const Status& status) {
  if (std::exchange(is_over_, true)) return;
  AikidoWork::complete_part(what_.work, status);
  // After the copies that the end of the work still makes.
  what_.token.reset();
  if (!is_owed_) return;
  --*what_.owed;
  what_.owed->notify_all();
}

// Ends the call when no process writes to the tensor any more, or when another object
// keeps the tensor. The work may hold the last reference to this object.
void IpcCall::finish(const Status& status) {
  const auto self = shared_from_this();
  end(status);
  what_.work.reset();
}

}  // namespace aikido::adapter

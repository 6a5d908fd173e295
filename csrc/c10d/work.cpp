// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "c10d/work.h"

#include <ATen/record_function.h>
#include <c10/core/StreamGuard.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <algorithm>
#include <cstring>
#include <utility>

#include "c10d/common/error.h"

namespace aikido::adapter {
namespace {

::c10d::WorkResult work_result(const Status& status) {
  if (status.is_ok()) return ::c10d::WorkResult::SUCCESS;
  return status.code() == Code::kTimedOut ? ::c10d::WorkResult::TIMEOUT
                                          : ::c10d::WorkResult::COMM_ERROR;
}

// Unique, unlike the address of a work.
uint64_t next_key() {
  static std::atomic<uint64_t> last{0};
  return ++last;
}

// Span of the time that a user's thread waits, as a part of its step.
class WaitSpan {
 public:
  WaitSpan(trace::Recorder& recorder, bool is_due)
      : recorder_(recorder), begin_ns_(is_due ? trace::to_ns(recorder.now()) : 0) {}
  ~WaitSpan() {
    if (begin_ns_ == 0) return;
    trace::Span span;
    span.name = recorder_.name("wait");
    span.begin_ns = begin_ns_;
    span.end_ns = trace::to_ns(recorder_.now());
    span.step = recorder_.step();
    recorder_.record(span);
  }
  WaitSpan(const WaitSpan&) = delete;
  WaitSpan& operator=(const WaitSpan&) = delete;

 private:
  trace::Recorder& recorder_;
  const int64_t begin_ns_;
};

TimePoint deadline_of(Milliseconds timeout) {
  return timeout == kNoTimeout ? TimePoint::max()
                               : SystemClock().now() + bounded(timeout);
}

// In the unit of c10d. kNoTimeout is zero, so an expired deadline becomes one
// millisecond.
Milliseconds left_until(TimePoint deadline) {
  if (deadline == TimePoint::max()) return kNoTimeout;
  const auto left = std::chrono::ceil<Milliseconds>(deadline - SystemClock().now());
  return std::max(left, Milliseconds(1));
}

// "all_reduce" for "aikido:all_reduce".
const char* operation_of(const char* title) {
  return std::strchr(title, ':') + 1;
}

}  // namespace

// Without a profiler torch would still prepare a record. getStepCallbacksUnlessEmpty()
// is not used for the check, because it consumes turns of sampling profilers.
AikidoWork::AikidoWork(int rank, ::c10d::OpType type, const char* title,
                       const std::vector<at::Tensor>& inputs,
                       std::shared_ptr<const Services> services)
    : AikidoWork(at::hasCallbacks() ? &inputs : nullptr, rank, type, title,
                 std::move(services)) {}

AikidoWork::AikidoWork(const std::vector<at::Tensor>* recorded, int rank,
                       ::c10d::OpType type, const char* title,
                       std::shared_ptr<const Services> services)
    : ::c10d::Work(rank, type, recorded != nullptr ? title : nullptr,
                   recorded != nullptr ? std::optional(*recorded) : std::nullopt),
      title_(title),
      services_(std::move(services)),
      key_(next_key()),
      started_(SystemClock().now()),
      is_timed_(services_->hooks->is_timing()) {
  services_->hooks->on_started();
}

// Note [tensors and the progress thread]
// Releasing a tensor that Python also knows takes Python's lock, even if it is not the
// last reference. The progress thread must never wait for that lock: a late caller may
// hold it while the others need this member as owner. So all tensors of a call hang on
// its Work, and the engine holds only Works. If a Work ends on the progress thread,
// because its user dropped it early, it hands its tensors to the callback thread.
AikidoWork::~AikidoWork() {
  if (!engine::Engine::is_progress_thread()) return;
  services_->callback_thread->run([message = std::move(message_),
                                   rest = std::move(rest_),
                                   futures = std::move(futures_)]() mutable {
    message.reset();
    rest.reset();
    futures.reset();
  });
}

void AikidoWork::open_message(const at::Tensor& tensor, bool is_received) {
  if (!is_open_batch()) {
    message_ = tensor;
    ++num_open_;
    return;
  }
  Memory memory;
  (is_received ? memory.results : memory.held) = {tensor};
  open(std::move(memory));
}

void AikidoWork::open(Memory memory) {
  if (!rest_) rest_ = std::make_shared<Rest>();
  for (const at::Tensor& result : memory.results) {
    if (result.device().is_cpu()) continue;
    const std::lock_guard lock(mutex_);
    auto& devices = rest_->devices;
    if (std::find(devices.begin(), devices.end(), result.device()) == devices.end())
      devices.push_back(result.device());
  }
  const int num_parts = memory.num_parts;
  rest_->memory.add(std::move(memory));
  num_open_ += 1 + num_parts;
}

void AikidoWork::close(c10::intrusive_ptr<AikidoWork> self) {
  end_one(std::move(self), Status::ok());
}

void AikidoWork::end_batch(c10::intrusive_ptr<AikidoWork> self) {
  if (self->batch_of_.exchange(0) != 0) close(std::move(self));
}

void AikidoWork::end_batch_of_this_thread() {
  if (batch_of_ == this_thread_number())
    end_batch(c10::intrusive_ptr<AikidoWork>::reclaim_copy(this));
}

void AikidoWork::follow(AikidoWork& work, const c10::intrusive_ptr<AikidoWork>& next) {
  const std::lock_guard lock(work.mutex_);
  if (work.completed_) return;
  ++next->num_open_;
  next->follows_ = true;
  work.next_ = next;
}

void AikidoWork::complete(c10::intrusive_ptr<AikidoWork> self, const Status& status,
                          const collectives::Outcome& outcome) {
  {
    const std::lock_guard lock(self->mutex_);
    if (!self->failure_.has_failed()) self->rest_->outcome = outcome;
  }
  end_one(std::move(self), status);
}

void AikidoWork::complete_message(c10::intrusive_ptr<AikidoWork> self,
                                  const Status& status, Rank peer) {
  self->source_ = peer;
  end_one(std::move(self), status);
}

// A waiting thread sleeps on the events of the progress thread, if nothing is left to
// do for others.
void AikidoWork::complete_part(c10::intrusive_ptr<AikidoWork> self,
                               const Status& status) {
  const auto engine = self->services_->engine.lock();
  end_one(std::move(self), status);
  if (engine && !engine::Engine::is_progress_thread()) engine->post([] {});
}

void AikidoWork::end_one(c10::intrusive_ptr<AikidoWork> self, const Status& status) {
  if (status.has_failed()) {
    const std::lock_guard lock(self->mutex_);
    if (!self->failure_.has_failed()) self->failure_ = status;
  }
  if (--self->num_open_ == 0) end(std::move(self));
}

// The progress thread only sets a flag and wakes the waiting thread. Work that may take
// long, or take Python's lock, moves to the callback thread: copies, callbacks of
// futures, the last release.
void AikidoWork::end(c10::intrusive_ptr<AikidoWork> self) {
  // Without its lock: this is the last write, and readers have seen the completion.
  if (self->is_timed_ || self->services_->hooks->has_info_hook())
    self->finished_ = SystemClock().now();
  self->work_result_ = work_result(self->failure_);
  std::exception_ptr error;
  if (self->failure_.has_failed()) {
    error = std::make_exception_ptr(
        Error(self->failure_, operation_of(self->title_), self->seq_));
  }
  const bool is_barrier = self->opType_ == ::c10d::OpType::BARRIER;
  const bool is_unfinished = self->rest_ && self->rest_->memory.is_unfinished();
  if (!is_unfinished && !is_barrier) return end_at_once(std::move(self), error);
  const auto callback_thread = self->services_->callback_thread;
  const auto owed = self->services_->num_owed;
  const bool has_parts = is_unfinished && self->rest_->memory.has_parts();
  if ((!error && is_unfinished) || has_parts) {
    ++*owed;
    callback_thread->run([self = std::move(self), owed, error]() mutable {
      self->end_here(self->finish_rest(error));
      --*owed;
      owed->notify_all();
      self->mark_futures();
      self.reset();
    });
    return;
  }
  // A barrier completes earlier calls, including results that are still to be made.
  if (!error && is_barrier &&
      (*owed > 0 || self->services_->transfers->has_copied_up())) {
    callback_thread->run([self = std::move(self), owed]() mutable {
      while (const int num = *owed) owed->wait(num);
      std::exception_ptr failed;
      try {
        self->services_->transfers->wait_for_copies_up();
      } catch (...) {
        failed = std::current_exception();
      }
      self->end_here(failed);
      self->mark_futures();
      self.reset();
    });
    return;
  }
  end_at_once(std::move(self), error);
}

// Only its futures are still to be marked.
void AikidoWork::end_at_once(c10::intrusive_ptr<AikidoWork> self,
                             const std::exception_ptr& error) {
  // The order matters: help_here() writes is_helped_here_ and then reads the result of
  // end_here().
  if (!self->end_here(error) || self->is_helped_here_) return;
  const auto callback_thread = self->services_->callback_thread;
  callback_thread->run([self = std::move(self)]() mutable {
    self->mark_futures();
    self.reset();
  });
}

// Returns true if futures must still be marked. A thread that requests a future later
// marks it itself.
bool AikidoWork::end_here(const std::exception_ptr& error) {
  if (error) {
    const std::lock_guard lock(mutex_);
    if (!failure_.has_failed()) work_result_ = ::c10d::WorkResult::COMM_ERROR;
  }
  finish(error);
  is_over_ = true;
  services_->hooks->on_ended(
      {opType_, seq_, key_, started_, finished_, error == nullptr, is_timed_});
  // Without the lock: an earlier thread has set it, and a later thread takes care of
  // it.
  if (const auto next = std::move(next_)) {
    Status status = failure_;
    if (error && status.is_ok())
      status = {Code::kAborted, "a call before it in the batch has failed"};
    end_one(next, status);
  }
  return has_futures_;
}

// Makes the results unless the calls have failed with `error`. Returns the first
// failure.
std::exception_ptr AikidoWork::finish_rest(std::exception_ptr error) {
  Transfers& transfers = *services_->transfers;
  if (!error) {
    error = rest_->memory.finish_on_host(transfers, operation_of(title_), rank_);
  }
  return rest_->memory.mark_landed(transfers, error);
}

// Requires: completed. The thread that takes a future marks it, so exactly one does.
void AikidoWork::mark_futures() {
  std::unique_lock lock(mutex_);
  if (!futures_) return;
  const auto future = std::exchange(futures_->unmarked, nullptr);
  const auto result = std::exchange(futures_->unmarked_result, nullptr);
  const std::exception_ptr error = exception_;
  lock.unlock();
  if (future && error) {
    future->setError(error);
  } else if (future) {
    // A thread that waits for the future waits for the work of these streams.
    std::vector<c10::Stream> streams;
    if (rest_) {
      for (const Mark& mark : rest_->memory.landed())
        streams.push_back(services_->transfers->up(mark.device));
    }
    const c10::MultiStreamGuard guard(streams);
    future->markCompleted(c10::IValue(AikidoWork::result()));
  }
  if (result) result->markCompleted(c10::IValue(static_cast<int64_t>(work_result_)));
}

// Runs turns of the loop until its calls end, if they end on the progress thread only.
void AikidoWork::help(TimePoint deadline) {
  if (num_open_ == 0 || is_open_batch() || follows_) return;
  const auto engine = services_->engine.lock();
  if (!engine) return;
  engine->help([this] { return num_open_ == 0; }, deadline, services_->spin);
}

// The engine ends its calls at their own deadline. Not used if bytes come over a
// network to more ranks than cores. There the kernel delays a thread that has computed
// for long, but not the progress thread. Steps of 11 ms took 14 ms.
void AikidoWork::help_here() {
  if (!services_->is_crowded) return;
  trace::Recorder& recorder = *services_->recorder;
  const WaitSpan span(recorder, recorder.is_armed() && !isCompleted());
  is_helped_here_ = true;
  help(TimePoint::max());
  is_helped_here_ = false;
  if (is_over_) mark_futures();
}

// Two stages with one deadline: this thread first runs turns of the progress thread,
// and then sleeps until another thread has completed the work.
bool AikidoWork::wait(std::chrono::milliseconds timeout) {
  const TimePoint deadline = deadline_of(timeout);
  end_batch_of_this_thread();
  const auto self = c10::intrusive_ptr<::c10d::Work>::reclaim_copy(this);
  trace::Recorder& recorder = *services_->recorder;
  const WaitSpan span(recorder, recorder.is_armed() && !isCompleted());
  try {
    if (!is_over_) help(deadline);
    // Without its lock if nothing is left to wait for or to throw.
    const bool is_quick = is_over_ && !exception_;
    if (is_quick) synchronize();
    const bool is_over = is_quick || ::c10d::Work::wait(left_until(deadline));
    ::c10d::unregister_work(self);
    return is_over;
  } catch (...) {
    ::c10d::unregister_work(self);
    // Results that arrived before the failure must not hold up any kernel.
    if (::c10d::Work::isCompleted()) synchronize();
    throw;
  }
}

// Also called by Work::wait, under its lock.
void AikidoWork::synchronize() {
  if (!rest_) return;
  for (const Mark& mark : rest_->memory.landed()) {
    const c10::Stream stream = current_stream(mark.device);
    if (is_capturing(stream)) {
      raise({Code::kUnsupported,
             concat("the current stream of ", mark.device.str(),
                    " captures a graph, and a call of aikido cannot be part of one: "
                    "wait for its work before the capture")},
            operation_of(title_), seq_);
    }
    mark.hold_up(stream);
  }
}

bool AikidoWork::isCompleted() {
  if (!is_over_ && !::c10d::Work::isCompleted()) return false;
  if (!rest_) return true;
  const auto landed = rest_->memory.landed();
  return std::all_of(landed.begin(), landed.end(),
                     [](const Mark& m) { return m.event->query(); });
}

// Without the lock once nothing changes any more.
bool AikidoWork::isSuccess() const {
  return is_over_ ? !exception_ : ::c10d::Work::isSuccess();
}

std::vector<at::Tensor> AikidoWork::result() {
  if (rest_) return rest_->memory.results();
  const bool is_received = opType_ != ::c10d::OpType::SEND && message_.defined();
  return is_received ? std::vector{message_} : std::vector<at::Tensor>();
}

std::optional<collectives::Outcome> AikidoWork::outcome() {
  const std::lock_guard lock(mutex_);
  if (!completed_) return std::nullopt;
  if (exception_) std::rethrow_exception(exception_);
  return rest_ ? rest_->outcome : collectives::Outcome();
}

std::vector<Rank> AikidoWork::missing() const {
  const std::lock_guard lock(mutex_);
  return rest_ ? rest_->outcome.missing : std::vector<Rank>();
}

float AikidoWork::getDuration() const {
  const std::lock_guard lock(mutex_);
  TORCH_CHECK(is_timed_,
              "aikido: this work is not timed; enable the timing of collectives on its "
              "group (_enable_collectives_timing) before the call");
  TORCH_CHECK(completed_, "aikido: this work has no duration yet; wait for it first");
  return static_cast<float>(to_ms(*finished_ - started_));
}

int AikidoWork::sourceRank() const {
  return source_.load().value;
}

void AikidoWork::abort() {
  TORCH_CHECK(false, "aikido: one call cannot be aborted alone; abort the group");
}

// Requires Work::mutex_.
AikidoWork::Futures& AikidoWork::futures() {
  if (!futures_) futures_ = std::make_shared<Futures>();
  has_futures_ = true;
  return *futures_;
}

c10::intrusive_ptr<c10::ivalue::Future> AikidoWork::getFuture() {
  end_batch_of_this_thread();
  std::unique_lock lock(mutex_);
  Futures& all = futures();
  if (!all.tensors) {
    all.tensors = c10::make_intrusive<c10::ivalue::Future>(
        c10::ListType::create(c10::TensorType::get()),
        rest_ ? rest_->devices : std::vector<c10::Device>());
    all.unmarked = all.tensors;
  }
  const auto future = all.tensors;
  const bool is_over = completed_;
  lock.unlock();
  if (is_over) mark_futures();
  return future;
}

c10::intrusive_ptr<c10::ivalue::Future> AikidoWork::getFutureResult() {
  end_batch_of_this_thread();
  std::unique_lock lock(mutex_);
  Futures& all = futures();
  if (!all.result) {
    all.result = c10::make_intrusive<c10::ivalue::Future>(c10::IntType::get());
    all.unmarked_result = all.result;
  }
  const auto future = all.result;
  const bool is_over = completed_;
  lock.unlock();
  if (is_over) mark_futures();
  return future;
}

std::shared_ptr<void> keep_alive(const c10::intrusive_ptr<AikidoWork>& work) {
  return std::make_shared<c10::intrusive_ptr<AikidoWork>>(work);
}

}  // namespace aikido::adapter

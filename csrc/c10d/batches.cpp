// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "c10d/batches.h"

#include "c10d/common/thread_number.h"

namespace aikido::adapter {

Batches::OwnWork Batches::make(int rank, const Title& title,
                               const Tensors& inputs) const {
  auto work =
      c10::make_intrusive<AikidoWork>(rank, title.type, title.text, inputs, services_);
  work->begin_batch();
  return work;
}

Batches::OwnWork Batches::current(int rank) {
  if (is_empty()) return {};
  Batch found;
  {
    const std::lock_guard lock(mutex_);
    const auto it = by_thread_.find(this_thread_number());
    if (it == by_thread_.end()) return {};
    found = it->second;
    if (found.is_refused) {
      by_thread_.erase(it);
      --num_;
    }
  }
  if (found.is_refused) return {};
  if (found.work->is_open_batch()) return found.work;
  OwnWork next = make(rank, kCoalesced, {});
  AikidoWork::follow(*found.work, next);
  const std::lock_guard lock(mutex_);
  by_thread_[this_thread_number()].work = next;
  return next;
}

// If a batch is still open, an exception has left it: torch's context manager does not
// end a batch then. So the old batch is ended here.
void Batches::start(int rank, const Title& title, const Tensors& inputs) {
  Batch batch{make(rank, title, inputs)};
  {
    const std::lock_guard lock(mutex_);
    std::swap(by_thread_[this_thread_number()], batch);
    if (!batch.work) ++num_;
  }
  if (batch.work) AikidoWork::end_batch(std::move(batch.work));
}

Batches::OwnWork Batches::end() {
  OwnWork work;
  {
    const std::lock_guard lock(mutex_);
    const auto it = by_thread_.find(this_thread_number());
    if (it == by_thread_.end()) return {};
    work = std::move(it->second.work);
    by_thread_.erase(it);
    --num_;
  }
  AikidoWork::end_batch(work);
  return work;
}

// Note [a refused call and its batch]
// Torch's manager does not end a batch that an exception has left. So the batch might
// never end: works of later calls would be part of it and never complete. But a user
// that catches the exception inside the manager will end it. Therefore its work ends
// here, for its holder, and the batch disappears with the next call of this thread.
void Batches::refuse() {
  if (is_empty()) return;
  OwnWork work;
  {
    const std::lock_guard lock(mutex_);
    const auto it = by_thread_.find(this_thread_number());
    if (it == by_thread_.end()) return;
    it->second.is_refused = true;
    work = it->second.work;
  }
  AikidoWork::end_batch(std::move(work));
}

}  // namespace aikido::adapter

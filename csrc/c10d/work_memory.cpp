// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#include "c10d/work_memory.h"

#include <ATen/core/LegacyTypeDispatch.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/status.h"

namespace aikido::adapter {
namespace {

void write_back(Transfers& transfers, const Copy& copy, const char* operation,
                int rank) {
  if (copy.tensor.device().is_cpu()) {
    copy.tensor.copy_(copy.host);
    return;
  }
  if (copy.parts) return copy.parts->flush();
  const c10::Device device = copy.tensor.device();
  if (copy.pending) copy.pending->hold_up(transfers.up(device));
  transfers.copy_up(copy.host, copy.tensor,
                    {concat(operation, " on rank ", rank, ": the copy from the host"),
                     device, copy.tensor.nbytes()});
}

}  // namespace

void WorkMemory::add(CallMemory memory) {
  const auto append = [](auto& to, auto& from) {
    if (to.empty()) return to.swap(from);
    to.insert(to.end(), std::make_move_iterator(from.begin()),
              std::make_move_iterator(from.end()));
  };
  append(results_, memory.results);
  append(held_, memory.held);
  append(held_, memory.staged.sources);
  append(copies_, memory.staged.copies);
  if (memory.owner) owners_.push_back(std::move(memory.owner));
  if (memory.finish) finishes_.push_back(std::move(memory.finish));
  if (memory.lands_on) lands_on_.push_back(*memory.lands_on);
}

bool WorkMemory::has_parts() const {
  return std::any_of(copies_.begin(), copies_.end(),
                     [](const Copy& c) { return c.parts != nullptr; });
}

std::exception_ptr WorkMemory::finish_on_host(Transfers& transfers,
                                              const char* operation, int rank) {
  // Plain writes to the memory of tensors, without autograd.
  const at::AutoDispatchBelowADInplaceOrView below;
  try {
    for (const Copy& copy : copies_) write_back(transfers, copy, operation, rank);
    for (const auto& finish : finishes_) finish();
  } catch (...) {
    return std::current_exception();
  }
  return nullptr;
}

std::exception_ptr WorkMemory::mark_landed(Transfers& transfers,
                                           std::exception_ptr error) {
  try {
    for (const Copy& copy : copies_) {
      if (error && copy.parts) copy.parts->drop();
      lands_on_.push_back(copy.tensor.device());
    }
    for (const c10::Device device : lands_on_) {
      const bool is_marked = std::any_of(landed_.begin(), landed_.end(),
                                         [&](auto& m) { return m.device == device; });
      if (device.is_cpu() || is_marked) continue;
      landed_.push_back(Mark::of(transfers.up(device)));
    }
  } catch (...) {
    if (!error) error = std::current_exception();
  }
  has_landed_ = !landed_.empty();
  return error;
}

}  // namespace aikido::adapter

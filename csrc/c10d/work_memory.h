// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the aikido authors
#pragma once
//
// Tensors of the calls of one work, and the work on the host and on devices that makes
// their results. The calling thread adds calls. Then the thread that ends the work
// finishes it. Other threads read the results after that.

#include <atomic>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "c10d/device/staging.h"
#include "c10d/device/transfers.h"

namespace aikido::adapter {

// Memory of one call. `results`: returned by result() and by the future. `staged`:
// copies that are made before the work completes; on a device they are queued by then.
// `held`: other tensors that the engine reads or writes. `finish`: host work after the
// last byte; runs on the callback thread.
struct CallMemory {
  std::vector<at::Tensor> results;
  Staged staged;
  std::vector<at::Tensor> held;
  std::function<void()> finish = {};
  // Device on which `finish` queues the results, on its stream for copies up.
  std::optional<c10::Device> lands_on = {};
  // Lives as long as `held`.
  std::shared_ptr<void> owner = {};
  int num_parts = 0;  // parts beside the call, each ended by complete_part()
};

class WorkMemory {
 public:
  // Takes the memory of a call.
  void add(CallMemory memory);

  const std::vector<at::Tensor>& results() const { return results_; }
  // Copies or host work are left when the last byte has come.
  bool is_unfinished() const { return !(copies_.empty() && finishes_.empty()); }
  // A part of a result may be on its way to a device before the work ends.
  bool has_parts() const;

  // Makes the results: copies back, and the host work of each call. `operation` and
  // `rank`: for errors. Returns the first failure. Callback thread.
  std::exception_ptr finish_on_host(Transfers& transfers, const char* operation,
                                    int rank);
  // Last step of the work on devices, also after the failure `error`, because parts of
  // the result may still be on their way up. Returns the first failure.
  std::exception_ptr mark_landed(Transfers& transfers, std::exception_ptr error);

  // Marks that are passed when the results are on their devices. Empty before
  // mark_landed(). Any thread.
  std::span<const Mark> landed() const {
    return has_landed_ ? std::span<const Mark>(landed_) : std::span<const Mark>();
  }

 private:
  std::vector<at::Tensor> results_;
  std::vector<at::Tensor> held_;
  std::vector<std::shared_ptr<void>> owners_;
  std::vector<Copy> copies_;
  std::vector<std::function<void()>> finishes_;
  std::vector<c10::Device> lands_on_;  // in addition to the devices of copies
  std::vector<Mark> landed_;
  std::atomic<bool> has_landed_ = false;  // landed_ is final and not empty
};

}  // namespace aikido::adapter
